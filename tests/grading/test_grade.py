"""Holds what is graded, by whom, and within which bounds; the last box, the last line that says Answer."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlvr_dir.config.evaluation import load_eval
from rlvr_dir.config.presentation import PROMPTS
from rlvr_dir.grading import VERDICT_KINDS, Box, Verdict, find_box, grade, grade_many, pool
from rlvr_dir.problems.prompts import prompt_sets
from rlvr_dir.train.training import _Messages
from tests.facts import ROBUST, refuses
from tests.grading.tables import boxed


@pytest.mark.parametrize(
    ("response", "finish", "kind"),
    [
        ("the answer is 73", "stop", "no_box"),
        ("the answer is $73$", "length", "truncated"),
        (r"\boxed{73", "stop", "unclosed_box"),
        (r"\boxed{73", "length", "truncated"),
        (r"\boxed{73} and furthermore", "length", "correct"),
        (r"\boxed{}", "stop", "no_box"),
        (boxed("7" * 401), "stop", "too_long"),
        (r"\boxed{33} then \boxed{73}", "stop", "correct"),
    ],
)
def test_kinds_without_math_verify(response, finish, kind):
    verdict = grade("73", response, finish)
    assert verdict.kind == kind
    assert kind in VERDICT_KINDS


def test_integers_need_no_worker():
    code = (
        "from rlvr_dir.grading import grade_many, pool\n"
        "items = [(str(i % 30), 'x' * 6000 + '\\\\boxed{%d}' % (i % 7)) for i in range(960)]\n"
        "verdicts = grade_many(items)\n"
        "assert not pool._idle and 0 < sum(v.correct for v in verdicts) < 960\n"
        "import sys; assert 'math_verify' not in sys.modules and 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_response_that_was_cut_in_its_final_box_has_no_answer():
    cut = r"so \boxed{4}. Final: \boxed{"
    assert grade("4", cut) == Verdict("unclosed_box", None, ROBUST)
    assert grade("4", cut, "length").kind == "truncated"
    assert grade("4", cut, "length", grader="plain").correct  # the last closed one, as the paper does
    assert grade("4", r"so \boxed{4}. And then", "length").correct


def test_equal_pairs_are_graded_once_a_process(monkeypatch):
    verdicts = grade_many([(r"\sqrt{7}", boxed(r"7^{1/2}"))] * 5000)
    assert {v.kind for v in verdicts} == {"correct"}
    monkeypatch.setattr(pool, "verify_many", None)
    assert grade(r"\sqrt{7}", boxed(r"7^{1/2}")).correct


def test_hostile_answers_are_bounded_and_counted(monkeypatch):
    monkeypatch.setattr(pool, "CPU_SECONDS", 1)
    pool.close_workers()
    slow = r"\int_{0}^{\infty} \frac{\sin(x^{52})}{1+x^{15}} dx"
    hostile = ["9^{9^{9^9}}", "(10^9)!", slow, r"(a+b+c+d)^{60} - (a-b+c-d)^{16}", "__import__('os').system('true')"]
    verdicts = grade_many([("1", boxed(text)) for text in [*hostile, "1.0"]], grader="plain")
    assert not any(v.correct for v in verdicts[:-1])
    assert [v.kind for v in verdicts[:4]] == ["too_large", "too_large", "timed_out", "timed_out"]
    assert [v.graded for v in verdicts[:4]] == [True, True, False, False]
    assert verdicts[-1].correct  # the replaced worker is as good as the first
    pool.close_workers()


def test_two_workers_that_died_while_idle_cost_nothing():
    """A pair is tried twice: before, two dead workers in the pool made a grader_error of it."""
    pool.close_workers()
    workers = [pool._take() for _ in range(2)]
    for worker in workers:
        os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    pool._idle.extend(workers)
    assert grade("x+1793", boxed("1793+x")).correct
    assert not pool._idle[0].process.poll()
    assert len(pool._idle) == 1


@pytest.mark.parametrize("grader", ["plain", "robust"])
def test_a_response_is_bounded_as_a_whole(grader, monkeypatch):
    """Each of several golds, and each element of a list, is a question: together they have a limit."""
    monkeypatch.setattr(pool, "RESPONSE_SECONDS", 0.5)
    spent = []
    verify = pool._Worker.verify
    monkeypatch.setattr(pool._Worker, "verify", lambda self, *question: spent.append(1) or verify(self, *question))
    slow = [rf"\int_{{0}}^{{\infty}} \frac{{\sin(x^{{{k}}})}}{{1+x^{{15}}}} dx" for k in range(40, 52)]
    golds = tuple(f"x+{k}" for k in range(6))
    many, fine = grade_many([(golds, boxed(slow[0])), ("x+77", boxed("77+x"))], grader=grader)
    assert (many.kind, fine.kind) == ("timed_out", "correct")
    assert len(spent) < len(golds) + 1
    pool.close_workers()


def test_a_worker_that_cannot_start_costs_no_responses(monkeypatch, caplog):
    pool.close_workers()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    verdicts = grade_many([("1", boxed("1")), ("x+3", boxed("3+x"))])
    assert [verdict.kind for verdict in verdicts] == ["correct", "grader_error"]
    assert "did not start" in caplog.text
    monkeypatch.undo()
    assert grade("x+3", boxed("3+x")).correct  # a failure is not remembered


def test_a_gold_that_cannot_be_read_is_the_graders_fault():
    assert grade("", boxed("1+1")) == Verdict("grader_error", "1+1")


def test_unknown_grader():
    with refuses("grader", "plian"):
        grade("1", boxed("1"), grader="plian")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{204}", "204"),
        (r"\boxed{33} then \boxed{204}", "204"),
        (r"\boxed{204} wait \boxed{33} final answer is $9$", "33"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{\boxed{204}}", "204"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        ("\\boxed\n{ 7 }", "7"),
        (r"\\boxed{5}", "5"),
        (r"\\\boxed{5}", "5"),
        (r"in \boxed{} I write \boxed{3} and not \boxed{ }", "3"),
        (r"{ unbalanced \boxed{5}", "5"),
        (r"} stray \boxed{5} }", "5"),
        (r"\boxed{204} and then \boxed{20", Box("unclosed_box")),  # cut in its final box
        (r"so \boxed{4}. Final: \boxed{", Box("unclosed_box")),
        (r"so $\boxed{4}$. Final: $\boxed{$1", Box("unclosed_box")),
        ("\\boxed{4}\n\\[\n\\boxed{\n\\begin{pmatrix} 1 & 2 \\\\", Box("unclosed_box")),
        (r"\boxed{4}, no: \boxed{\frac{1}{2", Box("unclosed_box")),
        (r"\boxed{4} \boxed{5 \boxed{6}", "6"),
        (r"so \boxed{4}. Restart: \boxed{ and so \boxed{5}.", "5"),
        (r"so \boxed{4}. Write it as \boxed{}.", "4"),
        (r"\boxed{4}, or $\boxed{\frac{1}{2}$ as a fraction", "4"),  # a brace forgotten in the middle
        (r"\boxed{4}, or \(\boxed{5\) as well", "4"),
        ("\\boxed{4}, or \\boxed{5\n\nThat is all.", "4"),
        (r"\boxed{4}, or \boxed{" + "5 and " * 80, "4"),
        (r"\boxed{open \boxed{6}", "6"),
        (r"\text{the answer is } \boxed{\text{east}}", r"\text{east}"),
        ("the answer is 73", Box("no_box")),
        ("", Box("no_box")),
        (r"boxed{73}", Box("no_box")),
        (r"\boxed 73", Box("no_box")),
        (r"\boxed{}", Box("no_box")),
        (r"\boxed{\frac{1}{2}", Box("unclosed_box")),
        (r"\boxed{73", Box("unclosed_box")),
    ],
)
def test_the_last_closed_box_that_holds_something(text, found):
    assert find_box(text) == (found if isinstance(found, Box) else Box("closed", found))


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "\\boxed{x}", "\\", "{", "}", "\\boxed ", "\\boxed{{", "\\boxed{1}}", "boxed{", "\\{"]
)
def test_linear_in_hostile_text(piece):
    start = time.process_time()
    find_box("\\boxed{1}" + piece * 100_000 + "\\boxed{2")
    assert time.process_time() - start < 2  # of the processor, whoever else is busy: if it were quadratic, hours


CASES = [  # gold, response, right
    ("204", "so it is 204.\nAnswer: 204", True),
    ("204", "Answer: 33\nNo.\nanswer :\n 204", True),  # the last one, in any case, on the next line too
    ("204", "Answer: 204\nAnswer: 33", False),
    ("204", "Answer: $204$.", True),
    ("204", "Answer: $x = 204$", True),
    ("204", "Answer: 204.0", False),  # text alone
    ("204", "Answer: 102 + 102", False),
    ("1234", "Answer: 1,234", True),
    ("1/2", r"Answer: \frac12", False),
    (r"\frac{1}{2}", r"Answer: $\frac12$", True),
    (r"\sqrt{2}", r"Answer: \sqrt2", True),
    ("5", r"Answer: \boxed{5}", True),
    ("60", r"Answer: 60^\circ", True),
    ("60", r"Answer: 60 degrees", True),
    ("7", r"Answer: an integer, \text{7} meters", False),
    ("12", r"Answer: 12\text{ cm}", True),
    ("A", r"Answer: \text{A}", True),
    ("(1,2)", "Answer: (1, 2)", True),
    ("10", "Answer: \\$10 dollars", True),
    ("3", "Answer: the value is $3$, or $4$", True),  # the first formula
    ("204", "Answer: 204" + "." * 300, False),  # too far from the end
    ("204", "Answer:   ", False),
]
NONE = [("204", r"so \boxed{204}", "no_box"), ("204", "The answer is 204", "no_box")]


@pytest.mark.parametrize(("gold", "response", "right"), CASES)
def test_the_last_answer_line_counts_as_text(gold, response, right):
    verdict = grade(gold, response, grader="math_dapo")
    assert verdict.correct is right
    assert verdict.grader == "math_dapo"


@pytest.mark.parametrize(("gold", "response", "kind"), NONE)
def test_without_such_a_line_there_is_no_answer(gold, response, kind):
    assert grade(gold, response, grader="math_dapo") == Verdict(kind, None, "math_dapo")
    assert grade(gold, response, "length", grader="math_dapo").kind == "truncated"
    assert grade(("1", "2"), "Answer: 2", grader="math_dapo").correct  # any of several


def test_the_prompt_has_a_name_that_evaluations_take():
    asked = load_eval({"tasks": ["tiny_easy"], "limit": 1}, {"prompt": "math_dapo", "grader": "math_dapo"})
    assert asked.prompt == PROMPTS["math_dapo"]
    [found] = prompt_sets(asked, _Messages())
    [text] = found.prompts.values()
    assert "of the form Answer: $Answer" in text
    assert found.benchmark.grader == "math_dapo"
    with refuses("prompt", "math_dap", "math_dapo"):
        load_eval({"tasks": ["tiny_easy"]}, {"prompt": "math_dap"})

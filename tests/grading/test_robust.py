"""Verdicts of the robust grader beside plain's, on the kinds of answers that real models box."""

import json
import os
import re
from math import isqrt, log2
from pathlib import Path

import pytest
import sympy
from sympy.core import evalf

from rlvr_dir.grading import VERDICT_KINDS, grade, grade_many, pool
from rlvr_dir.grading.bounds import too_large
from rlvr_dir.grading.formulas import read_formula
from rlvr_dir.grading.normalise import normalise
from rlvr_dir.grading.values import same_values
from tests.facts import ROBUST, refuses
from tests.grading.review import REVIEW
from tests.grading.tables import HOSTILE, NOT_HOSTILE, TABLE, boxed

DATA = Path(os.environ.get("RLVR_DIR_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


def rows(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs the benchmarks' data: {path} is not here")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("grader", "column"), [("plain", 2), ("robust", 3)])
def test_the_table(grader, column):
    wanted = [row for row in TABLE if row[column] is not None]
    verdicts = grade_many([(gold, boxed(box)) for gold, box, *_ in wanted], grader=grader)
    assert all(v.correct == (v.kind == "correct") and v.graded for v in verdicts)
    got = [(*row[:2], verdict.kind) for row, verdict in zip(wanted, verdicts, strict=True)]
    assert got == [(*row[:2], row[column]) for row in wanted]


def test_the_review():
    wanted = [
        (gold, box, kind)
        for gold, answers in REVIEW.items()
        for kind, boxes in zip(("correct", "wrong"), answers, strict=True)
        for box in boxes
    ]
    verdicts = grade_many([(gold, boxed(box)) for gold, box, _ in wanted])
    assert [(gold, box, v.kind) for (gold, box, _), v in zip(wanted, verdicts, strict=True)] == wanted


def test_numbers_are_told_apart_by_many_digits_and_formulas_by_few(monkeypatch):
    """A thousand digits at each point took one pair of the review most of its processor time."""
    bits, evaluate = [], evalf.evalf
    monkeypatch.setattr(evalf, "evalf", lambda form, prec, options: bits.append(prec) or evaluate(form, prec, options))
    assert same_values(sympy.sqrt(2), sympy.Rational(isqrt(2 * 10**500), 10**250)) is False
    assert max(bits) > 250 * log2(10)
    bits.clear()
    a, b, g, m = sympy.symbols("a b G M", positive=True)
    root = sympy.cbrt(m)
    assert same_values(a * root / (g * root**2 + b), a / (g * root + b / root)) is True
    assert max(bits) < 250 * log2(10)


def test_robust_is_the_default_and_recorded():
    assert grade("204", boxed("204.")).grader == grade("204", boxed("204."), grader=ROBUST).grader == ROBUST
    assert grade("204", boxed("204."), grader="plain").grader == "plain"


def test_every_minerva_gold_verifies_against_itself_and_as_published():
    ours, published = rows("minerva.jsonl"), rows("minerva_upstream_answers.jsonl")
    assert len(ours) == len(published) == 272
    same = grade_many([(row["answer"], boxed(row["answer"])) for row in ours])
    assert [row["answer"] for row, v in zip(ours, same, strict=True) if not v.correct] == []
    pairs = [
        (a["answer"], b["answer"])
        for a, b in zip(ours, published, strict=True)
        if "np." not in b["answer"] and "exp{" not in b["answer"]  # three are numpy code, not mathematics
    ]
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    verdicts = grade_many([(gold, boxed(answer)) for gold, answer in both])
    assert [pair for pair, v in zip(both, verdicts, strict=True) if not v.correct] == []


REWRITES = {
    "another layout": lambda text: text.replace("{", "{ ").replace("\\frac", "\\dfrac").replace("=", " = "),
    "a full stop": lambda text: text + ".",
    "dollars": lambda text: f"${text}$",
    "a sentence": lambda text: rf"\text{{The answer is }} {text}",
    "a label": lambda text: rf"\textbf{{(C)}}\ {text}",
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_every_minerva_gold_in_another_dress(rewrite):
    golds = [row["answer"] for row in rows("minerva.jsonl")]
    verdicts = grade_many([(gold, boxed(rewrite(gold))) for gold in golds])
    assert [rewrite(gold) for gold, v in zip(golds, verdicts, strict=True) if not v.correct] == []


def test_no_gold_that_is_a_formula_matches_another():
    """Neither another formula nor a number: a part of the golds beside each, in turn."""
    golds = list(dict.fromkeys(row["answer"] for row in rows("minerva.jsonl")))
    formulas = [gold for gold in golds if re.search(r"[A-Za-z]", gold.replace(r"\times", "").replace(r"\frac", ""))]
    pairs = [(a, b) for i, a in enumerate(formulas) for b in golds[i % 27 :: 27] if a != b]
    assert len(formulas) > 70
    assert [
        pair for pair, v in zip(pairs, grade_many([(a, boxed(b)) for a, b in pairs]), strict=True) if v.correct
    ] == []


def test_tiny_golds_never_match_each_other():
    tiny = [row["answer"] for row in rows("minerva.jsonl") if "10^{-" in row["answer"]]
    tiny = [text for text in tiny if int(text.split("^{-")[1].rstrip("}")) >= 6]
    pairs = [(a, b) for a in tiny for b in tiny if a != b]
    assert len(pairs) >= 210
    assert not any(verdict.correct for verdict in grade_many([(a, boxed(b)) for a, b in pairs]))


def test_both_versions_of_the_minerva_golds():
    ours, other = rows("minerva.jsonl"), rows("minerva_r1zero_answers.jsonl")
    either = [(a["answer"], *b["answers"]) for a, b in zip(ours, other, strict=True)]
    for pick in (0, -1):
        verdicts = grade_many([(golds, boxed(golds[pick])) for golds in either])
        assert all(v.correct for v in verdicts)
    alone = grade_many([(a["answer"], boxed(b["answers"][0])) for a, b in zip(ours, other, strict=True)])
    assert 30 <= sum(not v.correct for v in alone) <= 44  # what data.md counts as different


@pytest.mark.parametrize("grader", ["plain", "robust"])
@pytest.mark.parametrize(
    ("golds", "answer", "kind"),
    [
        (("1", "x+1"), "1+x", "correct"),
        (["1", "2"], "2", "correct"),
        (("1", "2"), "3", "wrong"),
        (("1", ""), "x+1", "grader_error"),
        (("1", ""), "1", "correct"),
    ],
)
def test_any_of_several_golds_counts(golds, answer, kind, grader):
    assert grade(golds, boxed(answer), grader=grader).kind == kind


def test_an_item_without_a_gold():
    with refuses("gold", "1"):
        grade_many([("1", boxed("1")), ((), boxed("1"))])


@pytest.mark.parametrize("text", HOSTILE)
def test_what_no_computer_can_hold_reaches_no_worker(text, monkeypatch):
    monkeypatch.setattr(pool, "verify_many", None)
    verdict = grade("1", boxed(text))
    assert (verdict.kind, verdict.graded) == ("too_large", True)
    assert verdict.kind in VERDICT_KINDS


@pytest.mark.parametrize("text", NOT_HOSTILE)
def test_what_people_write_is_not_too_large(text):
    assert not too_large(normalise(text))


def write_determinant(size):
    rows = ["&".join(f"a_{{{row}{column}}}" for column in range(size)) for row in range(size)]
    return r"\det(\begin{pmatrix}" + r"\\".join(rows) + r"\end{pmatrix})"


def write_union(size):
    return r"\cup".join(rf"({start},{start}+\sqrt{{2}})" for start in range(size))


@pytest.mark.parametrize(
    ("read", "unread"),
    [
        (write_determinant(4), write_determinant(5)),
        (write_union(10), write_union(11)),
        (r"\prod_{k=1}^{9}\cos(k)", r"\prod_{k=1}^{9000}\cos(k)"),
        (r"\prod_{k=1}^{9}(x-k)", r"\prod_{k=1}^{9000}(x-k)"),
        (r"\prod_{k=1}^{9000}\frac{k+1}{k}", ""),
        (r"\prod_{k=1}^{n}k", ""),
    ],
)
def test_what_takes_seconds_and_is_no_answer_is_not_read(read, unread):
    assert read_formula(read) is not None
    assert read_formula(unread) is None


def test_a_gold_beyond_the_bounds_still_equals_itself():
    assert grade("9^{9^{9^9}}", boxed("9^{9^{9^{9}}}")).correct


def test_a_slow_answer_is_counted_and_its_worker_replaced(monkeypatch):
    monkeypatch.setattr("rlvr_dir.grading.robust.CPU_SECONDS", 0.5)
    slow, fine = grade_many([("7", boxed(r"\int \int x^{77} e^{x^2} \sin x dx")), (r"\sqrt{5}", boxed("5^{1/2}"))])
    assert (slow.kind, slow.graded) == ("timed_out", False)
    assert fine.correct


def test_an_equation_whose_sides_are_no_formulas_is_left_to_math_verify():
    from sympy import Eq, Symbol, true

    equation = Eq(Symbol("x"), true, evaluate=False)
    assert same_values(equation, equation) is None

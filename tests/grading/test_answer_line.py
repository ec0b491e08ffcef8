"""Verdicts of `math_dapo`: the last `Answer:` of a response as text; verl's own says the same (tests/train/verl)."""

import pytest

from harness.errors import UserError
from harness.evals.prompts import prompt_sets
from harness.grading import Verdict, grade
from harness.spec.evaluation import load_eval
from harness.spec.presentation import PROMPTS
from harness.training import _Messages

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
    with pytest.raises(UserError, match=r"accepted: .*math_dapo"):
        load_eval({"tasks": ["tiny_easy"]}, {"prompt": "math_dap"})

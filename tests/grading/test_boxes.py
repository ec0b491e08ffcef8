"""Finding the answer of a response."""

import time

import pytest

from harness.grading import find_box


@pytest.mark.parametrize(
    ("text", "answer"),
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
        (r"\boxed{204} and then \boxed{20", "204"),
        (r"\boxed{open \boxed{6}", "6"),
        (r"\text{the answer is } \boxed{\text{east}}", r"\text{east}"),
    ],
)
def test_the_last_closed_box_that_holds_something(text, answer):
    box = find_box(text)
    assert (box.status, box.content) == ("closed", answer)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("the answer is 73", "no_box"),
        ("", "no_box"),
        (r"boxed{73}", "no_box"),
        (r"\boxed 73", "no_box"),
        (r"\boxed{}", "no_box"),
        (r"\boxed{\frac{1}{2}", "unclosed_box"),
        (r"\boxed{73", "unclosed_box"),
    ],
)
def test_no_answer(text, status):
    box = find_box(text)
    assert (box.status, box.content) == (status, None)


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "\\boxed{x}", "\\", "{", "}", "\\boxed ", "\\boxed{{", "\\boxed{1}}", "boxed{", "\\{"]
)
def test_linear_in_hostile_text(piece):
    start = time.process_time()
    find_box("\\boxed{1}" + piece * 100_000 + "\\boxed{2")
    assert time.process_time() - start < 2  # of the processor, whoever else is busy: if it were quadratic, hours

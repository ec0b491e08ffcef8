r"""Grade like the paper's trainings: by the last `Answer: ...` of a response, as text.

    grade("1/2", "Answer: $\\frac12$", grader="math_dapo")   # wrong: "\frac{1}{2}" differs from "1/2"

It decides like verl's `math_dapo`, which DAPO's recipe uses for rewards. Only the end of a response is read, and an
answer is right if it equals the gold's text once both are normalised. There is no arithmetic. The rules are applied to
the gold as well, so that a careless one ("a " is removed everywhere) rarely matters. A test compares it with verl's own
in verl's environment. verl 0.9 reads a box if there is no such line, which is not done here.
"""

import re
from collections.abc import Sequence

from rlvr_dir.grading.boxes import Box
from rlvr_dir.grading.pool import Item

END = 300  # characters of a response that are read
_LINE = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
# in this order, at every place
_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"),
    (r",\text{and}", ","), (r"\text{and}", ","), (r"\text{m}", r"\text{}"),
)  # fmt: skip
_WORDS = """
    square ways integers dollars mph inches hours km units \\ldots sue points feet minutes digits cents degrees cm gm
    pounds meters meals edges students childrentickets multiples
"""
_MARKUP = (
    r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}", r"\mathrm{th}",
    r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots",
)  # fmt: skip
# The first formula of a line; the content of text, bold, an overline and a box; \frac12 and \sqrt2 with braces.
_REWRITTEN = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r".*?\$(.*?)\$.*", r"$\1$"),
        (r"\\text\{(.*?)\}", r"\1"),
        (r"\\textbf\{(.*?)\}", r"\1"),
        (r"\\overline\{(.*?)\}", r"\1"),
        (r"\\boxed\{(.*)\}", r"\1"),
        (r"frac([^{])(.)", r"frac{\1}{\2}"),
        (r"sqrt([^{])", r"sqrt{\1}"),
    )
)


def find_answer_line(text: str) -> Box:
    """Find the text after the last `Answer:` of a response, in upper or lower case, up to the end of that line.

    >>> find_answer_line("Answer: 3, no.\\nAnswer: 4").content
    '4'
    """
    lines = _LINE.findall(text[-END:])
    return Box("closed", lines[-1]) if lines else Box("no_box")


def normalised(answer: str) -> str:
    r"""Return an answer in the form that is compared: the text after its last `=`, without articles, spaces, units and
    markup.

    >>> normalised(r"x = $1,234$ units"), normalised(r"\frac12")
    ('1234', '\\frac{1}{2}')
    """
    answer = answer.rpartition("=")[2]
    for before, after in (*_REPLACED, *((word, "") for word in (*_WORDS.split(), *_MARKUP))):
        answer = answer.replace(before, after)
    for pattern, by in _REWRITTEN:
        answer = pattern.sub(by, answer)
    answer = answer.replace("$", "")
    digits = answer.replace(",", "")
    return (digits if digits.isdigit() else answer).strip()


def grade_answer_line(items: Sequence[Item]) -> list[str]:
    """Grade answers by their text only."""
    return [
        "correct" if normalised(answer) in {normalised(gold) for gold in golds} else "wrong" for golds, answer in items
    ]

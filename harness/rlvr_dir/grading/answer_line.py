r"""The grader that the paper's trainings were rewarded by: the last `Answer: ...` of a response, as text.

grade("1/2", "Answer: $\\frac12$", grader="math_dapo")   # wrong: "\frac{1}{2}" is other text than "1/2"

It decides as verl's `math_dapo`, by which DAPO's recipe rewards: the end of a response alone is read, and an answer is
right when it is the gold's text once both are normalised. No arithmetic; what the rules do to an answer they do to the
gold as well, so that a careless one ("a " goes wherever it stands) rarely matters. Compared with verl's own in its
environment by a test; verl 0.9 reads a box where there is no such line, which is not done here.
"""

import re
from collections.abc import Sequence

from rlvr_dir.grading.boxes import Box
from rlvr_dir.grading.pool import Item

END = 300  # characters of a response that are read
_LINE = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
# In this order, each wherever it stands.
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
# Of a line with formulas the first one; what text, bold, an overline and a box hold; \frac12 and \sqrt2 with braces.
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
    """Find what stands behind the last `Answer:` of a response, whatever its case, up to the end of that line.

    >>> find_answer_line("Answer: 3, no.\\nAnswer: 4").content
    '4'
    """
    lines = _LINE.findall(text[-END:])
    return Box("closed", lines[-1]) if lines else Box("no_box")


def normalised(answer: str) -> str:
    r"""Return an answer as it is compared: what follows its last `=`, without articles, spaces, units and markup.

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
    """Grade answers by their text alone."""
    return [
        "correct" if normalised(answer) in {normalised(gold) for gold in golds} else "wrong" for golds, answer in items
    ]

r"""How an answer is built: a list, a set, a tuple or interval, a union, an equation; split at the top level only.

parts(r"(1, 2)")        # Parts("brackets", ("1", "2"), "()")
parts(r"1 \text{ or } 2")  # Parts("list", ("1", "2"))
sides("m + n = 204")    # ("m + n", "204")
"""

import re
from dataclasses import dataclass
from typing import Literal

from harness.grading.normalise import brackets, whole

_AND = r"(?:\\text\s*\{[ ,]*(?:and|or)[ ]*\}|\b(?:and|or)\b)"
_COMMA = re.compile(rf"\s*[,;]\s*{_AND}?\s*|\s*{_AND}\s*")
_CUP = re.compile(r"\s*\\cup(?![A-Za-z])\s*")
_RELATION = re.compile(r"\s*(?<![<>!:=])(:?=+|\\(?:approx|simeq|sim|cong|doteq|equiv|in)(?![A-Za-z]))\s*")
_ATOM = r"(?:[A-Za-z]|\\(?!frac|sqrt|times|cdot)[A-Za-z]+|\\(?:text|mathrm)\s*\{[^{}]*\})"
_INDEX = r"(?:\s*[_^]\s*(?:[A-Za-z0-9]|\{[^{}]*\})|')*"
_ARGUMENT = r"(?:\s*\(\s*[A-Za-z0-9]\s*\))?"
_NAME = rf"(?:\\(?:dot|ddot|hat|bar|vec|overline|mathbf)\s*\{{)?{_ATOM}\}}?{_INDEX}{_ARGUMENT}"
_DERIVATIVE = r"\\frac\s*\{\s*d(?:[^{}]|\{[^{}]*\})*\}\s*\{\s*d\s*[A-Za-z]\s*(?:\^\s*\{?\s*\d\s*\}?)?\s*\}"
_A_NAME = re.compile(rf"\s*(?:{_NAME}|{_DERIVATIVE}|\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\)|[A-Za-z]{{3,20}})\s*")


StructureKind = Literal["list", "set", "brackets", "union"]
_SEPARATORS: tuple[tuple[StructureKind, re.Pattern[str]], ...] = (("list", _COMMA), ("union", _CUP))


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer of several parts; `ends` are the brackets of a tuple or an interval."""

    kind: StructureKind
    items: tuple[str, ...]
    ends: str = ""


def split(text: str, at: re.Pattern[str]) -> list[str]:
    """Cut `text` at the matches outside all brackets; in one piece where the brackets do not balance."""
    depth, steps, pieces, start = 0, brackets(text), [], 0
    inside: list[tuple[int, int]] = []
    opened = 0
    for end, step in steps:
        if step == 1 and depth == 0:
            opened = end - 1
        depth += step
        if depth < 0:
            return [text]
        if depth == 0:
            inside.append((opened, end))
    if depth:
        return [text]
    block = 0
    for match in at.finditer(text):
        while block < len(inside) and inside[block][1] <= match.start():
            block += 1
        if block < len(inside) and inside[block][0] < match.start():
            continue
        pieces.append(text[start : match.start()])
        start = match.end()
    return [piece.strip() for piece in [*pieces, text[start:]]]


def parts(text: str) -> Parts | None:
    """Return the parts of a normalised answer; None for a single value, in round brackets or not."""
    if r"\begin" in text:  # a matrix: its commas and breaks are math-verify's business
        return None
    text = unwrap(text)
    for kind, pattern in _SEPARATORS:
        pieces = split(text, pattern)
        if len(pieces) > 1 and all(pieces):
            return Parts(kind, tuple(pieces))
    if text.startswith("\\{") and text.endswith("\\}") and whole(text, 0):
        items = [item for item in split(text[2:-2].strip(), _COMMA) if item]
        return Parts("set", tuple(items))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and whole(text, 0):
        items = split(text[1:-1], _COMMA)
        if len(items) > 1 and all(items):
            return Parts("brackets", tuple(items), text[0] + text[-1])
    return None


def unwrap(text: str) -> str:
    """Take off round brackets around the whole of a single value."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and whole(text, 0) and len(split(text[1:-1], _COMMA)) == 1:
        text = text[1:-1].strip()
    return text


def sides(text: str) -> tuple[str, ...]:
    """Return the sides of an equation or a chain of them, without empty ones; one side where there is no relation."""
    return tuple(side for side in split(text, _RELATION) if side) or (text,)


def is_name(text: str) -> bool:
    r"""Tell whether a left side only names what is on the right: `x`, `X_{d}`, `f(x)`, `dx/dt`, `(x, y)`.

    `MR` is no name but a product: in `MR = SRMC` both sides are the answer.
    """
    return _A_NAME.fullmatch(text) is not None

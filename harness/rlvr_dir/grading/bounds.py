r"""Detect texts that ask a computer algebra system for an astronomically large number.

Exponents, factorials, binomials and the limits of sums are *operands*: `9^{9^{9^9}}` has ten characters, and no
computer can store its value. An operand may not exceed MAX_OPERAND, or the bound in MOST. It may not be built from a
power or a factorial of numbers either, except for a small power in an exponent or in a limit of a sum.
"""

import re
from collections.abc import Mapping

from rlvr_dir.grading.normalise import brackets

MAX_OPERAND = 10_000
MOST = {"^": 100_000, r"\sum": 1_000_000}  # of an exponent, and of the terms of a sum
MAX_POWER = 100_000  # of powers of powers, multiplied
MAX_TOWER = 2  # e^{-x^{2}} has two levels
MAX_DEPTH = 12  # brackets in brackets; the deepest gold of the four benchmarks has 4
_OPERATOR = re.compile(r"\^|!|\\(?:[dt]?binom|sum|prod|int|lim)(?![A-Za-z])")
_BARE = re.compile(r"\s*[+-]?\s*(?:\\[A-Za-z]+|\d+|\S)")
_LITERAL = re.compile(r"\d+(?:\.\d+)?")
_SMALL_POWER = re.compile(r"\b(\d{1,4})\s*\^\s*(?:\{\s*(\d{1,2})\s*\}|(\d{1,2}))(?!\s*[\d^!])")
_NUMERIC_POWER = re.compile(r"(?:\d|[)}])\s*(?:\^|!|\*\*|[eE][+-]?\d)")


def too_large(text: str, most: Mapping[str, int] = MOST) -> bool:
    """Return whether `text` is nested too deeply, or has an operand beyond the bounds; linear in the length of the
    text.

    `most` has the bounds of operators that may have more than MAX_OPERAND.
    """
    if text.count("!") > 3 or text.count("^^"):
        return True
    depth = 0
    stack: list[int] = []
    group_end: dict[int, int] = {}  # start of each bracket -> its end
    group_start: dict[int, int] = {}
    for end, step in brackets(text):
        depth += step
        if depth > MAX_DEPTH:
            return True
        if step == 1:
            stack.append(end - 1)
        elif stack:
            start = stack.pop()
            group_end[start], group_start[end] = end, start
    raised, plain, limits = 1, 1, 0  # end of the limits of the last sum
    exponents: list[int] = []  # ends of the exponents that contain this place
    for match in _OPERATOR.finditer(text):
        operands, end = _operands(text, match, group_end, group_start)
        if match.start() < limits:
            continue
        if any(_beyond(operand, most.get(match[0], MAX_OPERAND)) for operand in operands):
            return True
        limits = end if match[0] == r"\sum" else 0
        if match[0] == "^":
            exponents = [end for end in exponents if end > match.start()]
            at = match.end()
            while at < len(text) and (text[at].isspace() or text[at] in "_^"):
                at += 1
            exponents.append(group_end.get(at, at))
            value = max([1, *(int(float(x)) for operand in operands for x in _LITERAL.findall(operand))])
            if text[: match.start()].rstrip()[-1:] in (")", "}", "]"):  # (10^{99})^{99}: they multiply
                raised *= value
            elif text[: match.start()].rstrip()[-1:].isdigit():
                plain = max(plain, value)
            if len(exponents) > MAX_TOWER or raised * (plain if raised > 1 else 1) > MAX_POWER:
                return True
    return False


def _operands(text: str, match: re.Match[str], ends: dict[int, int], starts: dict[int, int]) -> tuple[list[str], int]:
    """Return the operator's operands (before a `!`, after a `^`, limits or arguments), and where they end."""
    if match[0] == "!":
        before = text[: match.start()].rstrip()
        if len(before) in starts:
            return [before[starts[len(before)] :]], match.end()
        digits = re.search(r"\d*\Z", before)
        return [digits[0] if digits else ""], match.end()
    operands, at = [], match.end()
    for _ in range(1 if match[0] == "^" else 2):
        while at < len(text) and text[at] in " _^":
            at += 1
        if at in ends:
            operands.append(text[at : ends[at]])
            at = ends[at]
        elif bare := _BARE.match(text, at):
            chained = match[0] == "^" and text[bare.end() :].lstrip().startswith("^")  # 9^9^9: no TeX, but a tower
            operands.append(bare[0] + "^" * chained)
            at = bare.end()
    return operands, at


def _beyond(operand: str, most: int) -> bool:
    if operand.endswith("^"):
        return True
    if most > MAX_OPERAND:
        operand = _SMALL_POWER.sub(lambda m: str(int(m[1]) ** int(m[2] or m[3])), operand)
    if len(operand) > 1 and _NUMERIC_POWER.search(operand.strip("{}()[] ") + " "):
        inner = re.sub(r"10\s*\^\s*\{?\s*-\s*\d{1,3}\s*\}?", "1", operand)  # e^{-10^{-3} t}: a small number
        if _NUMERIC_POWER.search(inner.strip("{}()[] ") + " "):
            return True
    return any(len(x.split(".")[0]) > 7 or float(x) > most for x in _LITERAL.findall(operand))

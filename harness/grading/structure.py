r"""How an answer is built: a list, a set, a tuple or interval, a union, an equation; split at the top level only.

parts(r"(1, 2)")        # Parts("brackets", ("1", "2"), "()")
parts(r"1 \text{ or } 2")  # Parts("list", ("1", "2"))
sides("m + n = 204")    # ("m + n", "204")
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.grading.normalise import brackets, whole

_AND = r"(?:\\text\s*\{[ ,]*(?:and|or)[ ]*\}|\b(?:and|or)\b)"
_COMMA = re.compile(rf"\s*[,;]\s*{_AND}?\s*|\s*{_AND}\s*")
_COLON = re.compile(r"\s*:(?!=)\s*")
_CUP = re.compile(r"\s*\\cup(?![A-Za-z])\s*")
APPROXIMATE = re.compile(r"\s*\\(?:approx|simeq|doteq)(?![A-Za-z])\s*")
_RELATION = re.compile(r"\s*(?<![<>!:=])(:?=+|\\(?:approx|simeq|sim|cong|doteq|equiv|in)(?![A-Za-z]))\s*")
_ATOM = r"(?:[A-Za-z]|\\(?!frac|sqrt|times|cdot)[A-Za-z]+|\\(?:text|mathrm)\s*\{[^{}]*\})"
_INDEX = r"(?:\s*[_^]\s*(?:[A-Za-z0-9]|\{[^{}]*\})|')*"
_ARGUMENT = r"(?:\s*\(\s*[A-Za-z0-9]\s*\))?"
_NAME = rf"(?:\\(?:dot|ddot|hat|bar|vec|overline|mathbf)\s*\{{)?{_ATOM}\}}?{_INDEX}{_ARGUMENT}"
_DERIVATIVE = r"\\frac\s*\{\s*d(?:[^{}]|\{[^{}]*\})*\}\s*\{\s*d\s*[A-Za-z]\s*(?:\^\s*\{?\s*\d\s*\}?)?\s*\}"
_A_NAME = re.compile(rf"\s*(?:{_NAME}|{_DERIVATIVE}|\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\)|[A-Za-z]{{3,20}})\s*")


_MATRIX = re.compile(
    r"(?P<scale>[^&]*?)[(\[]?\s*\\begin\s*\{(?P<env>[bp]?matrix|smallmatrix|array)\}\s*(?:\{[^{}]*\})?"
    r"(?P<body>(?:(?!\\(?:begin|end)(?![A-Za-z])).)*)\\end\s*\{(?P=env)\}\s*[)\]]?\s*(?P<after>[A-Za-z]?)",
    re.DOTALL,
)
_SYSTEM = re.compile(
    r"(?:\\\{)?\s*\\begin\s*\{(?P<env>cases|aligned|gathered|align\*?|array)\}(?P<columns>\s*\{[^{}]*\})?(?P<body>.*)"
    r"\\end\s*\{(?P=env)\}",
    re.DOTALL,
)
_BELOW = ("<", r"\leq")
_ORDER = r"\s*(<|>|\\[lg]eq(?![A-Za-z]))\s*"
_INTERVAL = re.compile(rf"([^<>=]+?){_ORDER}[A-Za-z]{_ORDER}([^<>=]+)")
_HALF_LINE = re.compile(rf"[A-Za-z]{_ORDER}([^<>=]+)")
_TERM = re.compile(r"\s*(?=[+-])")
_ROW_BREAK, _CELL_BREAK = re.compile(r"\s*\\\\\s*"), re.compile(r"\s*&\s*")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z])\s*")

StructureKind = Literal["list", "set", "brackets", "union", "matrix"]
_SEPARATORS: tuple[tuple[StructureKind, re.Pattern[str]], ...] = (("list", _COMMA), ("union", _CUP))


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer of several parts; `ends` are the brackets of a tuple or an interval, or a matrix's shape: `2x3`."""

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
    text = unwrap(text)
    for kind, pattern in _SEPARATORS:
        pieces = split(text, pattern)
        if len(pieces) > 1 and all(pieces):
            return Parts(kind, _both_signs(pieces) if kind == "list" else tuple(pieces))
    if text.startswith("\\{") and text.endswith("\\}") and whole(text, 0):
        items = [item for item in split(text[2:-2].strip(), _COMMA) if item]
        return Parts("set", _both_signs(items))
    if r"\begin" in text:
        return _rows(text)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and whole(text, 0):
        items = split(text[1:-1], _COMMA)
        if len(items) > 1 and all(items):
            return Parts("brackets", tuple(items), text[0] + text[-1])
    if len(ratio := split(text, _COLON)) > 2 and all(ratio):
        return Parts("brackets", tuple(ratio), ":")
    values = _both_signs([text])
    return Parts("list", values) if len(values) > 1 else None


def interval_of(text: str) -> Parts | None:
    """Return `0 < x \\leq 1` as the interval that it is, `(0, 1]`, and `x > 0` as a half-line; None for other texts."""
    if half := _HALF_LINE.fullmatch(text):
        strict, value = half[1] in "<>", half[2].strip()
        if half[1] in _BELOW:
            return Parts("brackets", (r"-\infty", value), "()" if strict else "(]")
        return Parts("brackets", (value, r"\infty"), "()" if strict else "[)")
    match = _INTERVAL.fullmatch(text)
    if match is None or (match[2] in _BELOW) != (match[3] in _BELOW):
        return None
    low, high = (1, 4) if match[2] in _BELOW else (4, 1)
    strict = {1: match[2] in "<>", 4: match[3] in "<>"}
    ends = ("(" if strict[low] else "[") + (")" if strict[high] else "]")
    return Parts("brackets", (match[low].strip(), match[high].strip()), ends)


def _both_signs(items: Sequence[str]) -> tuple[str, ...]:
    r"""Write `1 \pm \sqrt{2}` as two values; more than one sign in an item could be read in several ways."""
    found: list[str] = []
    for item in items:
        signs = _PLUS_MINUS.findall(item)
        if len(signs) == 1:
            upper, lower = ("+", "-") if signs[0] == "pm" else ("-", "+")
            found += [_PLUS_MINUS.sub(sign, item) for sign in (upper, lower)]
        else:
            found.append(item)
    return tuple(found)


def _rows(text: str) -> Parts | None:
    """Return the entries of a matrix or of a sum of matrices of one shape, or the rows of a system."""
    terms = [_matrix(term) for term in split(text, _TERM) if term]
    if terms and (first := terms[0]) and all(term and term.ends == first.ends for term in terms):
        entries = zip(*(term.items for term in terms if term), strict=True)
        return Parts(
            "matrix",
            tuple(each[0] if len(each) == 1 else " + ".join(f"({x})" for x in each) for each in entries),
            first.ends,
        )
    if (match := _SYSTEM.fullmatch(text)) and (match["env"] != "array" or text.startswith("\\{")):
        conditional = match["env"] == "cases" and "&" in match["body"]
        rows = [row.replace("&", "," if conditional else "") for row in split(match["body"], _ROW_BREAK) if row]
        return Parts("list", tuple(rows)) if len(rows) > 1 else None
    return None


def _matrix(text: str) -> Parts | None:
    """Return the entries of one matrix, a factor beside it multiplied into each."""
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [split(row, _CELL_BREAK) for row in split(match["body"].replace(r"\hline", ""), _ROW_BREAK) if row]
    scale = re.sub(r"\\(?:cdot|times)\s*\Z", "", match["scale"].strip()).strip().removeprefix("+").strip()
    shape = {len(row) for row in rows}
    if len(shape) != 1 or r"\begin" in scale or re.search(r"[=<>,;|]|[_^]\Z", scale):
        return None
    entries = [entry for row in rows for entry in row]
    if scale:
        entries = [f"{scale}({entry})" if scale == "-" else rf"({scale}) \cdot ({entry})" for entry in entries]
    if match["after"]:
        entries = [rf"({entry}) \cdot {match['after']}" for entry in entries]
    return Parts("matrix", tuple(entries), f"{len(rows)}x{shape.pop()}")


def unwrap(text: str) -> str:
    """Take off round brackets around the whole of a single value."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and whole(text, 0) and len(split(text[1:-1], _COMMA)) == 1:
        text = text[1:-1].strip()
    return text


def sides(text: str) -> tuple[str, ...]:
    """Return the sides of an equation or a chain of them, without empty ones; one side where there is no relation."""
    return tuple(side for side in split(text, _RELATION) if side) or (text,)


def named_values(text: str) -> dict[str, str] | None:
    """Return the values by name of `(x, y) = (2, 3)` or `x = 2, y = 3`, in that order; None where it is neither."""
    both = sides(text)
    if len(both) == 2:
        names, values = parts(both[0]), parts(both[1])
        if names and values and names.kind == "brackets" and len(names.items) == len(values.items):
            found = dict(zip(names.items, values.items, strict=True))
            ordered = values.kind == "brackets" and all(is_name(name) for name in found)
            return found if ordered and len(found) == len(names.items) else None
    several = parts(text)
    if several is None or several.kind not in ("list", "brackets"):
        return None
    pairs = [sides(item) for item in several.items]
    if not all(len(pair) == 2 and is_name(pair[0]) for pair in pairs):
        return None
    found = {pair[0]: pair[1] for pair in pairs}
    return found if len(found) == len(pairs) else None


def is_name(text: str) -> bool:
    r"""Tell whether a left side only names what is on the right: `x`, `X_{d}`, `f(x)`, `dx/dt`, `(x, y)`.

    `MR` is no name but a product: in `MR = SRMC` both sides are the answer.
    """
    return _A_NAME.fullmatch(text) is not None

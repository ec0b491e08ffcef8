r"""Parse the structure of an answer: a list, a set, a tuple or interval, a union, a matrix, a ratio, values with names.

parts(r"(1, 2)")           # Parts("tuple", ("1", "2"), "()")
parts(r"1 \text{ or } 2")  # Parts("list", ("1", "2"))
named("x=1, y=2")          # [("x", "1"), ("y", "2")]
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_dir.grading.normalise import split, squeeze, whole

COMMA = (
    r"[,;]\s*(?:\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b)?"
    r"|\\text\s*\{[ ,]*(?i:and|or)[ ,]*\}|(?<![A-Za-z\\])(?:and|or|AND|OR)(?![A-Za-z])|\\&"
)
EQUALS = r"(?<![<>!:=]):?=+(?!=)|\\equiv(?![A-Za-z])"
ORDER = r"<|>|\\[lg]e(?![A-Za-z])"
_END = r"(?![A-Za-z])"
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\s*\{([pb]?(?:small)?matrix|array)\}\s*(?:\{[^{}]*\})?((?:(?!\\begin).)*?)\\end\s*\{\1\}\s*[)\]]?",
    re.DOTALL,
)
_SYSTEM = re.compile(
    r"(?:\\\{)?\s*\\begin\s*\{(cases|aligned|gathered|align\*?|array)\}(?:\s*\{[^{}]*\})?(.*)\\end\s*\{\1\}", re.DOTALL
)
_NAME = re.compile(
    r"m?\s*(?:\\(?:cos|sin|tan))?\s*\\(?:angle|triangle|det|max|min|lim|gcd|overline|log|lfloor)"
    + _END
    + r".*|[|#].*|\\\|.*\\\||\\text\s*\{.*|\[.*\]"
    r"|(?:\\[A-Za-z]+|[A-Za-z])(?:\s*[A-Za-z](?![A-Za-z]*\())*(?:'*|_\s*\{?[^=+]*?\}?)(?:\([^()]*\)|\[[^=]*\])?"
    r"|\\mathbb\s*\{?[A-Z]\}?\s*[(\[].*"
    r"|\\(?:dot|ddot|hat|bar|tilde)\s*\{?\s*\\?[A-Za-z]+\s*\}?(?:_\s*(?:\w|\{[^{}]*\}))?"
    r"|\\frac\s*\{\s*d(?:[^{}]|\{[^{}]*\})*\}\s*\{\s*d\s*[A-Za-z]\s*(?:\^\s*\{?\s*\d\s*\}?)?\s*\}"
)
_BASIS = re.compile(r"(-?)\s*((?:(?!\\hat).)*?)\s*\\hat\{([ijk])\}\s*((?:(?!\\hat).)*)")
_REAL = r"\s*\\in\s*\\mathbb\s*\{?R\}?\s*"
_BUILDER = re.compile(
    rf"\\\{{\s*([A-Za-z])(?:{_REAL}|\s*)[|:]\s*(?:\1{_REAL}(?:,|\\text\s*\{{ *and *\}})\s*)?(.+)\\\}}"
)
_EXCLUDING = re.compile(r"(?=.*?(?<![\\A-Za-z])([A-Za-z](?:\([a-z]\))?)\s*\\(?:ne|notin)(?![A-Za-z]))(.*)")
_VARIABLE = re.compile(r"(?:\\[A-Za-z]+|[A-Za-z])\s*(?:_\s*(?:\w|\{[^{}]*\}))?'*(?:\s*\([a-z]\))?")


@dataclass(frozen=True, slots=True)
class Parts:
    """Hold an answer of several parts; `ends` are the brackets of a tuple or an interval, or a matrix's shape:
    `2x3`."""

    kind: Literal["list", "set", "tuple", "union", "matrix", "ratio"]
    items: tuple[str, ...]
    ends: str = ""


def parts(text: str) -> Parts | None:
    """Return the parts of a normalised answer; None for a single value, in round brackets or not."""
    bare = [item for item in split(text, COMMA) if item]
    if len(bare) > 1:
        return Parts("list", _both_signs(bare))
    if (union := split(text, r"\\cup" + _END))[1:] and all(union):
        return Parts("union", tuple(union))
    if text.startswith(r"\{") and text.endswith(r"\}") and whole(text, 0) and "|" not in text:
        return Parts("set", _both_signs([item for item in split(text[2:-2], COMMA) if item]))
    if r"\begin" in text:
        return _rows(text)
    if (both := _both_signs([text]))[1:]:
        return Parts("list", both)
    if re.match(r"[+-]\(", text) and whole(text, 1) and (opposite := parts(text[1:])):
        return Parts("tuple", tuple(f"{text[0]}({item})" for item in opposite.items), "()")
    if r"\hat" in text and "=" not in text:
        return _components(text)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and whole(text, 0):
        items = split(text[1:-1], "[,;]")
        return Parts("tuple", tuple(items), text[0] + text[-1]) if items[1:] and all(items) else None
    if "=" not in text and not re.search(r":\s*0\d", text) and len(ratio := split(text, ":")) > 1 and all(ratio):
        return Parts("ratio", tuple(ratio))
    return None


def _components(text: str) -> Parts | None:
    r"""Return the coefficients in a sum of basis vectors, `3\hat{i}+4\hat{j}`; None for any other formula."""
    terms = [_BASIS.fullmatch(term) for term in split(text, r"\+|(?=-)") if term]
    coefficients = {term[3]: f"{term[1]}{term[2] or 1}{term[4]}" for term in terms if term}
    if len(terms) < 2 or len(coefficients) < len(terms):
        return None
    return Parts("tuple", tuple(coefficients.get(name, "0") for name in ("ijk" if "k" in coefficients else "ij")), "()")


def _both_signs(items: Sequence[str]) -> tuple[str, ...]:
    r"""Write `1 \pm \sqrt{2}` as two values; more than one sign in an item could be read in several ways."""
    values: list[str] = []
    for item in items:
        signs = re.findall(r"\\(pm|mp)" + _END, item)
        order = ("+", "-") if signs == ["pm"] else ("-", "+")
        values += [re.sub(r"\\(?:pm|mp)" + _END + r"\s*", sign, item) for sign in order] if len(signs) == 1 else [item]
    return tuple(values)


def _rows(text: str) -> Parts | None:
    """Return the entries of a matrix, or the rows of a system; sums of matrices are left to math-verify."""
    if matrix := _MATRIX.fullmatch(text):
        rows = [split(row, "&") for row in split(matrix[2].replace(r"\hline", ""), r"\\\\") if row]
        shape = "x".join(map(str, (len(rows), *{len(row) for row in rows})))
        return Parts("matrix", tuple(entry for row in rows for entry in row), shape)
    if system := _SYSTEM.fullmatch(text):
        between = "," if system[1] == "cases" else ""
        return Parts("list", tuple(row.replace("&", between) for row in split(system[2], r"\\\\") if row))
    return None


def described(text: str) -> str:
    r"""Write a set of real numbers that conditions describe as intervals: `\{x : 0<x<4\}`, or `-2<x<2, x \ne 0`.

    A text that is no such set is returned as it is, and so is a bare inequality.
    """
    conditions = _BUILDER.fullmatch(text) or _EXCLUDING.fullmatch(text)
    if conditions is None:
        return text
    letter, condition = conditions.groups()
    sets = []
    for alternative in split(condition, r"\\text\s*\{[ ,]*or[ ,]*\}"):
        inside, outside = [], []
        for item in split(alternative, COMMA):
            subject, *right = split(item, r"\\(?:ne|notin)" + _END)
            if subject == letter and len(right) == 1:
                outside += _both_signs([re.sub(r"^\\\{(.*)\\\}$", r"\1", right[0])])
            elif outside and not re.search(rf"{ORDER}|=|\\|{re.escape(letter)}", item):  # x \ne 1, 2
                outside.append(item)
            elif members := _members(item, letter):
                inside.append(members)
            else:
                return text
        without = r"\setminus\{" + ",".join(outside) + r"\}" if outside else ""
        sets.append((r"\cap ".join(inside) or r"\mathbb{R}") + without)
    return r"\cup ".join(sets)


def _members(item: str, letter: str) -> str | None:
    """Return the interval of `0<x<4` or `x>0`, the set of `x=5`; None for any other condition on the letter."""
    subject, *right = split(item, EQUALS)
    if subject == letter and len(right) == 1:
        return rf"\{{{right[0]}\}}"
    subject, *right = split(item, r"\\in" + _END)
    if subject == letter and len(right) == 1:
        return right[0]
    chain = forwards(item)
    sides, links = split(chain, ORDER), re.findall(ORDER, chain)
    if not set(links) <= {"<", r"\le"} or sides.count(letter) != 1 or len(sides) not in (2, 3):
        return None
    at = sides.index(letter)
    low, high = sides[:at] or [r"-\infty"], sides[at + 1 :] or [r"\infty"]
    if (
        len(low) > 1
        or len(high) > 1
        or re.search(rf"(?<![\\A-Za-z]){re.escape(letter)}(?![A-Za-z])", f"{low[0]} {high[0]}")
    ):
        return None
    opened = "[" if at and links[0] == r"\le" else "("
    closed = "]" if at + 1 < len(sides) and links[-1] == r"\le" else ")"
    return f"{opened}{low[0]},{high[0]}{closed}"


def forwards(text: str) -> str:
    """Write a chain of > as one of <."""
    links = re.findall(ORDER, text)
    if links and all(link in (">", r"\ge") for link in links) and not split(text, COMMA)[1:]:
        pieces = split(text, ORDER)[::-1]
        signs = ["<" if link == ">" else r"\le " for link in links[::-1]]
        return "".join(piece + sign for piece, sign in zip(pieces, [*signs, ""], strict=False))
    return text


def unwrap(text: str) -> str:
    """Take off round brackets around the whole of a single value."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and whole(text, 0) and len(split(text[1:-1], COMMA)) == 1:
        text = text[1:-1].strip()
    return text


def is_name(side: str) -> bool:
    r"""Return whether a left side only names what is on the right: `x`, `f(x)`, `|AB|`, `\angle ABC`; no sum, no
    `2x`."""
    if side.startswith("(") and all(map(_VARIABLE.fullmatch, split(side[1:-1], ","))):
        return True
    derivative = side.startswith(r"\frac")
    if not derivative and (split(side, r"[+*]|(?<=\S)-|\^")[1:] or re.match(r"\d", side)):
        return False
    bare = re.sub(r"\\(?:frac|overline)|[{}]|\\(?:cdot|bmod|text)|\d|\s|:", " ", side)
    return bool(_NAME.fullmatch(side) or re.fullmatch(r" *[A-Za-z][A-Za-z ]*|\s*\\[A-Za-z]+\s*", bare))


def named(text: str) -> list[tuple[str, str]] | None:
    """Return names and values of `x=1, y=2`, `(x,y)=(1,2)` or `x=1, y=2; x=3, y=4`; None where there are none."""
    subject, *right = split(text, EQUALS)
    names = parts(subject) if len(right) == 1 else None
    if names and names.kind == "tuple" and all(map(_VARIABLE.fullmatch, names.items)) and (values := parts(right[0])):
        same = values.kind == "tuple" and len(values.items) == len(names.items)
        rows = [values] if same else [parts(item) for item in values.items]
        if all(row and len(row.items) == len(names.items) for row in rows):
            return [pair for row in rows if row for pair in zip(names.items, row.items, strict=True)]
    several = parts(text)
    if several is None or several.kind not in ("list", "tuple", "set"):
        return None
    pairs = [tuple(split(item, EQUALS)) for item in several.items]
    if not all(len(pair) == 2 and all(pair) for pair in pairs) or not all(is_name(pair[0]) for pair in pairs[:-1]):
        return None
    return [(pair[0], pair[1]) for pair in pairs]


def without_names(pairs: Sequence[tuple[str, str]]) -> Parts:
    """Return the values only: as a tuple if their names differ, or as a list if they are of one unknown (`x_1`,
    `x_2`)."""
    names = list(dict.fromkeys(squeeze(name) for name, _ in pairs))
    values = [value for _, value in pairs]
    if len({re.sub(r"(?<=\w)_?\{?\d+\}?$", "", name) for name in names}) == 1:
        return Parts("list", tuple(values))
    if len(names) < len(pairs):
        size = len(names)
        rows = ["(" + ",".join(values[i : i + size]) + ")" for i in range(0, len(values), size)]
        return Parts("list", tuple(rows))
    if all(len(name) == 1 for name in names):
        values = [value for _, value in sorted(pairs, key=lambda pair: squeeze(pair[0]).lower())]
    return Parts("tuple", tuple(values), "()")

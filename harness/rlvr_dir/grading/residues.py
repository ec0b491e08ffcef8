r"""Compute remainders of whole numbers of any size: `2003^{2002^{2001}} \bmod 1000`.

    reduced(r"3^{2^{100}} \bmod 10 = 1")               # "1=1"
    reduced(r"N \equiv 1204 \equiv 204 \pmod{1000}")   # "204"

No large number is computed. A large exponent is reduced by Euler's theorem: for every e ≥ φ(m), a^e ≡ a^(e mod φ(m) +
φ(m)) (mod m).
"""

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from math import factorial
from operator import add, mul, sub

MODULUS = re.compile(
    r"\s*(?:\\text\s*\{\s*)?\(?\s*(\\(?:pmod|bmod|mod)|\\text\s*\{\s*mod\s*\}|mod(?:ulo)?(?![a-z]))\s*\{?\s*(\d{1,9})[\s{})]*$"
)
MOST = 10**9  # a modulus
_SIDES = re.compile(r"\s*(?:=|\\equiv(?![A-Za-z]))\s*")
_COEFFICIENT = re.compile(r"\d\s*[A-Za-z]")  # 2x \equiv 4 does not state x
# Whole numbers in TeX as Python writes them; they are parsed and never run.
_PYTHON = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        (r"(?<=\d),(?=\d{3}(?!\d))", ""),
        (r"\\frac\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\s*\{\s*(\d+)\s*\}", r"((\1)/\2)"),
        (r"(?<!\d)(\d{1,3})!", lambda match: f"({factorial(int(match[1]))})"),
        (r"\\(?:cdot|times)(?![A-Za-z])|(?<=[\d)}])\s*(?=\()", "*"),
        (r"\{", "("),
        (r"\}", ")"),
        (r"\^", "**"),
        (r"\b0+(?=\d)", ""),
    )
)
_ARITHMETIC = re.compile(r"[-+*/()\d\s]+")
_OPERATORS: dict[type, Callable[[int, int], int]] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}


def reduced(text: str) -> str:
    r"""Replace `a \bmod m` by its remainder, and a congruence by its last side.

    If the sides of a congruence contradict each other, their remainders are left as a chain that does not hold, `2=7`.

    A text without a modulus, or with one that applies to letters, is returned as it is.
    """
    sides = _SIDES.split(text) if "mod" in text else []
    last = MODULUS.search(sides[-1]) if sides else None
    if last and len(sides) > 1 and ("\\equiv" in text or last[1] not in (r"\bmod", r"\mod")):
        sides[-1] = sides[-1][: last.start()]
        residues = [value for side in sides if (value := residue(side, int(last[2]))) is not None]
        if len(set(residues)) > 1:
            return "=".join(map(str, residues))  # a chain that does not hold
        if any(map(_COEFFICIENT.search, sides[:-1])):
            return text
        proven = residues[1:] and sides[-1].strip() != f"{residues[-1]}"  # 10 \equiv 7 \pmod 3 holds, and states 7
        return sides[-1] if proven else sides[-1] + last[0]
    for at, side in enumerate(sides):
        match = MODULUS.search(side)
        if match and (at + 1 < len(sides) or match[1] in (r"\bmod", r"\mod")):
            value = residue(side[: match.start()], int(match[2]))
            if value is not None:
                text = text.replace(side, f"{value}" + match[0] * (at + 1 == len(sides)), 1)
    return text


def residue(text: str, modulus: int) -> int | None:
    """Return the remainder of a whole number written with digits, `+ - ! ^`, products and fractions; else None."""
    for pattern, to in _PYTHON:
        text = pattern.sub(to, text)
    if not modulus or not _ARITHMETIC.fullmatch(text):
        return None
    try:
        return _residue(ast.parse(text.strip(), mode="eval").body, modulus)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _residue(node: ast.expr, modulus: int) -> int:
    """Return the remainder of an expression.

    Raises:
        ValueError: It is not a whole number, or its exponents cannot be bounded.
    """
    match node:
        case ast.Constant(value=int(value)):
            return value % modulus
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_residue(operand, modulus) % modulus
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return pow(_residue(base, modulus), _capped(exponent, _totient(modulus)), modulus)
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int(below))) if 0 < below * modulus <= MOST:
            value, rest = divmod(_residue(left, below * modulus), below)
            if rest == 0:
                return value % modulus
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_residue(left, modulus), _residue(right, modulus)) % modulus
    raise ValueError


def _capped(node: ast.expr, modulus: int) -> int:
    """Return a natural number itself if it is below `modulus`, otherwise a congruent one that is not below it.

    Raises:
        ValueError: It is not a natural number, or cannot be bounded.
    """

    def cap(value: int) -> int:
        return value if value < modulus else value % modulus + modulus

    match node:
        case ast.Constant(value=int(value)):
            return cap(value)
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            result, power, exponent_left = 1, _capped(base, modulus), _capped(exponent, _totient(modulus))
            while exponent_left:
                result = cap(result * power) if exponent_left % 2 else result
                power, exponent_left = cap(power * power), exponent_left // 2
            return result
        case ast.BinOp(left=exponent_left, op=operator, right=right) if type(operator) in _OPERATORS:
            values = _capped(exponent_left, modulus), _capped(right, modulus)
            result = _OPERATORS[type(operator)](*values)
            if not isinstance(operator, ast.Sub) or (result >= 0 and max(values) < modulus):
                return cap(result)
    raise ValueError


@lru_cache(maxsize=1024)
def _totient(modulus: int) -> int:
    """Return Euler's φ."""
    result, factor = modulus, 2
    while factor * factor <= modulus:
        if modulus % factor == 0:
            result -= result // factor
            while modulus % factor == 0:
                modulus //= factor
        factor += 1
    return result - result // modulus if modulus > 1 else result

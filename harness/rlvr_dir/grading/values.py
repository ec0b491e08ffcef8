r"""Compare the values of two sympy expressions at fixed points, to check math-verify's decision.

math-verify rounds to six decimals, so 2.88e-19 "equals" 1.0e-27 and 2^{64} - 1 is 2^{64}, and it does not see that
(exp(at) - exp(-at))/2a is sinh(at)/a. Two different formulas differ at almost every point, so a few fixed points
decide. They are below -1, between -1 and 1 and above 1, some are integers, and any two letters occur in both orders.

Points are rational, so sympy keeps rational values exact (2^{64}, 100!). For other values it computes as many digits as
the difference of two values needs, up to `MOST_DIGITS` for numbers and `POINT_DIGITS` for formulas.

This module loads sympy, so import it only in a worker.
"""

import re
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any
from zlib import crc32

from sympy import (
    Add,
    Derivative,
    Dummy,
    E,
    Eq,
    Expr,
    Float,
    I,
    Integral,
    Limit,
    Piecewise,
    Pow,
    Rational,
    binomial,
    diff,
    factorial,
    fraction,
    gamma,
    log,
    nan,
    oo,
    pi,
    preorder_traversal,
    together,
    zoo,
)
from sympy.core.evalf import PrecisionExhausted
from sympy.core.function import AppliedUndef

SAME_DECIMAL = 1e-9  # relative difference if a decimal point is involved, as for numbers
ROUNDED = 5e-6  # six significant digits: how far a decimal may be from its irrational number
MOST_DIGITS = 1000  # two numbers that agree in this many digits are the same
CHAIN_DIGITS = 40  # of an irrational side of a chain
POINT_DIGITS = 100  # and two values of formulas at one of the points, or two gammas: a thousand take half a second
# The size of a letter at each point: above 1 in the order of the alphabet or in the other, below 1, up to 4, integers.
# Four points are positive, two negative, seven of mixed signs.
_SIZES = re.findall(r"\S+", "up down low high low integer high high low low high integer integer")
POINTS, POSITIVE, NEGATIVE, FIRST_MIXED = len(_SIZES), (0, 1, 2, 5), (3, 4), 6
FAR = 2  # more points where there is an absolute value: one far above 0, one far below
ENOUGH = 2  # points where both sides have a value

_ABSOLUTE = ("Abs", "Max", "Min", "floor", "ceiling", "sign")  # functions whose comparison needs negative values
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# The letters that are negative at a point. No set contains another, so of any two letters each is negative alone
# somewhere.
_SIGNS = tuple(combinations(range(7), 3))
_COMPLEX_NAMES = {"z", "w"}


def same_values(gold: Any, answer: Any) -> bool | None:
    """Return whether two formulas agree at every point: False if they do not, None if this cannot decide.

    None leaves the decision to math-verify, for anything that is not a formula (sets, inequalities, integrals), and for
    values that differ by rounding, which it accepts at six decimals (3.141593 for pi) and not below.
    """
    try:
        if isinstance(gold, Expr) and isinstance(answer, Expr):
            return _compare(gold, answer)
        equations: Any = (gold, answer)
        if not all(isinstance(form, Eq) and all(isinstance(side, Expr) for side in form.args) for form in equations):
            return None
        first, second = (form.lhs - form.rhs for form in equations)
        numerators = fraction(together(first))[0], fraction(together(second))[0]  # y = 1/x is xy = 1
        same = _multiple(first, second)
        return same if same or numerators == (first, second) else _multiple(*numerators)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # sympy and mpmath raise many types if they cannot compute a value
        return None


def exact_value(form: Any) -> Fraction | None:
    """Return the number that a formula without letters is, to `CHAIN_DIGITS` if it is irrational; None for others."""
    try:
        if not isinstance(form, Expr) or _atoms(form).keys() - {"i"}:
            return None
        value: Any = form.subs(dict.fromkeys(_atoms(form).values(), I)).doit()
        if value.is_Rational:
            return Fraction(int(value.p), int(value.q))
        value = value.evalf(CHAIN_DIGITS, chop=True)
        return Fraction(str(value)) if value.is_Float else None
    except (MemoryError, RecursionError):
        raise
    except Exception:  # as in same_values
        return None


def has_slope(form: Any) -> bool:
    """Return whether a formula is a letter, or a function's value, times a number other than 1, and possibly plus a
    constant.

    A factor of pi makes it a named formula: 2 pi r is a circumference.
    """
    letters = [*_atoms(form).values()] if isinstance(form, Expr) else []
    if len(letters) != 1:
        return False
    letter = Dummy(real=True)
    try:
        slope: Any = diff(form.doit().subs(letters[0], letter), letter)
        return bool(slope.is_number and slope not in (0, 1) and not slope.has(pi))
    except (MemoryError, RecursionError):
        raise
    except Exception:  # as in same_values
        return False


def near(gold: Any, answer: Any, tolerance: float) -> bool:
    """Return whether two numbers differ by no more than `tolerance`, relatively, as on both sides of an `\\approx`."""
    try:
        return bool(abs(gold - answer).evalf() <= tolerance * abs(gold).evalf())
    except Exception:
        return False


def _compare(gold: Any, answer: Any) -> bool | None:
    decimal, forms = gold.has(Float) or answer.has(Float), (gold, answer)
    absolute = any(_has_absolute(form) for form in forms)
    points = POINTS + FAR * absolute if _names(gold) | _names(answer) else 1
    imaginary = any(form.has(I) or "i" in {symbol.name for symbol in form.free_symbols} for form in forms)
    kinds: list[str] = []
    for real in (False,) if imaginary else (True, False):  # where there are no real values, as complex numbers
        kinds = []
        for point in range(points):
            kind = _at(gold, answer, point, absolute, real, decimal)
            if kind == "different":
                return False
            kinds += [kind] if kind else []
        if len(kinds) >= min(ENOUGH, points):
            break
    if points > 1 and _names(gold) | _names(answer) <= _COMPLEX_NAMES and not any(map(_roots, forms)):
        a, b = (form.subs({atom: I * atom for atom in _atoms(form).values()}) for form in forms)  # z may be 3i
        if _at(a, b, 2, False, False, decimal) == "different":
            return False
    return True if kinds and "close" not in kinds else None


def _at(gold: Any, answer: Any, point: int, absolute: bool, real: bool, decimal: bool) -> str | None:
    """Compare at one point: `same`, `close` (like a decimal), `different`; None if there is nothing to compare."""
    a, b = (_value(form, point, absolute, real) for form in (gold, answer))
    if isinstance(a, str) or isinstance(b, str):
        return "different" if absolute and {a, b} & {"undefined"} and "pole" not in (a, b) and a != b else None
    if not decimal:
        return "same" if _zero(a - b, POINT_DIGITS if _names(gold) | _names(answer) else MOST_DIGITS) else "different"
    size = float(abs(a.evalf())) + float(abs(b.evalf()))
    gap = float(abs((a - b).evalf())) / size if size else 0.0
    return "same" if gap <= SAME_DECIMAL else "close" if gap <= ROUNDED else "different"


def _zero(value: Any, digits: int = POINT_DIGITS) -> bool:
    """Return whether a number is 0, or so close to it that its first digit is not among `digits`."""
    if value.is_Rational:
        return value == 0
    digits = POINT_DIGITS if value.has(binomial, factorial, gamma) else digits
    try:
        return value.evalf(3, maxn=digits, strict=True) == 0
    except PrecisionExhausted:  # of -24 as well, where that is \lfloor -12 \rfloor - \lfloor 12 \rfloor
        size = max(1, sum(abs(part.evalf(3)) for part in Add.make_args(value)))
        return bool(abs(value.evalf(3, maxn=digits)) <= size * Rational(1, 10 ** (digits // 2)))


def _multiple(gold: Any, answer: Any) -> bool | None:
    """Return whether one is the other times a non-zero constant, because their ratio is the same everywhere."""
    if not _names(gold) | _names(answer):
        return None
    decimal, absolute = gold.has(Float) or answer.has(Float), _has_absolute(gold) or _has_absolute(answer)
    real, first, points = not (gold.has(I) or answer.has(I)), None, 0
    for point in range(POINTS):
        a, b = (_value(form, point, absolute, real) for form in (gold, answer))
        if isinstance(a, str) or isinstance(b, str) or (_zero(a) and _zero(b)):
            continue
        points, first = points + 1, first or (a, b)
        if _zero(a) or _zero(b):
            return False
        product, other = a * first[1], first[0] * b
        if not (near(product, other, SAME_DECIMAL) if decimal else _zero(product - other)):
            return False
    return True if points >= ENOUGH else None


def _atoms(form: Any) -> dict[str, Any]:
    """Return the letters of a formula, and unknown functions of them, by name."""
    return {str(atom): atom for atom in (*form.atoms(AppliedUndef), *form.free_symbols)}


def _names(form: Any) -> set[str]:
    return _atoms(form).keys() - {"e"}


@lru_cache(maxsize=512)
def _has_absolute(form: Any) -> bool:
    return any(type(node).__name__ in _ABSOLUTE for node in preorder_traversal(form))


@lru_cache(maxsize=4096)
def _value(form: Any, point: int, absolute: bool, real: bool) -> Any:
    """Return the value at a point, or what there is instead. Only letters that are unknowns may be negative there.

    Raises:
        ValueError: It has no value that can be computed (an integral, a set).
    """
    if form.has(Derivative, Integral, Limit, Piecewise, oo):
        raise ValueError
    at = {}
    for name, atom in _atoms(form).items():
        size = _coordinate(name, point, signed=absolute or (len(name) == 1 and name in _LETTERS))
        at[atom] = E if name == "e" else I if name == "i" and not real else Rational(size.numerator, size.denominator)
    try:
        if any(_put(part, at, real).is_negative for coefficient in form.atoms(binomial) for part in coefficient.args):
            return "pole"  # conventions differ there
        value = _put(form, at, real)
        if value.evalf().has(zoo, nan, oo):
            return "pole"
        radicands = (_put(root.args[0], at, real).evalf() for root in _roots(form) if not _odd(root)) if real else ()
        return "undefined" if any(radicand.is_negative for radicand in radicands) else value
    except (TypeError, ValueError):  # the larger of two complex numbers
        return "pole"


def _put(form: Any, at: dict[Any, Any], real: bool) -> Any:
    """Insert values for letters. Odd roots of negative numbers are the real ones; sympy's are complex."""
    if form in at or not form.args:
        return at.get(form, form)
    args = [_put(argument, at, real) for argument in form.args]
    if real and _odd(form) and args[0].evalf().is_negative:
        return (-1) ** form.exp.p * (-args[0]) ** form.exp
    return form.func(*args)


def _odd(power: Any) -> bool:
    """Return whether this is an odd root, or a power of one, which is real at negative values too."""
    return bool(power.is_Pow and power.exp.is_Rational and not power.exp.is_Integer and power.exp.q % 2)


def _roots(form: Any) -> list[Any]:
    """Return the roots and logarithms in a formula, which negative values do not have, or not for certain."""
    return [root for root in form.atoms(Pow, log) if isinstance(root, log) or not root.exp.is_Integer]


def _coordinate(name: str, point: int, signed: bool) -> Fraction:
    """Return a letter's value at a point, independent of the other letters."""
    seed = crc32(f"{name}|{point}".encode())
    unknown = len(name) == 1 and name in _LETTERS  # x, n; R, m_0 and λ are quantities, and positive
    rank = _LETTERS.index(name) if unknown else crc32(name.encode()) % len(_SIGNS)
    fine = Fraction(seed % 1009 + 1, 1013)
    if point >= POINTS:
        return (1000 + fine * (rank + 1)) * (1 if point == POINTS else -1)
    size = {
        "up": 1 + fine / 7 + Fraction(rank, 7),
        "down": 8 + fine / 7 - Fraction(rank, 7),
        "low": fine,
        "high": 1 + 3 * fine,
        "integer": Fraction(2 + (7 * rank + seed % 3) % 13),
    }[_SIZES[point]]
    negative = point in NEGATIVE or (point not in POSITIVE and point - FIRST_MIXED in _SIGNS[rank])
    return -size if signed and negative else size

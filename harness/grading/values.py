r"""Whether two sympy expressions have the same values, at fixed points, exactly: what math-verify's word is checked by.

math-verify rounds to six decimals, so 2.88e-19 "equals" 1.0e-27 and 2^{64} - 1 is 2^{64}, and it does not see that
(exp(at) - exp(-at))/2a is sinh(at)/a. Two formulas that differ, differ at almost every point: a few fixed points
decide. They lie below -1, between -1 and 1 and above 1, some are integers, and any two letters stand in both orders.

A value is a Fraction as long as it is rational (2^{64}, 100!), else a number of so many digits that it could not come
as close to another without being equal: the more digits, the larger and the smaller the numbers in the formula.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any
from zlib import crc32

SAME_DECIMAL = 1e-9  # relative, where a decimal point is involved, as for numbers
ROUNDED = 5e-6  # six significant digits: how far a decimal may be from the irrational number it stands for
DIGITS = 50  # of a first look; then as many as the sizes in the formula ask for
MAX_DIGITS = 20_000
SPARE = 20  # of the digits, how many rounding may have spoiled
MAX_BITS = 500_000  # of a Fraction
MAX_TERMS = 2_000  # of a sum or a product
POINTS = 13  # four positive, two negative, seven of mixed signs; the last two and one positive one are integers
FIRST_MIXED = 6
ENOUGH = 2  # points where both sides have a value

_ABSOLUTE = ("Abs", "Max", "Min", "floor", "ceiling", "sign")  # what negative values are needed to tell apart
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Where a letter is negative: none of these sets is a part of another, so of any two each is negative alone somewhere.
_SIGNS = tuple(combinations(range(7), 3))
_COMPLEX_NAMES = {"z", "w"}


class _Undefined(Exception):
    """Says that there is no real value: a root or a logarithm of something negative."""


class _Pole(_Undefined):
    """Says that there is no value at all: a division by zero."""


class _Unknown(Exception):
    """Something that has no value as far as this module knows: a set, an integral, a number beyond MAX_BITS."""


def _mp() -> Any:
    """Return mpmath's context, whose functions no type checker can see."""
    from mpmath import mp

    return mp


def same_values(gold: Any, answer: Any) -> bool | None:
    """Tell whether two formulas agree at every point: False where they do not, None where this cannot tell.

    None leaves the word to math-verify: for what is no formula (sets, inequalities, integrals), and for values
    that differ by a rounding, which it accepts at six decimals (3.141593 for pi) and not below.
    """
    from sympy import Eq, Expr

    try:
        if isinstance(gold, Eq) and isinstance(answer, Eq):
            return _same_equations(gold, answer)
        return _compare(gold, answer) if isinstance(gold, Expr) and isinstance(answer, Expr) else None
    except (MemoryError, RecursionError):
        raise
    except Exception:  # sympy and mpmath raise whatever they like where they cannot compute a value
        return None


def _same_equations(gold: Any, answer: Any) -> bool | None:
    """Tell whether what is left of one, all on one side, is a multiple of what is left of the other."""
    from sympy import Expr, fraction, together

    if not all(isinstance(side, Expr) for side in (*gold.args, *answer.args)):
        return None
    first, second = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if found := _multiple(first, second):
        return found
    above = fraction(together(first))[0], fraction(together(second))[0]  # y = 1/x is xy = 1
    return _multiple(*above) if above != (first, second) else found


def near(gold: Any, answer: Any, tolerance: float) -> bool:
    """Tell whether two numbers differ by no more than `tolerance`, relatively: what stands around an `\\approx`."""
    try:
        a, b = (_Evaluation({}, real=False, digits=DIGITS).of(form) for form in (gold, answer))
        return abs(_number(a) - _number(b)) <= tolerance * abs(_number(a))
    except Exception:
        return False


def _compare(gold: Any, answer: Any) -> bool | None:
    decimal = _has_point(gold, answer)
    names = _names(gold) | _names(answer)
    absolute = _has_absolute(gold) or _has_absolute(answer)
    imaginary = _has_i(gold) or _has_i(answer)
    close, seen = True, 0
    for point in range(POINTS if names else 1):
        kind = _at(gold, answer, point, absolute, not imaginary, decimal)
        if kind is None:
            continue
        if kind == "different":
            return False
        seen += 1
        close = close and kind == "same"
    if seen < min(ENOUGH, POINTS if names else 1):  # no real values: as complex numbers
        close, seen = True, 0
        for point in range(POINTS if names else 1):
            kind = _at(gold, answer, point, absolute, False, decimal)
            if kind == "different":
                return False
            if kind is not None:
                seen += 1
                close = close and kind == "same"
        if not seen:
            return None
    if names and names <= _COMPLEX_NAMES and _entire(gold) and _entire(answer):
        for point in range(3):
            if _at(gold, answer, point, absolute, False, decimal, turned=True) == "different":
                return False
    return True if close else None


def _has_point(gold: Any, answer: Any) -> bool:
    from sympy import Float

    return gold.has(Float) or answer.has(Float)


def _at(
    gold: Any, answer: Any, point: int, absolute: bool, real: bool, decimal: bool, turned: bool = False
) -> str | None:
    """Compare at one point: `same`, `close` (as a decimal is), `different`; None where there is nothing to compare."""
    first, second = (_value(form, point, absolute, real, DIGITS, turned) for form in (gold, answer))
    if isinstance(first, str) or isinstance(second, str):
        outside = {kind for kind in (first, second) if isinstance(kind, str)}
        domains_differ = absolute and "pole" not in outside and not (isinstance(first, str) and isinstance(second, str))
        return "different" if domains_differ else None
    (a, need_a, size_a), (b, need_b, size_b) = first, second
    if decimal:
        return _as_decimals(a, b)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return "same" if a == b else "different"
    if not _agree(a, b, max(size_a, size_b), DIGITS):
        return "different"
    need = max(need_a, need_b)
    if need > MAX_DIGITS:
        raise _Unknown
    digits = DIGITS + SPARE
    while digits < DIGITS + need:
        digits *= 2
    first, second = (_value(form, point, absolute, real, digits, turned) for form in (gold, answer))
    if isinstance(first, str) or isinstance(second, str):
        return None
    return "same" if _agree(first[0], second[0], max(size_a, size_b), digits) else "different"


def _as_decimals(a: Any, b: Any) -> str:
    a, b = _number(a), _number(b)
    size = abs(a) + abs(b)
    gap = abs(a - b) / size if size else 0
    return "same" if gap <= SAME_DECIMAL else "close" if gap <= ROUNDED else "different"


def _agree(a: Any, b: Any, size: Any, digits: int) -> bool:
    mp = _mp()

    with mp.workdps(digits + 5):
        return abs(_number(a) - _number(b)) <= size * mp.mpf(10) ** (SPARE - digits)


def _multiple(gold: Any, answer: Any) -> bool | None:
    """Tell whether one is the other times a constant that is not zero."""
    decimal = _has_point(gold, answer)
    names = _names(gold) | _names(answer)
    if not names:
        return None
    absolute = _has_absolute(gold) or _has_absolute(answer)
    real = not (_has_i(gold) or _has_i(answer))
    first, seen = None, 0
    for point in range(POINTS):
        values = [_value(form, point, absolute, real, 2 * DIGITS) for form in (gold, answer)]
        if isinstance(values[0], str) or isinstance(values[1], str):
            continue
        a, b = values[0][0], values[1][0]
        small = [_agree(each[0], 0, each[2], 2 * DIGITS) for each in values]
        if any(small):
            if not all(small):
                return False
            continue
        seen += 1
        if first is None:
            first = (a, b)
            continue
        cross = (_product(a, first[1]), _product(first[0], b))  # a / b is what it was at the first point
        if decimal:
            if _as_decimals(*cross) != "same":
                return False
        elif isinstance(cross[0], Fraction) and isinstance(cross[1], Fraction):
            if cross[0] != cross[1]:
                return False
        elif not _agree(*cross, max(abs(_number(x)) for x in cross), 2 * DIGITS):
            return False
    return True if seen >= ENOUGH else None


def _product(a: Any, b: Any) -> Any:
    return a * b if isinstance(a, Fraction) and isinstance(b, Fraction) else _number(a) * _number(b)


@lru_cache(maxsize=512)
def _names(form: Any) -> frozenset[str]:
    from sympy.core.function import AppliedUndef

    bound = {symbol for each in form.atoms(_sums()[0], _sums()[1]) for symbol in each.bound_symbols}
    found = {symbol.name for symbol in form.free_symbols - bound}
    return frozenset(found | {str(each) for each in form.atoms(AppliedUndef)})


def _sums() -> tuple[Any, Any]:
    from sympy import Product, Sum

    return Sum, Product


@lru_cache(maxsize=512)
def _has_absolute(form: Any) -> bool:
    from sympy import preorder_traversal

    return any(type(node).__name__ in _ABSOLUTE for node in preorder_traversal(form))


@lru_cache(maxsize=512)
def _has_i(form: Any) -> bool:
    from sympy import I, Symbol

    return form.has(I) or Symbol("i") in form.free_symbols or "i" in {s.name for s in form.free_symbols}


def _entire(form: Any) -> bool:
    """Tell whether there is no root and no logarithm, whose complex values are a matter of taste."""
    from sympy import Pow, log

    return not form.has(log) and all(power.exp.is_Integer or _whole(power.exp) for power in form.atoms(Pow))


def _whole(form: Any) -> bool:
    try:
        value = _Evaluation({}, real=True, digits=DIGITS).of(form)
    except Exception:
        return False
    return isinstance(value, Fraction) and value.denominator == 1


@lru_cache(maxsize=4096)
def _value(form: Any, point: int, absolute: bool, real: bool, digits: int, turned: bool = False) -> Any:
    """Return the value at a point, the digits that its size asks for and its largest part, or what there is instead."""
    at = {name: _coordinate(name, point, signed=absolute or _is_unknown(name)) for name in _names(form)}
    evaluation = _Evaluation(at, real=real, digits=digits, turned=turned)
    try:
        value = evaluation.of(form)
    except (_Pole, ZeroDivisionError):
        return "pole"
    except _Undefined:
        return "undefined"
    if not isinstance(value, Fraction) and not _finite(value):
        return "pole"
    return value, evaluation.need, evaluation.size


def _finite(value: Any) -> bool:
    mp = _mp()

    return bool(mp.isfinite(value))


def _is_unknown(name: str) -> bool:
    """Tell whether a letter may be negative without being asked: x, n; R, m_0 and λ are quantities, and positive."""
    return len(name) == 1 and name in _LETTERS


def _coordinate(name: str, point: int, signed: bool) -> Fraction:
    """Return a letter's value at a point, whatever other letters there are."""
    seed = crc32(f"{name}|{point}".encode())
    rank = _LETTERS.index(name) if _is_unknown(name) else crc32(name.encode()) % len(_SIGNS)
    fine = Fraction(seed % 1009 + 1, 1013)
    if point == 0:  # above 1, in the order of the alphabet
        size = 1 + fine / 7 + Fraction(rank, 7)
    elif point == 1:  # in the other order
        size = 8 + fine / 7 - Fraction(rank, 7)
    elif point in (2, 4, 8, 9):
        size = fine
    elif point in (5, 11, 12):
        size = Fraction(2 + (7 * rank + seed % 3) % 13)
    else:
        size = 1 + 3 * fine
    if not signed or point in (0, 1, 2, 5):
        return size
    return -size if point in (3, 4) or point - FIRST_MIXED in _SIGNS[rank] else size


def _number(value: Any) -> Any:
    mp = _mp()

    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


class _Evaluation:
    """The value of a form at a point. `need` sums the orders of magnitude on the way, `size` is the largest part."""

    def __init__(self, at: Mapping[str, Fraction], *, real: bool, digits: int, turned: bool = False) -> None:
        mp = _mp()

        self._at, self._real, self._digits = at, real, digits
        self._turn = mp.mpc("0.6", "0.8") if turned else None
        self.need, self.size = 0.0, mp.mpf(1)

    def of(self, form: Any) -> Any:
        mp = _mp()

        with mp.workdps(self._digits):
            return self._weigh(self._of(form))

    def _weigh(self, value: Any) -> Any:
        """Note how large or small a number is."""
        mp = _mp()

        if isinstance(value, Fraction):
            if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
                raise _Unknown
            return value
        if value and mp.isfinite(value):
            size = abs(value)
            self.need += min(abs(float(mp.log10(size))), 1e9)
            self.size = max(self.size, size)
        return value

    def _of(self, form: Any) -> Any:
        mp = _mp()
        from sympy.core.function import AppliedUndef

        if form.is_Symbol or isinstance(form, AppliedUndef):
            return self._name(str(form))
        if form.is_Rational:
            return self._weigh(Fraction(int(form.p), int(form.q)))
        if form.is_Float:
            return mp.make_mpf(form._mpf_)
        if form.is_NumberSymbol:
            return mp.make_mpf(form._as_mpf_val(mp.prec))
        kind = type(form).__name__
        if kind == "ImaginaryUnit":
            return mp.mpc(0, 1)
        if kind in ("Infinity", "NegativeInfinity", "ComplexInfinity", "NaN"):
            raise _Unknown
        if kind in ("Sum", "Product"):
            return self._many(form, kind)
        if kind in ("Derivative", "Integral", "Limit", "Piecewise"):
            raise _Unknown
        if kind == "Pow":
            return self._power(form)
        values = [self._of(part) for part in form.args]
        if kind == "Add":
            return self._weigh(self._fold(values, lambda a, b: a + b))
        if kind == "Mul":
            return self._weigh(self._fold(values, lambda a, b: a * b))
        return self._weigh(self._function(kind, form, values))

    def _name(self, name: str) -> Any:
        mp = _mp()

        if name == "i" and not self._real:
            return mp.mpc(0, 1)
        if name == "e":
            return +mp.e
        value = self._at[name]
        if self._turn is not None:
            return _number(value) * self._turn
        return value

    def _fold(self, values: list[Any], join: Callable[[Any, Any], Any]) -> Any:
        total = values[0]
        for value in values[1:]:
            both = isinstance(total, Fraction) and isinstance(value, Fraction)
            if not both:
                total, value = self._weighed_number(total), self._weighed_number(value)
            total = self._weigh(join(total, value))
        return total

    def _weighed_number(self, value: Any) -> Any:
        return self._weigh(_number(value)) if isinstance(value, Fraction) else value

    def _power(self, form: Any) -> Any:
        mp = _mp()

        base, exponent = self._of(form.base), self._of(form.exp)
        if isinstance(exponent, Fraction) and exponent.denominator == 1:
            n = exponent.numerator
            if base == 0 and n <= 0:
                raise _Pole
            if isinstance(base, Fraction):
                if (
                    abs(n) * max(base.numerator.bit_length(), base.denominator.bit_length()) > MAX_BITS
                    and abs(base) != 1
                ):
                    raise _Unknown
                return self._weigh(base**n)
            return self._weigh(base**n)
        if base == 0:
            if not _number(exponent).real > 0:
                raise _Pole
            return Fraction(0)
        raised = self._weighed_number(base)
        if not self._real:
            return self._weigh(mp.power(mp.mpc(raised), _number(exponent)))
        if raised < 0:
            constant = not form.exp.free_symbols and isinstance(exponent, Fraction)
            if not constant or exponent.denominator % 2 == 0:
                raise _Undefined
            return self._weigh((-1) ** exponent.numerator * mp.power(-raised, _number(exponent)))
        return self._weigh(mp.power(raised, _number(exponent)))

    def _many(self, form: Any, kind: str) -> Any:
        """Return the value of a sum or a product between two integers, term by term."""
        (symbol, low, high), *rest = form.limits
        ends = [self._of(end) for end in (low, high)]
        if rest or not all(isinstance(end, Fraction) and end.denominator == 1 for end in ends):
            raise _Unknown
        first, last = (int(end) for end in ends)
        if not 0 <= last - first < MAX_TERMS:
            raise _Unknown
        total: Any = Fraction(0 if kind == "Sum" else 1)
        for k in range(first, last + 1):
            inner = _Evaluation({**self._at, symbol.name: Fraction(k)}, real=self._real, digits=self._digits)
            term = inner._of(form.function)
            self.need, self.size = self.need + inner.need / 8, max(self.size, inner.size)
            total = self._fold([total, term], (lambda a, b: a + b) if kind == "Sum" else (lambda a, b: a * b))
        return total

    def _function(self, kind: str, form: Any, values: list[Any]) -> Any:
        mp = _mp()

        if kind == "UnevaluatedExpr":
            return values[0]
        if kind in ("Max", "Min"):
            if any(mp.im(_number(value)) != 0 for value in values):
                raise _Undefined
            return (max if kind == "Max" else min)(values, key=_number)
        first = values[0]
        if kind == "Abs":
            return abs(first)
        if kind == "sign":
            return Fraction((first > 0) - (first < 0))
        if kind in ("floor", "ceiling"):
            return Fraction(self._whole(first, kind))
        if kind == "Mod":
            quotient = self._fold([first, self._inverse(values[1])], lambda a, b: a * b)
            whole = Fraction(self._whole(quotient, "floor"))
            return self._fold([first, self._fold([-whole, values[1]], lambda a, b: a * b)], lambda a, b: a + b)
        if kind in ("factorial", "binomial") and all(isinstance(v, Fraction) and v.denominator == 1 for v in values):
            n, *k = (int(value) for value in values)
            if n > 20_000 or min(n, *k, 0) < 0:
                raise _Unknown
            return Fraction(math.factorial(n) if kind == "factorial" else math.comb(n, k[0]))
        numbers = [self._weighed_number(value) for value in values]
        x = numbers[0]
        if kind == "log":
            if x == 0:
                raise _Pole
            if self._real and min(numbers) <= 0:
                raise _Undefined
            found = mp.log(x)
            if len(numbers) == 1:
                return found
            below = mp.log(numbers[1])
            if below == 0:
                raise _Pole
            return found / below
        if kind in ("tanh", "coth", "erf"):
            self.need += float(min(abs(x) ** (2 if kind == "erf" else 1), 10**6))
        name = _FUNCTIONS.get(kind)
        if name is None:
            return self._by_sympy(form, numbers)
        found = getattr(mp, name)(*numbers)
        if self._real and mp.im(found) != 0:
            raise _Undefined
        return found

    def _inverse(self, value: Any) -> Any:
        if value == 0:
            raise _Pole
        return 1 / value

    def _whole(self, value: Any, kind: str) -> int:
        """Return the integer below or above; a number that is one but for rounding is that one."""
        mp = _mp()

        if isinstance(value, Fraction):
            return math.floor(value) if kind == "floor" else math.ceil(value)
        if mp.im(value) != 0:
            raise _Undefined
        value = mp.re(value)
        nearest = mp.nint(value)
        if abs(value - nearest) <= mp.mpf(10) ** (SPARE - self._digits) * max(1, abs(value)):
            return int(nearest)
        return int(mp.floor(value) if kind == "floor" else mp.ceil(value))

    def _by_sympy(self, form: Any, numbers: list[Any]) -> Any:
        mp = _mp()
        from sympy import Float, sympify

        digits = self._digits
        parts = [
            Float(n, digits) if mp.im(n) == 0 else Float(n.real, digits) + sympify("I") * Float(n.imag, digits)
            for n in numbers
        ]
        value = form.func(*parts).evalf(digits)
        if not (value.is_number and value.is_finite):
            raise _Unknown
        real, imaginary = value.as_real_imag()
        if imaginary == 0:
            return mp.make_mpf(Float(real, digits)._mpf_)
        if self._real:
            raise _Undefined
        return mp.mpc(mp.make_mpf(Float(real, digits)._mpf_), mp.make_mpf(Float(imaginary, digits)._mpf_))


_FUNCTIONS = (
    {  # sympy's names, which are mpmath's as well
        name: name
        for stem in ("sin", "cos", "tan", "cot", "sec", "csc")
        for name in (stem, f"a{stem}", f"{stem}h", f"a{stem}h")
    }
    | {name: name for name in ("exp", "factorial", "binomial", "erf", "gamma", "re", "im", "arg")}
    | {"conjugate": "conj"}
)

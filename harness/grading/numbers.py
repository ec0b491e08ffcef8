r"""Numbers read exactly and compared relatively, at any size: never through floats, never by computing a power.

    read_number(r"1.6 \times 10^{-19}").top  # Decimal("1.6E-19")
    read_number(r"35.0\%").percent           # True

A number is `top / bottom`, in decimals whose exponents may have nine digits; arithmetic keeps 1000 digits, so reading
and comparing cost microseconds whatever was written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

from harness.grading.units import read_tail

TOLERANCE = Decimal("1e-12")  # relative: what a float's rounding spoils; only where a decimal point is involved
ROUGHLY = Decimal("0.05")  # relative: what rounded numbers of a chain may be apart
SIGNIFICANT = 6  # digits a decimal needs to stand for a fraction that has no finite decimal (what math-verify asks for)

# `abs` and a minus sign would round to the 28 digits of Python's own context, and fail beyond its exponents.
_EXACT = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DIGITS = r"(?:[1-9]\d{0,2}(?:[, ]\d{3})+(?![\d])|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_POWER = r"10\s*\^\s*(?:\{\s*([+-]?\s*\d{1,9})\s*\}|([+-]?\d{1,9}))(?![\d!]|\^(?!\{\\circ))"
_SCIENTIFIC = rf"(?:{_POWER}|({_DECIMAL})(?:\s*(?:\\times|\\cdot|\*|x)\s*{_POWER})?)"
_SIGNED = rf"\s*([+-]?)\s*{_SCIENTIFIC}\s*"
_NUMBER = re.compile(
    rf"([+-]?)\s*(\\\$|\$|€|£)?\s*([+-]?)\s*(?:"
    rf"\\frac\s*\{{{_SIGNED}\}}\s*\{{{_SIGNED}\}}"
    rf"|{_SCIENTIFIC}(?:\s*/\s*{_SCIENTIFIC})?)(?![.\d])"
)
_MIXED = re.compile(
    r"([+-]?)\s*(\d{1,9})\s*(?:\\frac\s*\{\s*(\d{1,9})\s*\}\s*\{\s*(\d{1,9})\s*\}|(?<=\s)(\d{1,9})\s*/\s*(\d{1,9}))(?![.\d])"
)
_WORD = re.compile(r"(?:\\(?:text|mathrm)\s*\{)?\s*([A-Za-z]+)\s*\}?")
_WORDS = re.findall(
    "[a-z]+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
)
_REPEATING = re.compile(r"([+-]?)\s*(\d{0,30})\.(\d{0,30})\\(?:overline|bar|dot)\s*\{?(\d{1,30})\}?")


@dataclass(frozen=True, slots=True)
class Number:
    """`top / bottom`; `point`: whether it was written with a decimal point (a number without one is exact)."""

    top: Decimal
    bottom: Decimal = Decimal(1)
    point: bool = False
    percent: bool = False
    unit: str = ""
    scale: Decimal = Decimal(1)  # how many of the unit without a prefix its own unit is: 1000 for km

    def hundredth(self) -> "Number":
        """Return a hundredth of it, as exactly."""
        return Number(self.top.scaleb(-2, _EXACT), self.bottom, self.point, False, self.unit, self.scale)

    def unscaled(self) -> "Number":
        """Return it in the unit without a prefix."""
        return Number(_EXACT.multiply(self.top, self.scale), self.bottom, True, False, self.unit)

    @property
    def endless(self) -> bool:
        """Whether it has no finite decimal (1/3)."""
        whole = self.bottom == self.bottom.to_integral_value()
        rest = int(self.bottom) if whole and self.bottom.copy_abs() < 10**12 else 1
        while rest and rest % 2 == 0:
            rest //= 2
        while rest and rest % 5 == 0:
            rest //= 5
        if rest in (0, 1, -1) or self.top.adjusted() > 900:
            return False
        return self.top != self.top.to_integral_value() or int(self.top) % rest != 0


def read_number(text: str, *, bare_units: bool = True) -> Number | None:
    """Read the number a normalised text is, with its percent sign or unit; None where it is anything else."""
    if (word := _WORD.fullmatch(text)) and word[1].lower() in _WORDS:
        return Number(Decimal(_WORDS.index(word[1].lower())))
    if match := _REPEATING.match(text):
        sign, whole, once, again = match.groups()
        top = int(sign + (whole + once + again)) - int(sign + (whole + once or "0"))
        tail = read_tail(text[match.end() :], integer=False, bare=bare_units)
        bottom = Decimal(10 ** len(once) * (10 ** len(again) - 1))
        return tail and Number(_EXACT.multiply(Decimal(top), tail.factor), bottom, False, tail.percent, tail.unit)
    if mixed := _MIXED.match(text):  # 3 1/2, never 3 4/2
        sign, whole, top, bottom = mixed[1], int(mixed[2]), int(mixed[3] or mixed[5]), int(mixed[4] or mixed[6])
        tail = read_tail(text[mixed.end() :], integer=False, bare=bare_units)
        if not (tail and 0 < top < bottom and whole):
            return None
        value = Decimal(int(f"{sign}1") * (whole * bottom + top))
        return Number(_EXACT.multiply(value, tail.factor), Decimal(bottom), False, tail.percent, tail.unit, tail.scale)
    match = _NUMBER.match(text)
    if match is None:
        return None
    sign, currency, sign_2, *parts = match.groups()
    if sign and sign_2:
        return None
    (top_sign, *top), (inner, *bottom) = parts[0:6], parts[6:12]  # each number is the five groups of _SCIENTIFIC
    first, second = parts[12:17], parts[17:22]
    if any(top):
        value, below, negative = _decimal(top), _decimal(bottom), (top_sign == "-") != (inner == "-")
        integer, point = False, "." in (top[2] or "") + (bottom[2] or "")
    else:
        value, below, negative = _decimal(first), _decimal(second) if any(second) else Decimal(1), False
        integer = not any(second) and bool(first[2]) and "." not in first[2]
        point = "." in (first[2] or "") + (second[2] or "")
    tail = read_tail(text[match.end() :], integer=integer, bare=bare_units)
    if tail is None or below == 0 or (currency and tail.unit):
        return None
    if (sign or sign_2) == "-":
        negative = not negative
    value = _EXACT.multiply(value.copy_negate() if negative else value, tail.factor)
    if tail.modulus and not 0 <= value < tail.modulus:
        return None
    return Number(value, below, point, tail.percent, f"{currency[-1]}^1" if currency else tail.unit, tail.scale)


def _decimal(parts: Sequence[str | None]) -> Decimal:
    """Make a number of `_SCIENTIFIC`'s groups: a bare power of ten's exponent, or digits (the third) and exponent."""
    digits = re.sub(r"[, ]", "", parts[2] or "1")
    exponent = next((part for part in (*parts[:2], *parts[3:]) if part), "0").replace(" ", "")
    return _EXACT.create_decimal(f"{digits}E{exponent}")


def equal(gold: Number, answer: Number) -> bool:
    """Tell whether two numbers are the same, by the rules of docs/grading.md.

    Units that both sides state must be of one kind, and are converted; a unit that one side leaves out is not missed.
    If exactly one side is in percent, and the other has no unit, 35 % may stand for 35 or for 0.35.
    """
    if gold.unit and answer.unit:
        if gold.unit != answer.unit:
            return False
        if gold.scale != answer.scale:
            return _same(gold.unscaled(), answer.unscaled())
    if (gold.percent and answer.unit) or (answer.percent and gold.unit):
        return False
    if _same(gold, answer):
        return True
    if gold.percent != answer.percent:
        return _same(gold.hundredth(), answer) if gold.percent else _same(gold, answer.hundredth())
    return False


def far(side: Number, last: Number) -> bool:
    """Tell whether two sides of a chain differ by more than rounding: 1 = 5, not 1/3 = 0.33."""
    if equal(side, last) or (side.unit and last.unit):
        return False
    if not (side.point or last.point):
        return True
    left, right = _EXACT.multiply(side.top, last.bottom), _EXACT.multiply(last.top, side.bottom)
    return _EXACT.subtract(left, right).copy_abs() > _EXACT.multiply(ROUGHLY, left.copy_abs())


def _same(a: Number, b: Number) -> bool:
    left, right = _EXACT.multiply(a.top, b.bottom), _EXACT.multiply(b.top, a.bottom)
    if left == right:
        return True
    if not (a.point or b.point):
        return False
    gap = _EXACT.subtract(left, right).copy_abs()
    if gap <= _EXACT.multiply(TOLERANCE, left.copy_abs()):
        return True
    return _rounds(a, b, gap) or _rounds(b, a, gap)


def _rounds(exact: Number, rounded: Number, gap: Decimal) -> bool:
    """Tell whether `rounded` is the endless fraction `exact`, rounded at its own last digit (of six or more)."""
    digits = len(rounded.top.as_tuple().digits)
    if rounded.bottom != 1 or not exact.endless or digits < SIGNIFICANT:
        return False
    half = Decimal((0, (5,), rounded.top.adjusted() - digits))
    return gap <= _EXACT.multiply(half, exact.bottom.copy_abs())

r"""Read numbers exactly, as fractions, with their percent sign and their unit, without floats.

read_number(r"1.6 \times 10^{-19}").value   # Fraction(1, 6250000000000000000)
read_number(r"35.0\%").percent              # True
"""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from rlvr_dir.grading.residues import MODULUS
from rlvr_dir.grading.units import read_unit

TOLERANCE = Fraction(1, 10**12)  # relative error of float rounding; only used if a decimal point is involved
ROUGHLY = Fraction(1, 20)  # relative difference allowed between rounded numbers of a chain
COMPUTED = Fraction(1, 10**30)  # relative error of computed irrational numbers
SIGNIFICANT = 6  # digits that a decimal needs to represent a fraction without a finite decimal (as in math-verify)
MOST_DIGITS = 2000  # of a power of ten
_DIGITS = r"(?:[1-9]\d{0,2}(?:[, ]\d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_SIMPLE = rf"(?P<%s>[+-]?\s*{_DECIMAL}(?:\s*(?:\\times|\\cdot)\s*10\s*\^\s*\{{?\s*[+-]?\s*\d+\s*\}}?)?)"
_VALUE = re.compile(
    rf"(?P<sign>[+-]?)\s*(?P<money>\\\$|[€£¥₹])?\s*(?P<sign_2>[+-]?)\s*(?:"
    rf"(?P<whole>\d+)\s*(?:\\frac\s*\{{(?P<a>\d+)\}}\s*\{{(?P<b>\d+)\}}|(?<=\s)(?P<c>\d+)\s*/\s*(?P<d>\d+))"
    rf"|\\frac\s*\{{\s*{_SIMPLE % 'top'}\s*\}}\s*\{{\s*{_SIMPLE % 'bottom'}\s*\}}"
    rf"|(?P<stem>\d{{0,30}}\.\d{{0,30}})\\(?:overline|bar|dot)\s*\{{?(?P<period>\d{{1,30}})\}}?"
    rf"|\(?{_SIMPLE % 'p'}\)?\s*/\s*\(?{_SIMPLE % 'q'}\)?"
    rf"|10\s*\^\s*\{{\s*(?P<power>[+-]?\s*\d+)\s*\}}(?!\s*[\^!])"
    rf"|{_SIMPLE % 'decimal'})(?![.\d])"
)
_WORDS = re.findall(
    "[a-z]+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
)
_SCALES = {"dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = re.compile(rf"\s*(\\text\s*\{{)?\s*({'|'.join(_SCALES)})(?![a-z])")


_IN_BASE = re.compile(
    rf"\(?\s*([0-9A-F]+)\s*\)?\s*(?:_\s*\{{?|(?=\\text\s*\{{\s*base))\s*(?:\\text\s*\{{)?\s*(?:base\s*)?\}}?\s*\(?(\d{{1,2}}|{'|'.join(_WORDS[2:13])})\)?\s*\}}?\s*\}}?"
)


@dataclass(frozen=True, slots=True)
class Number:
    """Store a value. `rounded` is the value as written with a decimal point (a number without one is exact)."""

    value: Fraction
    rounded: str = ""
    percent: bool = False
    unit: dict[str, int] = field(default_factory=dict)


@lru_cache(maxsize=16384)
def read_number(text: str, *, bare_units: bool = True) -> Number | None:
    """Read a normalised text as a number, with its percent sign or unit; None for any other text."""
    word = re.fullmatch(r"(?:\\text\s*\{)?\s*([A-Za-z]+)\s*\}?", text)
    if word and word[1].lower() in _WORDS:
        return Number(Fraction(_WORDS.index(word[1].lower())))
    modulus = MODULUS.search(text)
    match = _VALUE.match(text[: modulus.start()] if modulus else text)
    if match is None or (match["sign"] and match["sign_2"]):
        return None
    rest, scale = text[match.end() : modulus.start() if modulus else None].strip(), 1
    while scaled := _SCALE.match(rest):
        scale *= _SCALES[scaled[2]]
        rest = re.sub(r"^\\text\s*\{\s*\}", "", (scaled[1] or "") + rest[scaled.end() :].strip())
    percent = rest.startswith(r"\%")
    unit = read_unit(rest[2:].strip() if percent else re.sub(r"^_\s*\{?\s*10\s*\}?$", "", rest), bare=bare_units)
    value = _value(match)
    if value is None or unit is None or (unit and (percent or match["money"])):
        return None
    value *= -scale if "-" in match["sign"] + match["sign_2"] else scale
    if modulus:
        unit = {f"mod {modulus[2]}": 1}
        if not 0 <= value < int(modulus[2]):
            return None
    written = next((match[part] for part in ("decimal", "top", "p") if match[part]), "")
    if match["money"]:
        unit = {match["money"][-1]: 1}
    return Number(value, written if "." in match[0] and not match["period"] else "", percent, unit)


def in_base(text: str) -> tuple[str, int] | None:
    r"""Return the digits and the base of `4343_6`, `(101)_{\text{two}}` or `101 \text{ base } 2`."""
    match = _IN_BASE.fullmatch(text)
    if match is None:
        return None
    return match[1], _WORDS.index(match[2]) if match[2] in _WORDS else int(match[2])


def read_in_base(text: str) -> Number | None:
    """Read digits in a base as a number; None for any other text, or if a digit is not below the base."""
    digits, base = in_base(text) or ("", 0)
    try:
        return Number(Fraction(int(digits, base))) if base else None
    except ValueError:
        return None


def _value(match: re.Match[str]) -> Fraction | None:
    part = match.groupdict()
    if part["whole"]:  # 3 1/2, never 3 4/2
        top, bottom = int(part["a"] or part["c"]), int(part["b"] or part["d"])
        return int(part["whole"]) + Fraction(top, bottom) if 0 < top < bottom and int(part["whole"]) else None
    if part["period"]:
        places = len(part["stem"].partition(".")[2])
        repeated = Fraction(int(part["period"]), (10 ** len(part["period"]) - 1) * 10**places)
        return Fraction(part["stem"].rstrip(".") or 0) + repeated
    names = ("top", "bottom") if part["top"] else ("p", "q")
    if part[names[0]]:
        top, bottom = (_simple(part[name] or "1") for name in names)
        return top / bottom if top is not None and bottom else None
    return _simple(f"1 10^{{{part['power']}}}" if part["power"] else part["decimal"])


def _simple(text: str) -> Fraction | None:
    """Read digits and a power of ten; None if the power has too many digits."""
    digits, _, power = re.sub(r"[\s,{}]|\\times|\\cdot", "", re.sub(r"10\s*\^", "^", text)).partition("^")
    if abs(int(power or 0)) > MOST_DIGITS:
        return None
    return Fraction(digits.rstrip(".") or 1) * Fraction(10) ** int(power or 0)


def equal(gold: Number, answer: Number) -> bool:
    """Return whether two numbers are the same, by the rules of docs/grading.md.

    A unit may be missing on one side. If exactly one side is in percent, and the other has no unit, 35 % may mean 35 or
    0.35.
    """
    other_units = gold.unit and answer.unit and gold.unit != answer.unit
    if other_units or (gold.percent and answer.unit) or (answer.percent and gold.unit):
        return False
    if _same(gold, answer):
        return True
    share = Fraction(100) if gold.percent else Fraction(1, 100)
    return gold.percent != answer.percent and _same(gold, Number(answer.value * share, answer.rounded))


def far(side: Number, last: Number, rounded: bool = False) -> bool:
    """Return whether two sides of a chain differ by more than rounding: 1 = 5, not 1/3 = 0.33."""
    rough = ROUGHLY if rounded or side.rounded or last.rounded else COMPUTED
    if equal(side, last) or (side.unit and last.unit):
        return False
    return abs(side.value - last.value) > abs(last.value) * rough


def _same(a: Number, b: Number) -> bool:
    gap = abs(a.value - b.value)
    if not (a.rounded or b.rounded):
        return gap == 0
    return gap <= abs(a.value) * TOLERANCE or _rounds(a.value, b, gap) or _rounds(b.value, a, gap)


def _rounds(exact: Fraction, rounded: Number, gap: Fraction) -> bool:
    """Return whether a decimal is the infinite decimal of `exact`, rounded at its own last digit (six or more
    digits)."""
    mantissa = re.split(r"\s*\\(?:times|cdot)", rounded.rounded)[0]
    digits = re.sub(r"\D", "", mantissa).lstrip("0")
    if len(digits) < SIGNIFICANT or not endless(exact):
        return False
    return gap * 2 <= abs(rounded.value) / int(digits)  # half the worth of its last digit


def endless(value: Fraction) -> bool:
    """Return whether a number has no finite decimal, such as 1/3."""
    return (
        10 ** value.denominator.bit_length() % value.denominator != 0
    )  # a power of ten that has enough twos and fives

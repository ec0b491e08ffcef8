r"""What may stand behind a number without changing it: an ordinal ending, a degree sign, a unit; and what changes it.

A word of two letters or more in `\text{...}` or `\mathrm{...}` is taken as a unit whatever it is (`\text{ apples}`);
single and bare letters must be unit symbols of the table, because `5x` and `5\mathrm{i}` are not five.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

_PREFIX = "(?:da|[yzafpnumcdhkMGTPEZY]|\\\\mu ?|µ|μ)"
_BASE = (
    "Hz|Pa|Wb|Bq|Gy|Sv|eV|mol|rad|kat|cal|bar|erg|dyn|lm|lx|cd|pc|sr|m|g|s|A|K|N|J|W|C|V|F|S|T|H|L|\\\\Omega|\\\\ohm|Ω"
)
_OTHER = r"min|hours?|hr|h|days?|years?|yr|ft|in|lbs?|mph|mi|atm|torr|AU|ly|ppm|rpm|amu|dB|cc|\\AA|\\mathring ?\{A\}|Å"
_SYMBOL = rf"(?:{_PREFIX}?(?:{_BASE})|{_OTHER})(?![A-Za-z])"
_EXPONENT = r"(?:\s*\^\s*(?:-?\d|\{\s*[+-]?\d\s*\}))?"
_TEXT = r"\\(?:text|mathrm|rm|mathit)\s*\{((?:[A-Za-z0-9µμΩÅ%°./^\\ ()*-]|\{[A-Za-z0-9 .^+-]*\}){0,80})\}"
_BETWEEN = r"[\s./*(]*(?:\\(?:cdot|times)(?![A-Za-z])\s*)?"
_BARE_UNIT = re.compile(rf"{_BETWEEN}(?:{_SYMBOL}){_EXPONENT}[\s)]*")
_TEXT_UNIT = re.compile(rf"{_BETWEEN}{_TEXT}{_EXPONENT}[\s)]*")
_TEXT_SYMBOL = re.compile(rf"{_SYMBOL}|[DMGu](?![A-Za-z])")  # debye, molar, gauss, atomic mass: symbols only as text
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"{_BETWEEN}\\frac\s*{_GROUP}\s*{_GROUP}")
_MODULUS = re.compile(r"\(?\s*(?:\\(?:pmod|bmod|mod)|\\text\s*\{\s*mod\s*\})\s*(?:\{\s*)?(\d{1,9})\s*\}?\s*\)?")
_DEGREE = re.compile(r"\^\{\\circ\}\s*(?:(?:\\(?:text|mathrm)\s*\{\s*)?([CFK])\b\s*\}?)?")
_BASE_TEN = re.compile(r"_\s*(?:\{\s*(?:10|\\text\s*\{\s*ten\s*\})\s*\})")
_ORDINAL = re.compile(r"(?:\^\s*)?\{?\s*(?:\\(?:text|mathrm)\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?\Z")
_PERCENT = re.compile(r"\\?%|(?:\\text\s*\{)?\s*(?:percent|per cent)\s*\}?(?![A-Za-z])")
_WORD = re.compile(r"[A-Za-z]+")
SCALES = {"dozen": Decimal(12), "hundred": Decimal(100), "thousand": Decimal(1000)} | {
    name: Decimal(10) ** power for name, power in (("million", 6), ("billion", 9), ("trillion", 12))
}
# Words that make another number, or no number, of the one before them: never a unit.
_NOT_UNITS = re.compile(
    r"or|and|to|not|no|never|none|is|are|was|wrong|false|incorrect|but|if|for|when|where|between|except|only|over|less|more|least|most|plus|minus|times|about|"
    r"approximately|undefined|mod|modulo|base|squared|cubed|factorial|roots?|sqrt|pi|sin|cos|tan|log|ln|exp|"
    r"half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?|hundredths?|thousandths?"
)


@dataclass(frozen=True, slots=True)
class Tail:
    r"""What stood behind a number: a factor of its value, a percent sign, a unit, the n of `\pmod{n}`."""

    factor: Decimal = Decimal(1)
    percent: bool = False
    unit: str = ""
    modulus: int = 0


def read_tail(text: str, *, integer: bool, bare: bool) -> Tail | None:
    """Read all that follows a number; None where it is more than a unit.

    `integer`: ordinal endings are allowed. `bare`: unit symbols may stand outside `\\text{...}`.
    """
    text = text.strip()
    if not text:
        return Tail()
    if integer and (_ORDINAL.fullmatch(text) or _BASE_TEN.fullmatch(text)):
        return Tail()
    if integer and (match := _MODULUS.fullmatch(text)):
        return Tail(modulus=int(match[1]))
    if (match := _PERCENT.match(text)) and not text[match.end() :].strip():
        return Tail(percent=True)
    if match := _DEGREE.fullmatch(text):
        return Tail(unit=f"°{match[1] or ''}")
    if text in ("\\$", "$", "€", "£"):
        return Tail(unit=text.lstrip("\\"))
    return _read_words(text, bare)


def _read_words(text: str, bare: bool) -> Tail | None:
    factor, unit, at = Decimal(1), "", 0
    if text.count("(") != text.count(")"):
        return None
    while at < len(text):
        match = _TEXT_UNIT.match(text, at)
        if match:
            for word in _WORD.findall(match[1]):
                low = word.lower()
                if low in SCALES:
                    factor *= SCALES[low]
                elif _NOT_UNITS.fullmatch(low) or (len(word) == 1 and not _TEXT_SYMBOL.fullmatch(word)):
                    return None
            if re.search(r"\d", re.sub(r"\^\s*\{?-?\d\}?", "", match[1])):  # another number
                return None
        elif match := _FRACTION.match(text, at):
            above, below = (_read_words(part, bare=True) if part.strip() else None for part in match.groups())
            if not (above and below) or {above.factor, below.factor} != {1}:
                return None
        elif not bare or not (match := _BARE_UNIT.match(text, at)):
            return None
        if match.end() == at:
            return None
        unit += match[0]
        at = match.end()
    unit = _FRACTION.sub(r"\1/\2", unit)
    words = re.sub(r"\\(?:text|mathrm|rm|mathit|cdot)(?![A-Za-z])|[\s{}()]", "", unit)
    for name in SCALES:
        words = re.sub(name, "", words, flags=re.IGNORECASE)
    return Tail(factor=factor, unit=words.rstrip("s.") or words)

r"""What may stand behind a number without changing it: an ordinal ending, a degree sign, a unit; and what changes it.

A word of two letters or more in `\text{...}` or `\mathrm{...}` is taken as a unit whatever it is (`\text{ apples}`);
single and bare letters must be unit symbols of the table, because `5x` and `5\mathrm{i}` are not five.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

_PREFIX = "(?:da|[yzafpnumcdhkMGTPEZY]|\\\\mu ?|µ|μ)"
_BASE = "Hz|Pa|Wb|Bq|Gy|Sv|eV|mol|rad|kat|cal|bar|erg|dyn|lm|lx|cd|pc|sr|m|g|s|A|K|N|J|W|C|V|F|S|T|H|L|Ω"
_SCALED = _BASE.split("|")  # by prefixes
_OTHER = (
    r"min|hours?|hr|h|days?|years?|yr|ft|in|lbs?|mph|mi|atm|torr|AU|ly|ppm|rpm|amu|dB|cc|\\AA|\\mathring ?\{A\}|Å"
    r"|[MLR]_\\odot"
)
_SYMBOL = rf"(?:{_PREFIX}?(?:{_BASE}|\\Omega|\\ohm)|{_OTHER})(?![A-Za-z])"
_EXPONENT = r"(?:\s*\^\s*(?:-?\d|\{\s*[+-]?\d\s*\}))?"
_TEXT = r"\\(?:text|mathrm|rm|mathit)\s*\{((?:[A-Za-z0-9µμΩÅ%°./^\\ ()*-]|\{[A-Za-z0-9 .^+-]*\}){0,80})\}"
_BETWEEN = r"[\s./*(]*(?:\\(?:cdot|times)(?![A-Za-z])\s*)?"
_BARE_UNIT = re.compile(rf"{_BETWEEN}(?:{_SYMBOL}){_EXPONENT}[\s)]*")
_TEXT_UNIT = re.compile(rf"{_BETWEEN}{_TEXT}{_EXPONENT}[\s)]*")
_TEXT_SYMBOL = re.compile(rf"{_SYMBOL}|[DMGu](?![A-Za-z])")  # debye, molar, gauss, atomic mass: symbols only as text
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"{_BETWEEN}\\frac\s*{_GROUP}\s*{_GROUP}")
_MODULUS = re.compile(
    r"(?:\\text\s*\{\s*)?\(?\s*(?:\\(?:pmod|bmod|mod)|\\text\s*\{\s*mod\s*\}|mod(?:ulo)?(?![a-z]))\s*(?:\{\s*)?(\d{1,9})\s*\}?\s*\)?\s*\}?"
)
_DEGREE = re.compile(r"\^\{\\circ\}\s*(?:(?:\\(?:text|mathrm)\s*\{\s*)?([CFK])\b\s*\}?)?")
_BASE_TEN = re.compile(r"_\s*(?:\{\s*(?:10|\\text\s*\{\s*ten\s*\})\s*\})")
_ORDINAL = re.compile(
    r"(?:\^\s*)?\{?\s*(?:\\(?:text|mathrm)\s*\{\s*)?(?:st|nd|rd|th)\b\s*([A-Za-z ]*)\}?\s*\}?\s*(?=\\text|\Z)"
)
_PRIMES = re.compile(r"'{1,2}")
_PERCENT = re.compile(r"\\?%|(?:\\text\s*\{)?\s*(?:percentage|percent|per cent|pct)\s*\}?(?![A-Za-z])")
_WORD = re.compile("[A-Za-zµμΩÅ]+")
SCALES = {"dozen": Decimal(12), "hundred": Decimal(100), "thousand": Decimal(1000)} | {
    name: Decimal(10) ** power for name, power in (("million", 6), ("billion", 9), ("trillion", 12))
}
# Words that make another number, or no number, of the one before them: never a unit.
_NOT_UNITS = re.compile(
    r"or|and|to|not|no|never|none|is|are|was|wrong|false|incorrect|but|if|for|when|where|between|except|only|over|less|more|least|most|plus|minus|times|about|"
    r"approximately|undefined|mod|modulo|base|squared|cubed|factorial|roots?|sqrt|pi|sin|cos|tan|log|ln|exp|"
    r"below|above|under|beyond|before|after|ago|than|as|it|its|them|answer|much|many|times|fold|twice|double|triple|opposite|negative|positive|"
    r"zero|minus|unless|neither|nor|any|all|at|half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?|hundredths?|thousandths?"
)


@dataclass(frozen=True, slots=True)
class Tail:
    r"""What stood behind a number: a factor of its value, a percent sign, a unit, the n of `\pmod{n}`.

    `unit` is without prefixes, `scale` has them: `m` and 1000 for km.
    """

    factor: Decimal = Decimal(1)
    percent: bool = False
    unit: str = ""
    modulus: int = 0
    scale: Decimal = Decimal(1)


def read_tail(text: str, *, integer: bool, bare: bool) -> Tail | None:
    """Read all that follows a number; None where it is more than a unit.

    `integer`: ordinal endings are allowed. `bare`: unit symbols may stand outside `\\text{...}`.
    """
    text = text.strip()
    if not text:
        return Tail()
    if integer and _BASE_TEN.fullmatch(text):
        return Tail()
    if integer and (match := _ORDINAL.match(text)):
        words = f"\\text{{{match[1]}}}{text[match.end() :]}" if match[1].strip() else text[match.end() :]
        return _read_words(words.strip(), bare=False) if words.strip() else Tail()
    if integer and (match := _MODULUS.fullmatch(text)):
        return Tail(modulus=int(match[1]), unit=f"mod {match[1]}")
    if _PRIMES.fullmatch(text):
        return Tail(unit=f"{text}^1")
    if (match := _PERCENT.match(text)) and not text[match.end() :].strip():
        return Tail(percent=True)
    if match := _DEGREE.fullmatch(text):
        return Tail(unit=f"°{match[1] or ''}^1")
    if text in ("\\$", "$", "€", "£"):
        return Tail(unit=f"{text[-1]}^1")
    return _read_words(text, bare)


def _read_words(text: str, bare: bool) -> Tail | None:
    factor, unit, at = Decimal(1), "", 0
    if text.count("(") != text.count(")"):
        return None
    while at < len(text):
        match = _TEXT_UNIT.match(text, at)
        if match:
            words = _WORD.findall(match[1])
            for before, word in zip(["", *words], words, strict=False):
                low = word.lower()
                if low in SCALES:
                    factor *= SCALES[low]
                elif (before, low) == ("see", "above") or (
                    low in ("squared", "cubed") and _simple(before)[0] in (*_NAMES, *_SCALED)
                ):
                    continue
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
    name, scale = canonical(unit)
    return Tail(factor=factor, unit=name, scale=scale)


_NAMES = {
    "m": "meter metre", "s": "second sec", "g": "gram gramme", "h": "hour hr", "min": "minute", "day": "day d",
    "N": "newton", "J": "joule", "W": "watt", "V": "volt", "A": "ampere amp", "Ω": "ohm Ohm \\Omega \\ohm",
    "Hz": "hertz", "Pa": "pascal", "K": "kelvin", "L": "liter litre l", "in": "inch inches", "ft": "foot feet",
    "mi": "mile", "yd": "yard", "lb": "pound lbs", "$": "dollar USD", "€": "euro", "£": "sterling", "°": "degree deg",
    "'": "arcmin arcminute", "''": "arcsec arcsecond", "Å": "\\AA angstrom", "yr": "year y", "mol": "mole",
    "eV": "electronvolt", "unit": "unit",
}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in reversed(_NAMES.items()) for alias in (name, *aliases.split())}
_PREFIXES = {
    "k": 3, "M": 6, "G": 9, "T": 12, "m": -3, "c": -2, "d": -1, "n": -9, "p": -12, "f": -15,
    "µ": -6, "μ": -6, "\\mu": -6, "u": -6,
}  # fmt: skip
_LONG_PREFIXES = {"kilo": 3, "mega": 6, "giga": 9, "centi": -2, "milli": -3, "micro": -6, "nano": -9}
_SECONDS = {"min": Decimal(60), "h": Decimal(3600), "day": Decimal(86400)}
_TOKEN = re.compile(r"\\?[A-Za-zµμΩÅ°$€£]+(?:_\\odot)?|''?|/|\(|\)|\^\s*\{?\s*([+-]?\d)\s*\}?")


@lru_cache(maxsize=4096)
def _simple(word: str) -> tuple[str, Decimal]:
    """Return a unit's one name, without its prefix, and what the prefix makes of it."""
    for form in (word, word.rstrip("s") if len(word) > 2 else word):
        low = form.lower() if len(form) > 2 else form
        for one in (form, low):
            if one in _CANONICAL:
                name = _CANONICAL[one]
                return ("s", _SECONDS[name]) if name in _SECONDS else (name, Decimal(1))
        for prefix, power in _LONG_PREFIXES.items():
            if low.startswith(prefix) and (base := _CANONICAL.get(low.removeprefix(prefix), "")) in _SCALED:
                return base, Decimal(10) ** power
        for prefix, power in _PREFIXES.items():
            if form.startswith(prefix) and (base := form.removeprefix(prefix).strip()) in (*_SCALED, "\\Omega", "ohm"):
                return _CANONICAL.get(base, base), Decimal(10) ** power
    return (
        (word, Decimal(1))
        if word in _SCALED or len(word) < 3 or "\\" in word
        else (word.lower().rstrip("s"), Decimal(1))
    )


@lru_cache(maxsize=4096)
def canonical(unit: str) -> tuple[str, Decimal]:
    r"""Return a unit in its one form, with its scale: `km/h` and `kilometers per hour` are `m^1 s^-1`.

    What is no known unit is a name like any other.
    """
    for _ in range(3):
        unit = _FRACTION.sub(r" (\1)/(\2) ", unit)
    unit = (
        re.sub(r"\\(?:text|mathrm|rm|mathit|cdot|times)(?![A-Za-z])", " ", unit)
        .replace("\\mu ", "µ")
        .replace("\\mu", "µ")
    )
    unit = re.sub(r"\^\s*\{\s*([+-]?\d)\s*\}", r"^\1", unit).replace("{", " ").replace("}", " ")
    powers: dict[str, int] = {}
    scale, turn, power_next = Decimal(1), 1, 1
    last: tuple[str, int, Decimal] | None = None
    groups: list[int] = []
    sign = 1
    for match in _TOKEN.finditer(re.sub(r"([kMGmnµ])\s*\\Omega", r"\1Ω", unit)):
        token = match[0]
        low = token.lower()
        if token == "/" or low == "per":
            turn = -1
        elif token == "(":
            groups.append(sign)
            sign, turn = sign * turn, 1
        elif token == ")":
            sign = groups.pop() if groups else 1
        elif token[0] == "^" or low in ("squared", "cubed"):
            n = int(match[1]) if match[1] else {"squared": 2, "cubed": 3}[low]
            if last:
                name, direction, size = last
                powers[name] += direction * (n - 1)
                scale *= size ** (direction * (n - 1))
        elif low in ("square", "sq", "cubic"):
            power_next = 3 if low == "cubic" else 2
        elif low not in SCALES and low != "of":
            name, size = _simple(token)
            direction = sign * turn
            powers[name] = powers.get(name, 0) + direction * power_next
            scale *= size ** (direction * power_next)
            last, turn, power_next = (name, direction, size), 1, 1
    return " ".join(f"{name}^{n}" for name, n in sorted(powers.items()) if n), scale

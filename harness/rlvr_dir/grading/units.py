r"""Recognise what may follow a number without changing it: units and counted things, from closed lists.

    read_unit(r"\text{ m/s}^2", bare=False)   # {"m": 1, "s": -2}
    read_unit(r"\text{ or more}", bare=False) # None

A word on no list is not a unit. Nothing is converted: km and m are two units.
"""

import re
from collections import Counter
from functools import lru_cache

# The one name of each unit, and its other ones; those of the first table take prefixes.
_SCALED = {
    "m": "meter metre", "g": "gram gramme", "s": "second sec", "A": "ampere amp", "K": "kelvin", "N": "newton",
    "J": "joule", "W": "watt", "V": "volt", "C": "coulomb", "F": "farad", "S": "siemens", "T": "tesla", "H": "henry",
    "Hz": "hertz", "Pa": "pascal", "Wb": "weber", "Bq": "becquerel", "Gy": "gray", "Sv": "sievert",
    "eV": "electronvolt", "mol": "mole", "rad": "radian", "kat": "katal", "cal": "calorie", "bar": "", "erg": "",
    "dyn": "dyne", "lm": "lumen", "lx": "lux", "cd": "candela", "pc": "parsec", "sr": "steradian",
    "L": "l liter litre", "Ω": "ohm Ohm", "B": "byte", "bit": "",
}  # fmt: skip
_OTHER = {
    "min": "minute", "h": "hour hr", "day": "d", "week": "", "month": "", "yr": "year y", "decade": "", "century": "",
    "in": "inch", "ft": "foot feet", "yd": "yard", "mi": "mile", "lb": "lbs pound", "oz": "ounce", "gal": "gallon",
    "ton": "tonne", "acre": "", "mph": "", "kmph": "", "rpm": "", "atm": "", "torr": "", "AU": "", "ly": "lightyear",
    "ppm": "", "ppb": "", "amu": "u", "dB": "decibel", "cc": "", "Å": "angstrom", "Msun": "", "Lsun": "", "Rsun": "",
    "D": "debye", "M": "molar", "G": "gauss", "°": "deg degree", "°C": "celsius", "°F": "fahrenheit", "Jy": "jansky",
    "arcsec": "arcsecond", "arcmin": "arcminute", "rev": "revolution", "cycle": "", "$": "dollar USD buck",
    "€": "euro EUR", "£": "GBP", "¢": "cent", "penny": "", "₹": "rs rupee INR", "¥": "yen JPY", "yuan": "", "unit": "",
    "mmHg": "", "psi": "", "mag": "magnitude", "solar": "", "mass": "",
}  # fmt: skip
_PREFIXES = {
    "k": "kilo", "M": "mega", "G": "giga", "c": "centi", "m": "milli", "µ": "micro", "n": "nano", "p": "pico",
    "f": "femto", "T": "tera", "d": "deci", "h": "hecto", "a": "atto",
}  # fmt: skip
_THINGS = frozenset(re.findall("[a-z]+", """
    animal apple arrangement bacteria ball banana bird block board boat book bottle box boy bus candy car card case
    cat cell chair child children chocolate choice circle class coin color combination computer container cookie
    copy count cow crate cube cup cupcake customer date digit division divisor dog door edge egg element employee
    error event face factor family fish flavor flower function gallon game girl glass grade group guest hat head
    home horse house integer intersection item jar job key kid kind king lamp leaf leaves leg letter line liter log
    man marble match meal member men mice monkey mouse muffin muffins multiple name necklace number object orange
    outcome owl pack page painting pair pass path pattern pen pencil people permutation person petal phone photo pie
    piece pizza place plant player point pole polygon position possibility possible potato present prime prize
    problem product profit prop quadruple quart question rabbit rectangle region result ring role room root rope
    round row sample school scoop seat section sector segment selection sentence sequence session set share sheep
    sheet shelf ship shirt shot side sister sitting slice snack sock solution song space squares star state step
    stick sticker stone stop store story string student subset suit symbol table tank task teacher team term test
    thing ticket tie tile tour toy train tree triangle trip triple truck value vase vertex vertices vote walk way
    window woman women word worker zebra
"""))  # fmt: skip
_SILENT = frozenset(["of", "the", "each", "old", "long", "tall", "wide", "high", "deep", "away", "altogether", "total"])
# What may stand before such a word and counts the same; "negative", "more" and "half" do not.
_ADJECTIVES = (
    "such|distinct|different|possible|valid|unique|ordered|lattice|positive|nonnegative|non-negative|real|rational|complex"
    "|whole|natural|odd|even|prime"
)
_NAMES = {
    name: unit
    for table in (_OTHER, _SCALED)
    for unit, others in table.items()
    for name in (unit, *filter(None, others.split(" ")))
}
_GROUPED = re.compile(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_TOKEN = re.compile(r"(/|\bper\b)|(?:\b(sq(?:uare)?|cubic|cu)\b\.?\s*)?((?:[A-Za-zµΩÅ]+|°[CF]?|[$€£¢¥₹]))"
                    r"(?:\s*\^\s*\{?\s*([+-]?\d)\s*\}?|\s+(squared|cubed)\b)?")  # fmt: skip
_SPELLINGS = (
    (re.compile(rf"\b(?:[a-z]+-digit|{_ADJECTIVES}) (?=[a-z]{{3,}})"), ""),
    (re.compile(r"([kMGm]?[WA])h\b"), r"\1 h"),  # kWh
    (re.compile(r"\^\{\\circ\}\s*([CF])?"), r" °\1 "),
    (re.compile(r"([MRL])\s*_\s*\{?\s*\\odot\s*\}?"), r"\1sun"),
    (re.compile(r"\\mathring\s*\{?\s*A\s*\}?|\\AA|\bAA\b"), "Å"),
    (re.compile(r"\\mu\s*"), "µ"),
    (re.compile(r"\\(?:Omega|ohm)(?![A-Za-z])"), "Ω"),
    (re.compile(r"([kMGmnµ])\s+Ω"), r"\1Ω"),
    (re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/(\2)"),
    (re.compile(r"\\(?:cdot|times)(?![A-Za-z])"), "."),
    (re.compile(r"\\\$"), "$"),
)


@lru_cache(maxsize=4096)
def read_unit(text: str, *, bare: bool) -> dict[str, int] | None:
    r"""Read all of a text as a unit: its parts and their powers; None for any other text.

    `bare`: letters outside `\text{...}` may be a unit as well.
    """
    if text.count("(") != text.count(")") or not (bare or not re.search(r"(?<!\\)\b[A-Za-z]", _GROUPED.sub("", text))):
        return None
    text = _GROUPED.sub(r" \1 ", text.replace(r"\text{^{\circ}}", r"^{\circ}")).replace(r"^{\circ} \text", r"^{\circ}")
    for pattern, to in _SPELLINGS:
        text = pattern.sub(to, text)
    if re.sub(r"[\s().*{}-]", "", _TOKEN.sub("", text)):
        return None
    powers: Counter[str] = Counter()
    sign, words = 1, _TOKEN.findall(text)
    if not words and text.strip(" {}"):
        return None  # 5-
    for per, before, word, exponent, after in words:
        if per:
            sign = -1
        elif word not in _SILENT:
            if (unit := _unit_name(word)) is None:
                return None
            power = {"sq": 2, "cu": 3}.get((before or after)[:2], 1)
            powers[unit] += sign * (int(exponent) if exponent else power)
    return {unit: power for unit, power in powers.items() if power}


def _unit_name(word: str) -> str | None:
    """Return the one name of a unit, with its prefix; None if the word is on no list."""
    low = word.lower()
    forms = (
        [word] if len(word) < 3 else [word, low, *(low.removesuffix(end) for end in ("s", "es") if low.endswith(end))]
    )
    for form in forms:
        if form in _NAMES:
            return _NAMES[form]
        if form in _THINGS or (form.endswith("i") and f"{form[:-1]}y" in _THINGS):
            return form
        for short, name in _PREFIXES.items():
            for prefix in (short, name) if form == word else (name,):
                if form.startswith(prefix) and _NAMES.get(form.removeprefix(prefix)) in _SCALED:
                    return short + _NAMES[form.removeprefix(prefix)]
    return None

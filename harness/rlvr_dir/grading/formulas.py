r"""Compare two formulas: read by math-verify's parser, compared by values, then by math-verify.

math-verify's `parse` looks for an answer in prose and guesses. It drops a last letter that might be a unit
(`\frac{1}{\sqrt{2}} c`), the prime of `y'` and the case of letters. If it cannot read a formula, it takes the last
number in it. Here a formula is read completely, with its letters unchanged, or not at all.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rlvr_dir.grading.normalise import FUNCTIONS, GROUP, split, squeeze
from rlvr_dir.grading.numbers import Number, far, read_in_base, read_number
from rlvr_dir.grading.structure import ORDER, forwards
from rlvr_dir.grading.units import read_unit

NEAR = 0.01  # relative: 2/3 \approx 0.67
MOST_FACTORS = 300  # of a product that is multiplied out

_DEGREES = re.compile(r"(-?\d+(?:\.\d+)?|-?\\frac\s*\{\d+\}\s*\{\d+\})\s*\^\{\\circ\}")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
# Whose value hangs on what was meant: degrees or radians, the base of a logarithm.
_UNCLEAR = re.compile(
    r"\\arc|\\log(?!\s*_)|(?=.*\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z]))(?!.*(?:\\circ|\\pi)(?![A-Za-z]))", re.DOTALL
)
# A side of a chain that has a value, if it is any formula at all: digits, signs, e, i, and commands that compute.
_NUMERIC = re.compile(
    r"(?=.*(?:\d|\\(?:infty|emptyset|pi)(?![A-Za-z])))(?:[^A-Za-z\\]|\\[{}%|]|(?<![A-Za-z])[ei](?![A-Za-z])"
    r"|\\(?:frac|sqrt|cdot|times|binom|infty|emptyset|pi|circ|[lr](?:floor|ceil)|overline|log|ln|sin|cos|tan|cot|sec|csc"
    r"|gcd|lcm|max|min|bmod|mod|pmod|pm|mp)(?![A-Za-z]))+",
    re.DOTALL,
)
_SIZE = re.compile(r"[|#]\s*\\\{(.*)\\\}\s*\|?")
_REAL_AND_I = re.compile(r"(?:[^A-Za-z\\]|\\(?:frac|sqrt|cdot)(?![A-Za-z])|i(?![A-Za-z]))*")
_FACTOR_WORDS = re.compile(
    r"(?<![\\A-Za-z])(?:(?:half|third|quarter) of|twice|double|thrice|triple|times|not|minus|negative|opposite"
    r"|reciprocal|than)(?![A-Za-z])"
)
_BOUND = re.compile(r"\\(?:sum|prod|bigcup|bigcap)\s*_\s*\{\s*([a-z])\s*=")
_DERIVED = re.compile(r"(?<![A-Za-z\\])([A-Za-z])'+\s*\(\s*[a-z]\s*\)|\{\s*d\s*([A-Za-z])\s*\(\s*[a-z]\s*\)\s*\}")
_UNREADABLE = re.compile(
    r"\d\s+\.?\d|\d\s*_|''|[A-Za-z}\d)]\s*'|\\ldots|\?|:\s*0\d|(?:[-+*/]|\\(?:cdot|times))\s*$"  # 1 2 would be 1 + 2
    # what takes seconds, and is no answer: more than nine unions, letters in a matrix of five rows and columns
    r"|(?:\\cup.*){10}|matrix\}(?=(?:(?!\\end).)*[A-Za-z])(?:(?:(?!\\end)[^&])*&){13}"
)
_INTEGRATION = re.compile(r"\\(?:text|math[a-z]+|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+|_\{[^{}]*\}|([cC])")
_FONT = r"\\(?:text|math(?:rm|bf|it|sf|tt|cal)|rm|bf|it|boldsymbol|vec|operatorname)(?![A-Za-z])"
_LETTER = r"(?:\\(?!frac|cdot|times|left|right|prime)[A-Za-z]+|[A-Za-z])(?:_\{[A-Za-z0-9]+\})?"
_BOUNDED = r"\\(?:sum|prod|lim|int|log|min|max|inf|sup|bigcup|bigcap)(?![A-Za-z])"


def _plain(text: str) -> str:
    text = re.sub(_FONT, "", text).replace("+", "plus").replace("-", "minus").replace("*", "star")
    return re.sub(r"[^A-Za-z0-9]", "", text)


def _derivative(order: int, name: str) -> str:
    return f"\\Xi_{{d{order}{_plain(name)}}}"


def _conjugate(group: str) -> str:
    is_complex = "i" in group and _REAL_AND_I.fullmatch(group)
    return "(" + re.sub(r"i(?![A-Za-z])", "(-i)", group[1:-1]) + ")" if is_complex else rf"\\overline{group}"


_RECIPROCALS = {"coth": "tanh", "sech": "cosh", "csch": "sinh"}
# What the parser misreads, in the one form that it keeps whole.
_TABLE = (
    (rf"\\(?:overline|bar)\s*({GROUP})", lambda m: _conjugate(m[1])),
    (r"(\\log\s*_\s*\{[^{}]*\}\s*)(\d+(?:\.\d+)?)(?![\d.])", r"\1{\2}"),  # the parser adds up 2 and 5 of \log_{3} 25
    (r"\\hat\{([ijk])\}", r"{\1}"),  # alone, or not in a sum of basis vectors
    (r"\\(min|max|gcd|lcm)\s*\\\{([^{}]*)\\\}", r"\\\1(\2)"),
    (rf"\\text\s*\{{\s*({FUNCTIONS}|sgn)\s*\}}", r"\\\1 "),
    (r"(\\(?:ln|log(?:\s*_\s*\{[^{}]*\})?))\s*(\w+)\s*/\s*(?=\\(?:ln|log))", r"\1(\2)/"),
    # one over a function: a power that the parser takes for no inverse
    (r"\\(coth|sech|csch)(?![A-Za-z])\s*(?:\^\s*\{?\s*(\d)\s*\}?)?",
     lambda m: rf"\{_RECIPROCALS[m[1]]}^{{0-{m[2] or 1}}} "),
    (r"\\det\s*\(?\s*\\begin\{[pb]matrix\}(.*?)\\end\{[pb]matrix\}\s*\)?", r"\\begin{vmatrix}\1\\end{vmatrix}"),
    (r"((?:[\d)]|(?<![A-Za-z\\])[A-Za-z])\s*\^\s*(?:\d|\{[^{}]*\}))\s+(?=\d)", r"\1\\cdot "),  # 2^3 3^2
    (r"(\\(?:sin|cos|tan|cot|sec|csc|log|ln)\s*\^)\s*(\d)\s+(?=\d)", r"\1{\2} "),
    (rf"(?<![\\A-Za-z])({FUNCTIONS})(?=\s*[(^])", r"\\\1"),
    # 2(3) is 6, and no mixed number
    (r"(?<![\^_\\A-Za-z.\d])(\d+(?:\.\d+)?)\s*(?=\(|\\binom|\\sqrt)|(?<=\))\s*(?=[(\d])",
     lambda m: f"{m[1] or ''} \\cdot "),
    (r"\\text\s*\{\s*([A-Z]{2,})\s*\}", r"\1"),  # \text{MR} = MR
    (r"\\gamma(?![A-Za-z])(?!_)", r"\\Xi_{gamma}"),  # the parser's gamma is a function
    # indices in letters and digits
    (rf"({_BOUNDED})?\s*_\s*(?:\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}|({_FONT}\s*\{{[^{{}}]*\}}|\\[A-Za-z]+|[A-Za-z0-9]))",
     lambda m: m[0] if m[1] else f"_{{{_plain(m[2] if m[2] is not None else m[3])}}}"),
    # \dot{x}, x' and dx/dt are one derivative
    (rf"\\(d?)dot\s*(?:\{{\s*({_LETTER})\s*\}}|({_LETTER}))(_\{{[A-Za-z0-9]+\}})?",
     lambda m: _derivative(2 if m[1] else 1, (m[2] or m[3]) + (m[4] or ""))),
    (rf"({_LETTER})\s*('+)", lambda m: _derivative(len(m[2]), m[1])),
    (rf"\\frac\s*\{{\s*d\s*(?:\^\s*\{{?\s*(\d)\s*\}}?)?\s*({_LETTER})\s*\}}"
     r"\s*\{\s*d\s*[A-Za-z]\s*(?:\^\s*\{?\s*(\d)\s*\}?)?\s*\}",
     lambda m: _derivative(int(m[1] or 1), m[2]) if m[1] == m[3] else m[0]),
    # E_{1} and e_{1} are no constants
    (r"\\[A-Za-z]+|([EeIi]_\{[A-Za-z0-9]+\})", lambda m: f"\\Xi_{{{_plain(m[1])}}}" if m[1] else m[0]),
)  # fmt: skip
_REWRITES = tuple((re.compile(pattern), to) for pattern, to in _TABLE)


def compare_formulas(gold: str, answer: str) -> bool:
    r"""Return whether two formulas are the same: by values, or if there are none by math-verify."""
    from math_verify import verify
    from sympy import Eq, Expr

    from rlvr_dir.grading.values import same_values

    gold, answer = _in_radians([gold, answer])
    if gold.startswith(r"\{") != answer.startswith(r"\{") and re.search(ORDER, gold + answer):
        return False  # {3,4} is not an interval 3 < x < 4
    (gold, unit), (answer, other_unit) = _without_unit(gold), _without_unit(answer)
    if unit and other_unit and unit != other_unit:
        return False
    forms = [read_formula(forwards(text)) for text in (gold, same_constant(gold, answer))]
    if None in forms or (any(isinstance(form, Eq) for form in forms) and any(isinstance(form, Expr) for form in forms)):
        return False
    if forms[0] == forms[1]:
        return True
    matrices = any(getattr(form, "is_Matrix", False) for form in forms)  # these have no values at points
    if not matrices and (same := same_values(*forms)) is not None:
        return same
    try:
        return bool(verify(*forms, allow_set_relation_comp=True, timeout_seconds=None))
    except MemoryError:
        raise
    except Exception:  # a matrix beside a number: sympy refuses to compare what is not equal
        return False


def nearly(exact: str, rounded: str) -> bool:
    """Return whether two numbers, with or without units, differ by no more than NEAR."""
    from rlvr_dir.grading.values import near

    first, second = (read_formula(_without_unit(text)[0]) for text in (exact, rounded))
    return None not in (first, second) and near(first, second, NEAR)


def differ(sides: Sequence[str], last: str, *, rounded: bool = False, known: bool = True) -> bool:
    """Return whether the sides of a chain contradict its last one beyond rounding: 2 + 2 = 5, not 1/3 = 0.33.

    A side without letters and without a value contradicts every number (1/0 = 5), unless `known` is false. A side that
    may have several values (an angle without a degree sign, a logarithm without its base) contradicts none.
    """
    sides = [side for side in sides if not _UNCLEAR.search(side)]
    *numbers, value = map(_compute, _in_radians([*sides, last]))
    return value is not None and any(
        far(number, value, rounded) if number else known and _NUMERIC.fullmatch(side)
        for side, number in zip(sides, numbers, strict=True)
    )


def _compute(text: str) -> Number | None:
    """Return the number that a text is, directly or computed; None if it contains a letter or a word."""
    from rlvr_dir.grading.values import exact_value

    if number := read_number(text, bare_units=False) or read_in_base(text):
        return number
    if (elements := _SIZE.fullmatch(text)) and "\\ldots" not in text:
        return Number(Fraction(len({squeeze(item) for item in split(elements[1], ",") if item})))
    text, unit = _without_unit(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))
    value = exact_value(read_formula(text))
    return None if value is None else Number(value, "." if "." in text else "", unit=unit)


def has_factor(side: str) -> bool:
    """Return whether a side needs a letter: 2x, -x, x/3, 7 - x, not x + 1, `twice the sum`, not `the sum`."""
    from rlvr_dir.grading.values import has_slope

    quantity = re.sub(r"(?<![\\A-Za-z])(?<![_t]\{)[A-Z]{2,}(?![A-Za-z])", lambda match: rf"\Xi_{{{match[0]}}}", side)
    return bool(_FACTOR_WORDS.search(side)) or has_slope(read_formula(quantity))


def _in_radians(texts: Sequence[str]) -> list[str]:
    r"""Write degrees as multiples of \pi / 180 if one of the texts has an angle that is not in degrees."""
    if any("\\pi" in text or _TRIGONOMETRIC.search(text) for text in texts):
        return [_DEGREES.sub(r"(\1 \\pi / 180)", text) for text in texts]
    return [*texts]


def _without_unit(text: str) -> tuple[str, dict[str, int]]:
    r"""Split a formula from the unit after it, in `\text{...}`."""
    for words in re.finditer(r"(?<=[^\s_^{(\[+*/=<>,.-])\s*(?:\\mu\s*)?\\text\s*\{", text):
        unit = read_unit(text[words.start() :], bare=False)
        if words.start() and unit:
            return text[: words.start()], unit
    return text, {}


def same_constant(gold: str, answer: str) -> str:
    """Write the answer with its constant `C` as in the gold; all other letters differ by their case."""
    cases = [{match[1] for match in _INTEGRATION.finditer(text) if match[1]} for text in (gold, answer)]
    if len(cases[0]) == len(cases[1]) == 1 and cases[0] != cases[1]:
        (constant,) = cases[0]
        return _INTEGRATION.sub(lambda m: constant if m[1] else m[0], answer)
    return answer


def _too_long(product: Any) -> bool:
    """Return whether a product takes seconds: it has many factors, with more in them than the index letter."""
    (letter, first, last), term = product.limits[0], product.function
    rational = term.free_symbols <= {letter} and term.is_rational_function(letter)
    return (last - first).is_Integer and last - first > MOST_FACTORS and not rational


@lru_cache(maxsize=512)
def read_formula(text: str) -> Any:
    """Return the sympy object for a normalised text; None if not all of it can be read."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify.parser import should_treat_as_complex
    from sympy import Basic, Integral, Limit, Product, Sum, UnevaluatedExpr

    for bound in _BOUND.findall(text):  # the letter of a sum is nobody else's
        if "j" not in re.sub(r"\\[a-z]+", "", text):
            text = re.sub(rf"(?<![\\A-Za-z]){bound}(?![A-Za-z])", "j", text)
    for match in _DERIVED.finditer(text):  # x'(t) = kx(t) - a is x' = kx - a
        name = rf"(\\[A-Za-z]+|{match[1] or match[2]}'*)(\s*\(\s*[a-z]\s*\))?"
        text = re.sub(name, lambda m: m[0] if m[1][0] == "\\" else m[1], text)
    for pattern, to in _REWRITES:
        text = pattern.sub(to, text)
    if not text.strip() or _UNREADABLE.search(text):
        return None
    try:
        form: Any = latex2sympy(
            text,
            is_real=not should_treat_as_complex(text),
            convert_degrees=False,
            normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="none"),
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
        if not isinstance(form, Basic) or not form.has(Sum, Product, Integral, Limit, UnevaluatedExpr):
            return form
        return None if any(map(_too_long, form.atoms(Product))) else form.doit()
    except MemoryError:
        raise
    except Exception:  # the parser raises bare Exceptions, and sympy whatever it likes
        return None

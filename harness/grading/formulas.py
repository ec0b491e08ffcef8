r"""Whether two formulas are the same: read by math-verify's parser, compared by values, then by math-verify.

`parse` of math-verify looks for an answer in prose and guesses: it drops a last letter that might be a unit
(`\frac{1}{\sqrt{2}} c`), the prime of `y'` and the case of letters, and where it cannot read a formula it takes the
last number in it. Here a formula is read whole, with its letters as they are, or not at all.
"""

import re
from functools import lru_cache
from typing import Any

from harness.grading.values import near, same_values

APPROXIMATELY = r"\approx "
NEAR = 0.01  # relative: 2/3 \approx 0.67

_FONT = r"\\(?:text|math(?:rm|bf|it|sf|tt|cal)|rm|bf|it|boldsymbol|vec|operatorname)(?![A-Za-z])"
_FONTS = re.compile(_FONT)
_SUBSCRIPT = re.compile(
    rf"\s*_\s*(?:\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}|({_FONT}\s*\{{[^{{}}]*\}}|\\[A-Za-z]+|[A-Za-z0-9]))"
)
_LETTER = r"(?:\\(?!frac|cdot|times|left|right|prime)[A-Za-z]+|[A-Za-z])(?:_\{[A-Za-z0-9]+\})?"
_DOTS = re.compile(rf"\\(d?)dot\s*(?:\{{\s*({_LETTER})\s*\}}|({_LETTER}))(_\{{[A-Za-z0-9]+\}})?")
_PRIMES = re.compile(rf"({_LETTER})\s*('+)")
_LEIBNIZ = re.compile(
    rf"\\frac\s*\{{\s*d\s*(?:\^\s*\{{?\s*(\d)\s*\}}?)?\s*({_LETTER})\s*\}}"
    r"\s*\{\s*d\s*[A-Za-z]\s*(?:\^\s*\{?\s*(\d)\s*\}?)?\s*\}"
)
_CAPITALS = re.compile(r"\\(?:text|mathrm|mathit)\s*\{\s*([A-Z]{2,})\s*\}")  # \text{MR} = MR
_GAMMA = re.compile(r"\\gamma(?![A-Za-z])(?!_)")  # the parser's gamma is a function
_CONSTANT_NAME = re.compile(r"\\[A-Za-z]+|([EeIi]_\{[A-Za-z0-9]+\})")
_UNREADABLE = re.compile(r"\d\s+\.?\d|\d\s*_|''|[A-Za-z}]\s*'")  # 1 2 would be 1 + 2, and 11_2 eleven
_INTEGRATION = re.compile(r"\\(?:text|math[a-z]+|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+|_\{[^{}]*\}|([cC])")
_ANGLE = re.compile(r"(\d+(?:\.\d+)?)\s*\^\{\\circ\}")
_PRODUCT = re.compile(
    r"(?<![\^_\\A-Za-z.\d])(\d+(?:\.\d+)?)\s*(?=\(|\\binom)|(?<=\))\s*(?=[(\d])"
)  # 2(3) is 6, and no mixed number
_POWER_OF_FUNCTION = re.compile(r"(\\(?:sin|cos|tan|cot|sec|csc|log|ln)\s*\^)\s*(\d)\s+(?=\d)")
_DERIVED = re.compile(r"(?<![A-Za-z\\])([A-Za-z])'+\s*\(\s*[a-z]\s*\)|\{\s*d\s*([A-Za-z])\s*\(\s*[a-z]\s*\)\s*\}")
_FUNCTION = re.compile(r"(?<![\\A-Za-z])((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp)(?=\s*[(^])")  # cos(x)
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


def compare_formulas(gold: str, answer: str) -> str:
    r"""Return `correct` or `wrong`; `grader_error` where there is no gold. A gold after `\approx` is a rough value."""
    from math_verify import verify
    from sympy import Eq, Expr

    expected = read_formula(gold.removeprefix(APPROXIMATELY))
    if expected is None:  # compared as text already
        return "wrong" if gold.strip() else "grader_error"
    found = read_formula(same_constant(gold, answer))
    if found is None:
        return "wrong"
    if any(isinstance(one, Eq) and isinstance(other, Expr) for one, other in ((expected, found), (found, expected))):
        return "wrong"
    if gold.startswith(APPROXIMATELY):
        return "correct" if near(expected, found, NEAR) else "wrong"
    if (values := same_values(expected, found)) is not None:
        return "correct" if values else "wrong"
    try:
        return "correct" if verify(expected, found, timeout_seconds=None) else "wrong"
    except MemoryError:
        raise
    except Exception:  # a matrix beside a number: sympy refuses to compare what is not equal
        return "wrong"


def same_constant(gold: str, answer: str) -> str:
    """Write the answer with its constant `C` as in the gold; all other letters differ by their case."""
    cases = [{match[1] for match in _INTEGRATION.finditer(text) if match[1]} for text in (gold, answer)]
    if len(cases[0]) == len(cases[1]) == 1 and cases[0] != cases[1]:
        (constant,) = cases[0]
        return _INTEGRATION.sub(lambda m: constant if m[1] else m[0], answer)
    return answer


@lru_cache(maxsize=512)
def read_formula(text: str) -> Any:
    """Read the sympy object that a normalised text stands for; None where not all of it can be read."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify.parser import should_treat_as_complex

    text = names(_POWER_OF_FUNCTION.sub(r"\1{\2} ", text))
    if not text.strip() or _UNREADABLE.search(text):
        return None
    try:
        return latex2sympy(
            text,
            is_real=not should_treat_as_complex(text),
            normalization_config=NormalizationConfig(malformed_operators=True, nits=True, boxed="none"),
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except MemoryError:
        raise
    except Exception:  # the parser raises bare Exceptions, and sympy whatever it likes
        return None


def names(text: str) -> str:
    r"""Write `text` with its names in the one form that the parser keeps whole.

    Subscripts in letters and digits; E_{1} and e_{1} are no constants; \dot{x}, x' and dx/dt are one derivative;
    degrees inside sines are in radians.
    """
    text = _PRODUCT.sub(lambda m: f"{m[1] or ''} \\cdot ", _FUNCTION.sub(r"\\\1", text))
    text = _without_argument(text)
    text = _GAMMA.sub(r"\\Xi_{gamma}", _CAPITALS.sub(r"\1", text))
    text = _SUBSCRIPT.sub(lambda m: f"_{{{_plain(m[1] if m[1] is not None else m[2])}}}", text)
    text = _DOTS.sub(lambda m: _derivative(2 if m[1] else 1, (m[2] or m[3]) + (m[4] or "")), text)
    text = _PRIMES.sub(lambda m: _derivative(len(m[2]), m[1]), text)
    text = _LEIBNIZ.sub(lambda m: _derivative(int(m[1] or 1), m[2]) if m[1] == m[3] else m[0], text)
    if _TRIGONOMETRIC.search(text):
        text = _ANGLE.sub(r"(\1 \\pi / 180)", text)
    return _CONSTANT_NAME.sub(lambda m: f"\\Xi_{{{_plain(m[1])}}}" if m[1] else m[0], text)


def _without_argument(text: str) -> str:
    r"""Write `x'(t) = kx(t) - a` as `x' = kx - a`: the function that has a derivative, without its variable."""
    for match in _DERIVED.finditer(text):
        name = re.escape(match[1] or match[2])
        at = re.compile(rf"(\\[A-Za-z]+|{name}'*)(\s*\(\s*[a-z]\s*\))?")
        text = at.sub(lambda m: m[0] if m[1][0] == "\\" else m[1], text)
    return text


def _derivative(order: int, name: str) -> str:
    return f"\\Xi_{{d{order}{_plain(name)}}}"


def _plain(text: str) -> str:
    return re.sub(
        r"[^A-Za-z0-9]", "", _FONTS.sub("", text).replace("+", "plus").replace("-", "minus").replace("*", "star")
    )

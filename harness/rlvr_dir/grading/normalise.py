r"""Write an answer as canonical LaTeX, with rewrites that change no meaning, and without the sentence around it.

    normalise(r"\textbf{２０４}.")   # 204
    normalise(r"3e6")                # 3\times 10^{6}

Ambiguous text is left unchanged. This module also matches brackets, and splits a text outside all of them.
"""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from rlvr_dir.grading.residues import reduced

_GREEK = re.findall("[a-z]+", """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho
    varsigma sigma tau upsilon phi chi psi omega""")  # fmt: skip
_CAPITALS = dict(zip("ΓΔΘΛΞΠΣΦΨ", re.findall("[a-z]+", "gamma delta theta lambda xi pi sigma phi psi"), strict=True))
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/",
    "∕": "/", "⁄": "/", "∗": "*", "°": r"^{\circ}", "∘": r"^{\circ}", "√": r"\sqrt ", "∞": r"\infty ", "±": r"\pm ",
    "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ", "∖": r"\setminus ", "∀": r"\forall ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": "(", "⟩": ")", "〈": "(", "〉": ")",
    "∅": r"\emptyset ", "µ": r"\mu ", "Ω": r"\Omega ", "Å": r"\AA ", "℃": r"^{\circ}\text{C}", "∠": r"\angle ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "½": " 1/2", "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3",
    "⇒": r"\Rightarrow ", "∴": r"\therefore ", "→": r"\to ", "↦": r"\mapsto ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "“": "", "”": "", '"': "", "′": "'", "…": r"\ldots ", **dict.fromkeys("\u200b\ufeff\ufe0f✓✔✅☑", ""),
    **{char: rf"\mathbb{{{letter}}}" for char, letter in zip("ℝℤℕℚℂ", "RZNQC", strict=True)},
}  # fmt: skip
_CHARACTERS = {
    **{chr(0x3B1 + i): f"\\{name} " for i, name in enumerate(_GREEK)},
    **{char: f"\\{name.capitalize()} " for char, name in _CAPITALS.items()},
    **_SYMBOLS,
}
_RAISED = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱᵃᵇᵏᵐᵒʰᵗˢʳᵈˣʸᵀº]+)|([₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₐₑₒₓᵢⱼₖₗₘₙₚₛₜ]+)")
_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_ROOT = re.compile(r"([√∛∜])\s*(?:(\d+(?:\.\d+)?)|\(([^()]*)\))")
# Compatibility characters that are the same character in another style; circled digits and the like are not.
_SAME = ("<wide>", "<narrow>", "<font>", "<compat>", "<noBreak>", "<square>")

_END = r"(?![A-Za-z])"
_TEXT = r"\\text\s*\{"
GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_INSIDE = f"({GROUP[2:-2]})"
# What TeX takes as an argument without braces: a command with its own arguments, or one character.
_FONT = "math(?:bf|bb|rm|it|sf|tt)|text(?:rm|bf|it)?"
_TOKEN = (
    rf"(\\(?:frac|binom)\s*{GROUP}\s*{GROUP}|\\(?:sqrt\s*(?:\[[^\[\]]*\])?|{_FONT})\s*{GROUP}"
    rf"|\\(?!(?:frac|binom|sqrt|{_FONT})(?![A-Za-z]))[A-Za-z]+|\w)"
)
FUNCTIONS = (
    "(?:arc?)?(?:sinh|cosh|tanh)|coth|sech|csch|(?:arc)?(?:sin|cos|tan|cot|sec|csc)|ln|log|exp|gcd|lcm|max|min|det"
)
_SIZE = "tiny|scriptsize|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge|rm|bf|it|sf|tt|em|bfseries|itshape"
# A domain ends with the answer, or before the next equation: f(x)=2x \forall x \text{ or } f(x)=-x.
_NEXT = _TEXT + r"[ ,]*(?:and|or)[ ,]*\}[^=]*="
_DOMAIN = (
    rf"(?:{_TEXT}\s*[,(]?\s*(?:for (?:all|any|every|each|some|integers?|real)|where|with|,? ?[a-z] an integer)\b"
    rf"|{_TEXT}\s*for\s*\}}\s*[A-Za-z]\s*=(?!.*=)|\\forall)(?:(?!{_NEXT}).)*"
    rf"|(?:(?<=,)|(?<=, )|{_TEXT}[ ,]*\}})\s*[a-z]\s*{_TEXT}[ ,]*(?:any|is an?|an) [a-z ]+\}}"
    rf"|(?:{_TEXT}[ ,]*(?:for)?[ ,]*\}})?\s*[a-zA-Z]\s*\\in\s*\\mathbb\s*\{{?[A-Z]\}}?"
    r"(?:[\^_+*\d{}>]|\\cdot|\\ast)*\s*\)?"
)

# What each command is replaced by.
_COMMANDS = {
    " ": "checkmark blacksquare qed square Box surd displaystyle textstyle limits nolimits noindent",
    r"\\frac": "[dtcs]frac nicefrac", r"\\binom": "[dt]binom", "<": "lt", ">": "gt", r"\\le ": "leq leqq leqslant",
    r"\\ge ": "geq geqq geqslant", r"\\ne ": "neq", "|": "[lr]?vert mid", "(": "langle", ")": "rangle",
    r"\\{": "lbrace", r"\\}": "rbrace", "/": "div", ":": "colon", r"\\emptyset ": "varnothing", r"\\to ": "rightarrow",
    r"\\approx ": "simeq approxeq thickapprox doteq sim", r"\\Rightarrow ": "implies Longrightarrow",
    r"\\ldots ": "cdots dots[a-z]?", r"\\log ": "lg", r"\\\\ ": "cr", "£": "pounds",
}  # fmt: skip


def _circle(written: str, opened: int, closed: int) -> str:
    return written if opened > closed else r"^{\circ}" + "}" * (closed - opened)


_REALS = (
    r"^(?:\\text\s*\{)?\s*(?:[Tt]he set of )?[Aa]ll (?:reals|real (?:numbers?|values)(?: of)?)(?:,? [a-z](?= ?\}))?,?"
)


def _bracket(opened: str, inside: str, closed: str) -> str:
    return ("(" if opened == "]" else "[") + inside + (")" if closed == "[" else "]")


def _matrix(rows: str) -> str:
    return r"\begin{bmatrix}" + re.sub(r"\]\s*,\s*\[", r"\\\\", rows).replace(",", "&") + r"\end{bmatrix}"


def _degrees(degrees: str, minutes: str, seconds: str | None) -> str:
    value = int(degrees) + Fraction(int(minutes), 60) + Fraction(int(seconds or 0), 3600)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}^{{\circ}}"


def _indexed(answer: str, domain: str, letter: str) -> str:
    r"""Drop `n \\ge 1` after an answer that contains n."""
    return answer if letter in re.sub(r"\\[A-Za-z]+", "", answer) else answer + domain


_CURRENCIES = {"US$": r"\$", "USD": r"\$", "$": r"\$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "Rs": "₹"}
_CURRENCY = r"(US\\?\$|\\\$|USD|EUR|GBP|JPY|INR|Rs\.?|[€£¥₹])"


def _money(written: str) -> str:
    name = re.sub(r"[\\.]", "", written)
    return _CURRENCIES.get(name, name)


def _in_order(text: str) -> str:
    """Write `4 and 9`, which something is respectively, as a tuple."""
    items = re.sub(r"[,;]?\s*(?:\\text\s*\{[ ,]*and[ ,]*\}|(?<![A-Za-z\\])and(?![A-Za-z]))\s*", ",", text)
    return items if items[:1] == "(" or "," not in items else f"({items})"


_PART = re.compile(r"[,;]?\s*\\text\s*\{[,; ]*(?:and )?\(?([a-h]|[1-9]|i{1,3}|i?v)\)\s*\}")
_ENUMERATIONS = ("a b c d e f g h", "1 2 3 4 5 6 7 8 9", "i ii iii iv v")


def _parts(text: str) -> str:
    r"""Write `\text{(a) } 4 \text{; (b) } 9` as a tuple."""
    before, *groups = _PART.split(text)
    labels, values = " ".join(groups[::2]), [value.strip(" ,;") for value in groups[1::2]]
    if before.strip() or len(values) < 2 or not all(values) or not any(e.startswith(labels) for e in _ENUMERATIONS):
        return text
    return f"({','.join(values)})"


def _chosen(total: str, letter: str, taken: str) -> str:
    return rf"\binom{{{total}}}{{{taken}}}" if letter == "C" else rf"\frac{{({total})!}}{{({total}-{taken})!}}"


# In this order, at every place, until nothing changes.
_TABLE = (
    (r"\s+", " "),
    (r"</?(?:b|i|u|p|em|strong|span|div|center|code|answer|br) ?/?>|`+|<\|\w+\|>", " "),
    (r"&([gl])t;", lambda m: "<" if m[1] == "l" else ">"),
    (r"<(su)(?:(p)|b)>(.*?)</su[pb]>", lambda m: ("^" if m[2] else "_") + f"{{{m[3]}}}"),
    *((rf"\\(?:{'|'.join(names.split())}){_END}", to) for to, names in _COMMANDS.items()),
    (r"\\(?:left|right)(?:\.|(?![A-Za-z]))|\\[bB]igg?[lrm]?" + _END, ""),
    (r"\\(?:mathbf|boldsymbol|bm|vec|hat|overrightarrow)\s*\{\s*\\?([ijk])(?:math)?\s*\}", r"\\hat{\1}"),
    (r"\\(?:mathbf|boldsymbol|bm|vec|hat|overrightarrow)\s*\{\s*(\\hat\{[ijk]\})\s*\}", r"\1"),
    (rf"\\(?:f?boxed|fbox|bm|boldsymbol|mathbf|mathit|mathcal|mathnormal|pmb|underline|ensuremath|vec|overrightarrow)"
     rf"\s*\{{{_INSIDE}\}}", r"{\1}"),
    (r"\\(?:text(?:bf|it|rm|normal|sf|tt|up|sc|md|sl)|math(?:rm|sf|tt)|[mh]box|operatorname\*?)(?=\s*\{)", r"\\text"),
    (r"\{\s*\\rm(?![A-Za-z])\s*([^{}]*[A-Za-z][^{}]*)\}", r"\\text{\1}"),
    (rf"\\(?:{_SIZE}){_END}\s*", ""),
    (r"^\s*(\*\*|\*|__|')(.*)\1\s*$", r"\2"),
    (r"\\(?:text)?color(?:box)?\s*\{[\w!#]*\}|\\fcolorbox\s*\{[\w!#]*\}\s*\{[\w!#]*\}|\\bbox\s*\[[^\]]*\]", ""),
    (r"^\s*(?:\\(?:Rightarrow|therefore|because|to)" + _END + r"\s*)+", ""),
    (r"\{\s*([-+])\s*\}", r"\1"),
    (r"\\\\\s*&\s*(?==)", " "),  # a chain over several lines, and what has one line
    (r"(?:\\\{\s*(?!.*\\\}))?\\begin\s*\{((?:align|gather)(?:ed|\*)?|split|cases|array|equation\*?)\}"
     r"(?:\s*\{[lcr| ]*\})?((?:(?!\\\\|\\begin|&(?!\s*=)).)*)(?:\\\\\s*)?\\end\s*\{\1\}",
     lambda m: m[2].replace("&", "")),
    (r"\\tag\s*\{[^{}]*\}|" + _TEXT + r"\s*\(?\s*only\s*\)?\s*\}$|(?<=[\d}]) only$", ""),
    (_TEXT + r"\s*lg\s*\}", r"\\log "),
    (rf"{_TEXT}\s*\\text\s*\{{([^{{}}]*)\}}\s*\}}", r"\\text{\1}"),
    # digits in groups
    (r"(?<=\d)(?:\{,\}\s*|'|,\s*\\!\s*|\\,|\\!|\{\\,\}|\\thinspace ?|~)(?=\d{3}(?![\d.]))", ","),
    (r"(?<=\d)(?:\{,\}|,\\!)(?=\d{3}(?!\d))", ","),
    (r"(?<=\d),\\[,; ]\s*(?=\d{3}(?!\d))", ","),
    (r"\{,\}", ","),
    (r"^(?:\\text\s*\{)?\s*(\d+) to (\d+)\s*\}?$", r"\1:\2"),
    (r"\{:\}|(?<=[\d}]) *\\text\s*\{ ?to ?\}\s*(?=[\d\\])", ":"),
    # spaces
    (r"\\!", ""),
    (r"(?<!\\)\\[,;:> ]|~|\\q?quad" + _END + r"|\\h(?:space|skip)\*?\{[^{}]*\}|\\(?:thin|med|thick)?space" + _END, " "),
    (r"(?<!\\)\$|\\[()\[\]](?![^\\]*pt\])", " "),
    # spellings of one thing
    (r"(\\\\)\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]", r"\1 "),
    (r"\^\s*(-\s*(?:\d+|[A-Za-z]|\\frac\{[^{}]*\}\{[^{}]*\}))(?![\w(\\{])", r"^{\1}"),
    (r"(\\log\s*_\s*)(\d+)(?=\s)", r"\1{\2}"),  # \log_10 2
    (rf"\\(sqrt|{_FONT}|boldsymbol|vec|hat)(?![A-Za-z])(\s*\[[^\[\]]*\])?\s*{_TOKEN}", r"\\\1\2{\3}"),
    (rf"\\(frac|binom)(?![A-Za-z])\s*{_TOKEN}", r"\\\1{\2}"),
    (rf"\\(frac|binom)\s*({GROUP})\s*{_TOKEN}", r"\\\1\2{\3}"),
    (rf"(\\log\s*_|\^(?=\s*\\(?:frac|sqrt|binom)))\s*{_TOKEN}", r"\1{\2}"),
    (r"(?:\{\s*\}\s*|(?<![\w)}\]]))[\^_]\s*\{?(\w+)\}?\s*\{?(?:\\text\s*\{\s*)?([CP])[\s}]*_\s*\{?(\w+)\}?",
     lambda m: _chosen(*m.groups())),  # {}_6C_2
    (r"\{([^{}]*)\\choose" + _END + r"([^{}]*)\}", r"\\binom{\1}{\2}"),
    ("<=", r"\\le "),
    (">=", r"\\ge "),
    (r"(?<=[\d)}])!=", "! ="),  # 3!=6 is true
    (r"\\not\s*=|!=", r"\\ne "),
    (r"\\not\s*\\in" + _END, r"\\notin "),
    (r"\\\{\s*\\\}", r"\\emptyset "),
    # sets: ]2,5[ and words
    (r"(?:(?<![\w)}\]])|(?<=\\c[au]p))([\]\[])([^\[\](),;]*[,;][^\[\](),;]*)([\]\[])", lambda m: _bracket(*m.groups())),
    (r"\\(?:lor|vee)" + _END + r"(?=[^=<>]*(?:[=<>]|\\[lgn]e" + _END + "))", r"\\text{ or }"),
    (_REALS + r"\s*(?:\}\s*[a-z]?)?$", r"\\mathbb{R}"),
    (_REALS + r" ?(?:except|but|other than)(?: for)?\s*\}?\s*(?:[a-z]\s*=)?\s*(.+)$", r"\\mathbb{R}\\setminus\\{\1\\}"),
    (r"(\\mathbb\s*\{?R\}?)\s*(?:-|\\backslash" + _END + r")\s*(?=\\\{)", r"\1\\setminus"),
    (r"\^\s*(?:\{\s*)?(?:T|\\top|\\intercal|\\text\s*\{T\})(?:\s*\})?$", r"^{T}"),
    (r"^\[\s*\[([^\[\]]*(?:\]\s*,\s*\[[^\[\]]*)*)\]\s*\]$", lambda m: _matrix(m[1])),
    (r"^[\[(]([^()\[\]]*,[^()\[\]]*)[)\]]\^\{T\}$", r"(\1)"),
    (r"(?:^|(?<=[,;])|(?<=and \}))\s*(?:\\text\s*)?\{?([A-Z]'?(?:_\w)?)\}? *(?=\([^()=]*,[^()=]*\) *(?:$|[,;]|\\text))",
     r"\1="),  # P(3,4)
    (r"^<([^<>=]*,[^<>=]*)>$", r"(\1)"),
    (r"\.\.\.", r"\\ldots "),
    (rf"\\(?:text)?degrees?{_END}|{_TEXT}\s*degrees?\s*(?:([CcFf])(?:elsius|ahrenheit)?\s*)?\}}"
     r"|(?<=\d) ?degrees?\b(?: ([CcFf])(?:elsius|ahrenheit)?\b)?",
     lambda m: r"^{\circ}" + (rf"\text{{{scale.upper()}}}" if (scale := m[1] or m[2]) else "")),
    (rf"{_TEXT}\s*{_CURRENCY}\s*\}}\s*(?=[-\d.])|(?<![\\A-Za-z]){_CURRENCY}\s*(?=[-\d.])",
     lambda m: _money(m[1] or m[2])),
    (r"(?:\{\s*\})?\s*\^\s*\^?((?:\s|\{\s*\}\s*\^|\{)*)(?:\\circ|o(?=\s*\})|\^\{\\circ\}|\\text\s*\{\s*(?:o|\^\{\\circ\})\s*\})(?![A-Za-z])"
     r"((?:\s*\})*)", lambda m: _circle(m[0], m[1].count("{") - m[1].count("}"), m[2].count("}"))),
    (r"(?<!\})\{(-?\d+(?:\.\d+)?)\}(?=\s*\^\{\\circ\})", r"\1"),
    (r"(?<!\\)%|" + _TEXT + r"\s*(?:\\?%|percent|per cent|pct)\s*\}|(?<=\d)\s*percent\b", r"\\%"),
    (r"\^\s*\{\s*\\prime\s*\\prime\s*\}", "''"),
    (r"\^\s*\{?\s*\\prime" + _END + r"\s*\}?", "'"),
    (r"(\d+)\s*\^\{\\circ\}\s*(\d{1,2})'(?:\s*(\d{1,2})(?:''|$))?", lambda m: _degrees(*m.groups())),
    (r"(?<![\d.])(\d*\.\d*?)(?:(\d)\2\2+|(\d{2,6}?)\3+)\s*\\ldots(?!\s*[\d.])",
     lambda m: rf"{m[1]}\overline{{{m[2] or m[3]}}}"),  # 0.333...
    (r"^\s*\\text.*$", lambda m: _parts(m[0])),
    (rf"{_TEXT}\s*((?:[-+\d.,/ ()€£]|\\\$)*)\s*\}}", r"\1"),
    (r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\?(?<![A-Za-z])exp\s*[({]([^(){}]*)[)}]", r"e^{\1}"),
    (rf"(?<![\\A-Za-z_{{])({FUNCTIONS})(?=\s*[\^(])", r"\\\1"),
    (r"(?<![\\A-Za-z{])(theta|alpha|beta|gamma|lambda|omega|sigma|phi|tau|pi)(?![A-Za-z])", r"\\\1 "),
    (r"(?<![\\A-Za-z])(?:inf|infinity|oo)(?![A-Za-z])|" + _TEXT + r"\s*(?:infinity|inf)\s*\}", r"\\infty "),
    (r"\+\s*\\infty", r"\\infty"),
    (r"(?<=\S)\s*\*\*(?=\S)", "^"),
    (r"(?<![\\A-Za-z])abs\(([^()]*)\)", r"|\1|"),
    (r"(?<!\\operatorname)\*(?!\})", r"\\cdot "),
    (rf"(?<=\d)\s*(?:[xX]|{_TEXT}\s*[xX]\s*\}})\s*(?=10\s*\^)", r"\\times "),
    (r"(?<![A-Za-z0-9.\\}_^])(\d+\.?\d*|\.\d+)[eE]([+-]?)0*(\d+)(?!\.?\d|[A-Za-z_{!]|\^(?!\{\\circ))",
     lambda m: rf"{m[1]}\times 10^{{{m[2].strip('+')}{m[3]}}}"),
    (r"(?<![\d.])10\^([+-]?\d+)", r"10^{\1}"),
    # words that say nothing: a domain behind an answer, an ordinal ending, a remainder's chain
    (rf"(?<=\S)\s*[,;(]?\s*(?:{_DOMAIN})(?=$|{_NEXT})", ""),
    (rf"^((?:(?!\\[lgn]e{_END}|[<>]).)*[^\s,;(])"
     rf"(\s*(?:[,;(]|[,;(]?\s*{_TEXT}[ ,(]*for\s*\}})\s*([i-n])\s*(?:\\ge|>)\s*[0-3]\s*\)?)$",
     lambda m: _indexed(*m.groups())),
    (r"^(?:([A-Za-z])\s*:\s*)?([a-z])\s*\\mapsto" + _END, lambda m: f"{m[1]}({m[2]})=" if m[1] else ""),
    (rf"^(.+?)\s*(?:,?\s*{_TEXT}[ ,(]*respectively[ .)]*\}}|, ?respectively)$", lambda m: _in_order(m[1])),
    (rf"^(?:{_TEXT})?\s*(?:(?:[Tt]he )?[Ee]mpty set"
     r"|(?:[Tt]he(?:re| equation| system) (?:is|are|has) )?[Nn]o (?:real )?solutions?(?: exists?)?)\s*\}?$",
     r"\\emptyset "),
    (rf"(?<=[\d}}])\s*{_TEXT}\s*\(?"
     r"(?:exact(?:ly)?|precisely|[a-z-]+ form|(?:in )?total|approx(?:imately)?|as required|see above)\)?\s*\}$", ""),
    (r"(?<![\d.,])(\d+)\s*\^?\s*\{?\s*(?:\\text\s*\{)?\s*(?:th|st|nd|rd)\b\s*(?:\}\s*\}?|(?=[A-Za-z]*\}))?",
     lambda m: m[1] + (r"\text{" if "text" in m[0] and m[0][-1] != "}" else "")),
    (r"^.*mod.*$", lambda m: reduced(m[0])),
    (rf"^{_TEXT}\s*(-?\d[\d,]*(?:\.\d+)?)(?![\d,.:])\s*([A-Za-z ./]+)\}}$", r"\1\\text{\2}"),
    (rf"^{_TEXT}\s*([A-Za-z][A-Za-z',: ]*?)\s*(-?\d[\d.,/]*)\s*\}}$", r"\\text{\1}\2"),
    (rf"({_TEXT}[a-z ]+s) ?(?:of ?\}} ?[a-z]|\}} ?\([a-z](?:, ?[a-z])+\))$", r"\1}"),  # 12 values of n
    (r"(?<=[\d}])\s+([A-Za-z]{3,}(?: [A-Za-z]{2,}){0,8})$", r"\\text{\1}"),
    (r"(?:[\s,;:]|(?<!\.)\.|(?<!\\)\\\\|(?<![\\A-Za-z])\\)+$|^[\s:]+", ""),
)  # fmt: skip
_REWRITES = tuple((re.compile(pattern, re.DOTALL), to) for pattern, to in _TABLE)

# A sentence before an answer is dropped if each of its words is one of these or a single letter: what is not known may
# deny the answer or change its value ("x cannot be", "half of it is", "the answer exceeds").
_NEUTRAL = frozenset(re.findall("[a-z]+", """
    a about all an and angle answer answers approximately are area be by choice circle coefficient constant correct
    cost costs count degree derivative desired diameter distance distinct equal equals equation exact exactly
    expected expression final find following for formula function get has have height hence her his how i in integer
    integers is it its largest length limit many matrix maximal maximum mean measure minimal minimum minutes must
    number numbers obtain of option ordered our pairs people per perimeter polynomial positions possible precisely
    price probability product radius ratio real remainder required respectively result roots roughly set side sides
    simplified simplifies slope smallest so solution solutions speed sum surface takes that the their then there
    therefore this thus time to took total triangle triangles value values volume was ways we which width will with
    years
"""))  # fmt: skip
# A name that may stand in it: x, ABC, \omega_1, \triangle ABC, f(3).
_NAMED = (
    r"(?:[A-Za-z](?:_\w)?\s*(?:[+-]\s*[A-Za-z](?:_\w)?\s*)+"
    rf"|(?:\\(?:triangle|angle|overline|odot|{'|'.join(_GREEK)}){_END}\s*)?\{{?(?:[A-Za-z]{{1,5}}'?)?\}}?"
    r"(?:_\{?\w+\}?)?(?:\(\w{1,3}\))?\s*)"
)
_LEAD = re.compile(
    rf"\s*(?:((?:(?:{_NAMED})?\\text\s*\{{[A-Za-z', ]{{1,120}}:?\s*\}}\s*){{1,5}}):?"
    r"|([A-Za-z][A-Za-z', ]{0,120}?(?:\b(?:is|are|be|equals|about|approximately)\s*:?|\bto\s*:?|:)))"
    r"(?=[\s\d\\+({|.-])\s*(?!=)(?=\S)"
)
_OF_IT = re.compile(r"\bof (?:it|that|this|them|(?:the|our) (?:final |correct )?(?:answer|result|solution))\b")
# `D. 12`, `(D) 12`, `\text{D: } 12`, `\text{D. None of the above}`; words before the letter that say nothing
_CALLED = re.compile(
    r"^(\\text\s*\{)?\s*(?:(?:[Tt]he|[Mm]y|correct|right|final|best|[Aa]nswer|[Oo]ption|[Cc]hoice|is)\b[ :]*)+"
    r"(?=\(?[A-J]\b)"
)
_LABEL = re.compile(
    r"(?:\\text\s*\{\s*\(?([A-J])(?:\)|[.:])\s*\}|\\text\s*\{\s*(?:\(([A-J])\)|([A-J])[.:)])(?=\s*[^}\s])"
    r"|\(([A-J])\)(?=\s|\\|[\d{$]|$)|([A-J])[).:](?=\s))\s*(?![=^_'])"
)
_LETTER = re.compile(r"(?:\\text\s*\{)?\s*\(?([A-J])\)?\s*[.:]?\s*\}?")


def _raised(match: re.Match[str]) -> str:
    return ("^" if match[1] else "_") + "{" + unicodedata.normalize("NFKC", match[0]).replace("−", "-") + "}"


def _character(char: str) -> str:
    if char in _CHARACTERS:
        return _CHARACTERS[char]
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if unicodedata.decomposition(char).startswith(_SAME):
        return "".join(_CHARACTERS.get(c, c) for c in unicodedata.normalize("NFKC", char))
    return char


@lru_cache(maxsize=16384)
def normalise(text: str) -> str:
    """Return the canonical text of an answer; see the module."""
    text = _RAISED.sub(_raised, text)
    text = _ROOT.sub(lambda m: rf"\sqrt{_ROOTS[m[1]]}{{{m[2] or m[3]}}}", text)
    text = "".join(map(_character, text))
    for _ in range(6):
        before = text
        for pattern, to in _REWRITES:
            text = pattern.sub(to, text)
        text = _without_lead(text)
        if text[:1] == "{" and whole(text, 0):
            text = text[1:-1]
        if text == before:
            break
    return text


def _without_lead(text: str) -> str:
    lead = _LEAD.match(text)
    if lead is None or _LABEL.match(_CALLED.sub(r"\1", text)):
        return text
    texts = re.findall(r"\\text\s*\{([^{}]*)\}", lead[1] or "") or [lead[2] or ""]
    sentence = " ".join(texts).casefold()
    words = re.findall(r"[a-z']+", sentence)
    ends = lead[2] or ":" in lead[0] or words[-1:] in (["is"], ["are"], ["be"], ["equals"], ["to"])
    neutral = bool(words) and all(len(word) == 1 or word in _NEUTRAL for word in words)
    alone = max(map(len, words), default=0) > 1 and len(texts) == 1 and lead[0].lstrip().startswith("\\text")
    return text[lead.end() :] if neutral and (ends or alone) and not _OF_IT.search(sentence) else text


def choice(text: str) -> tuple[str, str]:
    r"""Split a normalised answer to a multiple choice; the letter is empty where there is none.

    >>> choice(r"\text{(C)} 12")
    ('C', '12')
    """
    text = _CALLED.sub(r"\1", text)
    if bare := _LETTER.fullmatch(text):
        return bare[1], ""
    if label := _LABEL.match(text):
        rest = text[label.end() :]
        return next(filter(None, label.groups())), normalise(f"\\text{{{rest}" if label[2] or label[3] else rest)
    return "", text


_BRACKET = re.compile(r"\\[\\{}()\[\]]|[{}()\[\]]|\\(begin|end)\s*\{[A-Za-z*]*\}")


def brackets(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Return where each bracket ends and how it changes the depth: +1 or -1."""
    spans = []
    for match in _BRACKET.finditer(text, start):
        last = match[0][-1]
        if match[1]:
            spans.append((match.end(), 1 if match[1] == "begin" else -1))
        elif match[0] != "\\\\":
            spans.append((match.end(), 1 if last in "{([" else -1))
    return spans


def whole(text: str, start: int) -> bool:
    r"""Return whether the bracket that opens at `start` closes at the very end of `text` (`\{` counts as a bracket)."""
    depth = 0
    for at, step in brackets(text, start):
        depth += step
        if depth == 0:
            return at == len(text)
    return False


def split(text: str, separator: str) -> list[str]:
    """Split `text` at the matches outside all brackets; in one piece if the brackets do not balance."""
    pieces, depth, start = [], 0, 0
    for match in re.finditer(rf"{separator}|(?P<bracket>{_BRACKET.pattern})", text):
        if match["bracket"]:
            depth += sum(step for _, step in brackets(match[0]))
        elif depth == 0:
            pieces.append(text[start : match.start()].strip())
            start = match.end()
        if depth < 0:
            return [text.strip()]
    return [text.strip()] if depth else [*pieces, text[start:].strip()]


def squeeze(text: str) -> str:
    r"""Return what two spellings of the same canonical text share: `E_{1}` and `E_1`, `\text{ red }` and `red`."""
    text = re.sub(r"\\text\s*\{\s*([^{}]*?)\s*\}", r"\1", text)
    text = re.sub(r"(\\[A-Za-z]+) +(?=[A-Za-z])", "\\1\0", text)  # \cos x keeps one blank
    return re.sub(r"([_^])\s*\{\s*(\w)\s*\}", r"\1\2", re.sub(r"(?<!\d) +| +(?!\d)", "", text))

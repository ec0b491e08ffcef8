r"""One canonical LaTeX text for an answer: the same characters, no layout, no label, no sentence, no trailing marks.

    normalise(r"\textbf{(B)}\ ２０４.")   # 204
    normalise(r"3e6")                     # 3 \times 10^{6}

Nothing here changes a value: what could be read in two ways is left as it is. Every step is one linear pass.
"""

import re
import unicodedata
from functools import lru_cache

# Compatibility characters that are the same character in another dress. The others (superscripts, fractions, circled
# digits) are not: plain NFKC turns 5² into 52 and 1½ into 11/2.
_SAME = {"<wide>", "<narrow>", "<font>", "<compat>", "<noBreak>", "<square>"}
_SYMBOLS = {
    "\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-",
    "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "π": r"\pi ", "∞": r"\infty ", "≈": r"\approx ", "∪": r"\cup ", "∈": r"\in ", "°": r"^{\circ}",
    "′": "'", "\u200b": "", "\ufeff": "", "√": r"\sqrt ",
}  # fmt: skip
_SPACES = re.compile(r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\(?:thin|med|thick)?space(?![A-Za-z])|\s+")
_SIZES = re.compile(
    r"\\(?:left|right)(?:\.|(?![A-Za-z]))|\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])|\\(?:displaystyle|textstyle)(?![A-Za-z])"
)
_FONT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|sc|md|up|normal|sl)|mbox|hbox|operatorname)\s*(?=\{)")
_SWITCH = (
    r"(?:tiny|scriptsize|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge|bf|it|rm|sf|tt|bfseries|itshape)"
    r"(?![A-Za-z])"
)
_SWITCHED = re.compile(rf"\{{\s*((?:\\{_SWITCH}\s*)+)((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}")
_SWITCHES = re.compile(rf"\\{_SWITCH}\s*")
_TAG = "(?:b|i|em|strong|u|p|span|div|center|code|answer)"
_TAGGED = re.compile(rf"<({_TAG})>(.*?)</\1>", re.DOTALL)
_MARKS = re.compile(  # what says that the answer ends here, or which of several it is
    rf"(?:\s|<br ?/?>|</{_TAG}>|\\tag\s*\{{[^{{}}]*\}}|\\(?:checkmark|blacksquare|qed|square|Box|surd)(?![A-Za-z])|✓|✔"
    r"|\\text\s*\{\s*\(?only\)?\s*\}|(?<=[\d}]) only)+\Z"
)
_COLOUR = re.compile(r"\\(?:text)?color\s*\{[A-Za-z!0-9]*\}")
_DRESSED = re.compile(
    r"\\(?:text|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|boxed|fbox|underline|ensuremath)\s*\{([^A-Za-z{}\\]*)\}"
)
_LABEL = re.compile(r"\s*(?:\\text\s*\{\s*\(?([A-J])[).:]\s*\}|\(([A-J])\)(?=\s|\\|$)|([A-J])[).:](?=\s))\s*")
_LEAD = re.compile(
    r"\s*(?:\\text\s*\{([A-Za-z', ]{1,120}:?)\s*\}|([A-Za-z][A-Za-z', ]{0,120}?"
    r"(?:(?<![A-Za-z])(?:is|are|be|equals|about|approximately)\s*:?|to\s*:?|:))(?=[\s$\d\\+(-]))\s*"
)
_SAID = re.compile(r"\\text\s*\{\s*([A-Za-z][^{}\\]*\d)\.?\s*\}")
_COPULA = ("is", "are", "be", "equals", "to", "about", "approximately")
# A sentence before the answer is dropped if each of its words is one of these or a single letter: what is not known may
# deny the answer or change its value ("x cannot be", "half of it is", "the answer exceeds").
_NEUTRAL = frozenset(re.findall("[a-z]+", """
    a about all an and angle answer answers approximately are area be by circle coefficient constant correct cost
    count degree derivative desired diameter distance distinct equal equals equation exact expected expression final
    find following for formula function get has have height hence her his how i in integer integers is it its
    largest length limit many maximal maximum matrix mean measure minimal minimum minutes must number numbers obtain of
    ordered our pairs people per perimeter polynomial positions possible price probability product radius ratio real
    remainder required respectively result roots set side sides simplified simplifies slope smallest so solution
    solutions speed sum surface that the their then there therefore this thus time to total triangle triangles value
    values volume was ways we which width will with years
"""))  # fmt: skip
_OF_IT = re.compile(
    r"\bof (?:it|that|this|them|(?:the|our|this|that) (?:final |correct )?(?:answer|result|solution))\b"
)
_BARE_WORDS = re.compile(r"(?<=[\d}])\s+([A-Za-z]{3,}(?: [A-Za-z]{2,}){0,8})\Z")  # 204 apples
_TAIL = re.compile(r"(?:\s|(?<!\.)\.|[,;:]|\\\\|\\)\Z")
_E_NOTATION = re.compile(
    r"(?<![A-Za-z0-9.\\}_^])((?:\d+\.?\d*|\.\d+))[eE]([+-]?\d+)(?!\.?\d|[A-Za-z_{!]|\^(?!\{\\circ))"
)
_GROUP = re.compile(
    r"(?<=\d)(?:\{,\}\s*|,\s*\\!\s*|\\,|\\!|\{\\,\})(?=\d{3}(?![\d.]))|(?<=\d)(?:\{,\}|,\\!)(?=\d{3}(?!\d))"
)
_COMMA_SPACE = re.compile(r"(?<=\d),\\,(?=\d{3}(?!\d))")  # 10,\,000 is written like 10,000
_CIRCLE = re.compile(
    r"(?:\{\s*\})?(?:\^(?:\s|\^|\{\s*\}|\{)*(?:\\circ(?![A-Za-z])|\\(?:text|mathrm)\s*\{\s*(?:o|\^\{\\circ\})\s*\}|\\degrees?(?![A-Za-z]))"
    r"|\\degrees?(?![A-Za-z])|\\textdegree(?![A-Za-z]))"
)
_BRACED_NUMBER = re.compile(r"(?<![A-Za-z_^}\\])\{(-?\d+(?:\.\d+)?)\}(?=\s*\^\{\\circ\})")
_PRIME = re.compile(r"\^\s*\{\s*((?:\\prime\s*)+)\}|\^\s*\\prime(?![A-Za-z])")
_FRAC = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SHORT_BINOMIAL = re.compile(r"\\[dt]?binom\s*(\d)\s*(\d)")
_CHOOSE = re.compile(r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}")
_ANGLES = re.compile(r"\\langle((?:[^,]|,(?!\s*\\rangle))*?,.*?)\\rangle(?![A-Za-z])")
_ROW_SPACE = re.compile(r"(\\\\)\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]")
_RING = re.compile(r"\\mathring\s*\{\s*(?:\\(?:text|mathrm)\s*\{\s*A\s*\}|A)\s*\}")
_OHM = re.compile(r"(?:\\(?:text|mathrm)\s*\{\s*([kMm])\s*\}|(?<=[\d\s}])([kM]))\s*\\Omega(?![A-Za-z])")
_MICRO = re.compile(r"(?:\\mu|µ|μ)\s*\{?\}?\s*\\(text|mathrm|rm)\s*\{\s*")
_SUN = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*([MLR])\s*\}\s*_\s*(?:\{\s*\\odot\s*\}|\\odot(?![A-Za-z]))|(?<![A-Za-z])([MLR])\s*_\s*\{\s*\\odot\s*\}"
)
_MEASURE = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*(-?\d[\d,]*(?:\.\d+)?)(?![\d,.:])\s*([A-Za-z ./]*)\}"
)  # \text{12th grade}
_SHORT_FRAC = re.compile(r"\\frac\s*(\d)\s*(\d|\{)")
_AROUND = [(rf"\{name}{{", "}") for name in ("boxed", "fbox", "underline", "mathbf", "boldsymbol", "bm")]
_AROUND += [("{", "}"), ("\\(", "\\)"), ("\\[", "\\]")]
_ROOT = re.compile(r"√\s*(\d+)")


def _characters(text: str) -> str:
    """Put ASCII and LaTeX for look-alikes; superscripts, subscripts and vulgar fractions keep their meaning."""
    if text.isascii():
        return text
    out: list[str] = []
    for char in _ROOT.sub(r"\\sqrt{\1}", text):
        tag, *parts = unicodedata.decomposition(char).split() or [""]
        digit = unicodedata.decimal(char, None)
        if char in _SYMBOLS:
            out.append(_SYMBOLS[char])
        elif digit is not None:
            out.append(str(digit))
        elif tag in ("<super>", "<sub>"):
            inner = "".join(_SYMBOLS.get(chr(int(p, 16)), chr(int(p, 16))) for p in parts)
            mark = "^{" if tag == "<super>" else "_{"
            joined = out and out[-1].startswith(mark)  # ¹² is twelve, not a tower
            out.append(f"{out.pop()[:-1]}{inner}}}" if joined else f"{mark}{inner}}}")
        elif tag == "<fraction>" and "2044" in parts:
            top, bottom = "".join(chr(int(p, 16)) for p in parts).split("\u2044")
            out.append(f"\\frac{{{top}}}{{{bottom}}}" if bottom else char)
        elif tag in _SAME:
            out.append("".join(_SYMBOLS.get(c, c) for c in unicodedata.normalize("NFKC", char)))
        else:
            out.append(char)
    return "".join(out)


@lru_cache(maxsize=16384)
def normalise(text: str) -> str:
    """Return the canonical text of an answer; see the module."""
    text = _ROW_SPACE.sub(r"\1 ", _characters(text))
    text = _GROUP.sub("", _COMMA_SPACE.sub(",", text))
    text = _SPACES.sub(" ", text).replace("\\!", "").replace("{,}", ",").replace("{:}", ":")
    text = _FRAC.sub(r"\\frac", _SIZES.sub("", text))
    text = _SHORT_FRAC.sub(lambda m: f"\\frac{{{m[1]}}}" + (m[2] if m[2] == "{" else f"{{{m[2]}}}"), text)
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", _SHORT_BINOMIAL.sub(r"\\binom{\1}{\2}", text))
    text = _COLOUR.sub("", _FONT.sub(r"\\text", _TAGGED.sub(r"\2", text)))
    text = _SWITCHES.sub("", _SWITCHED.sub(_switched, text))
    for _ in range(3):  # \mathbf{\text{204}}: a font changes no number
        text = _DRESSED.sub(r"\1", text)
    text = _BRACED_NUMBER.sub(r"\1", _circles(text))
    text = _PRIME.sub(lambda m: "'" * max(1, m[0].count("prime")), text)
    text = _SUN.sub(
        lambda m: f"{m[1] or m[2]}_\\odot ", _MICRO.sub(r"\\\1{µ", _OHM.sub(r"\\text{\1\2Ω}", _RING.sub("Å", text)))
    )
    text = _SAME_RELATION.sub(lambda m: _SAME_RELATIONS[m[0]], text)
    for _ in range(6):
        before = text
        text = _undress(_strip_tail(text))
        if label := _label(text):
            text = text[label.end() :] or label_letter(label)
        said = _SAID.fullmatch(text)  # \text{The answer is 204}
        text = _without_lead(said[1]) if said and _without_lead(said[1]) != said[1] else _without_lead(text)
        if text == before:
            break
    if measure := _MEASURE.fullmatch(text):
        text = f"{measure[1]}\\text{{{measure[2]}}}" if measure[2] else measure[1]
    if text.startswith("<") and text.endswith(">") and "," in text and not re.search("[<>]", text[1:-1]):
        text = f"({text[1:-1]})"
    text = _ANGLES.sub(r"(\1)", text)
    text = _BARE_WORDS.sub(r"\\text{\1}", text)
    return _E_NOTATION.sub(r"\1 \\times 10^{\2}", text).strip()


_SAME_RELATIONS = {
    r"\not=": r"\neq ", r"\not =": r"\neq ", r"\ne": r"\neq", r"\ge": r"\geq", r"\le": r"\leq",
    r"\implies": r"\Rightarrow", r"\iff": r"\Leftrightarrow", r"\varnothing": r"\emptyset", r"\to": r"\rightarrow",
}  # fmt: skip
_SAME_RELATION = re.compile(r"\\not ?=|\\(?:ne|ge|le|implies|iff|varnothing|to)(?![A-Za-z])")


def _switched(match: re.Match[str]) -> str:
    """Write `{\\rm kg}` as `\\mathrm{kg}`; a font changes neither numbers nor formulas."""
    inside = match[2].strip()
    roman = "rm" in match[1] and re.search("[A-Za-z]", inside) is not None
    return f"\\mathrm{{{inside}}}" if roman else f"{{{inside}}}"


def _circles(text: str) -> str:
    """Write a degree sign in one way, with the braces that close around it."""
    pieces, at = [], 0
    for match in _CIRCLE.finditer(text):
        opened, end = match[0].lstrip("{} \t").count("{") - match[0].lstrip("{} \t").count("}"), match.end()
        while opened > 0 and (closing := re.compile(r"\s*\}").match(text, end)):
            opened, end = opened - 1, closing.end()
        if opened > 0:
            continue
        pieces += [text[at : match.start()], r"^{\circ}"]
        at = end
    return "".join([*pieces, text[at:]])


def _label(text: str) -> re.Match[str] | None:
    label = _LABEL.match(text)
    return None if label is None or text[label.end() :].startswith(("=", "^", "_", "'")) else label


def label_letter(label: re.Match[str]) -> str:
    """Return the letter of a choice's label."""
    return next(filter(None, label.groups()))


def choice(text: str) -> tuple[str, str]:
    r"""Split an answer to a multiple choice: `\textbf{(C) } 12` is C and 12; the letter is empty where there is none.

    >>> choice(r"\textbf{(C) } 12")
    ('C', '12')
    """
    text = _FONT.sub(r"\\text", _SPACES.sub(" ", _SIZES.sub("", text))).strip()
    whole_text = re.fullmatch(r"\\text\s*\{(\s*\(?[A-J][).:][^{}]*)\}", text)  # \text{(E) none of these}
    text = whole_text[1] if whole_text else text
    if bare := re.fullmatch(r"(?:\\(?:text|mathrm|mathbf)\s*\{)?\s*\(?([A-J])\)?\s*\.?\}?\.?", text):
        return bare[1], ""
    if label := _label(_undress(text)):
        rest = _undress(text)[label.end() :]
        return label_letter(label), normalise(f"\\text{{{rest}}}" if whole_text and rest else rest)
    return "", normalise(text)


def _without_lead(text: str) -> str:
    """Drop the sentence before an answer, if all its words are known to leave the answer as it is."""
    lead = _LEAD.match(text)
    if lead is None or lead.end() >= len(text):
        return text
    said = (lead[1] or lead[2]).casefold()
    words = re.findall(r"[a-z']+", said)
    ends = said.rstrip().endswith(":") or (words and words[-1] in _COPULA)
    known = all(len(word) == 1 or word in _NEUTRAL for word in words)
    if not (ends and known and words) or _OF_IT.search(said):
        return text
    return text[lead.end() :]


def _strip_tail(text: str) -> str:
    """Drop the punctuation and spacing around a text; `0.333...` keeps its dots, which mean something."""
    text = text.lstrip(" :")
    if (marks := _MARKS.search(text)) and marks.start():
        text = text[: marks.start()]
    while match := _TAIL.search(text, max(0, len(text) - 3)):
        text = text[: match.start()]
    return text


def _undress(text: str) -> str:
    """Take off one pair of delimiters around the whole: `{204}`, `$204$`, `"even"`, `\\boxed{204}`."""
    if len(text) > 4 and text[:2] == text[-2:] == "**" and "**" not in text[2:-2]:
        return text[2:-2]
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1] and text[-2] != "\\":
        return text[1:-1]
    if len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        return text[1:-1]
    for opening, closing in _AROUND:
        if text.startswith(opening) and text.endswith(closing) and whole(text, len(opening) - 1):
            return text[len(opening) : -len(closing)]
    return text


def whole(text: str, start: int) -> bool:
    r"""Tell whether the bracket that opens at `start` closes at the very end of `text` (`\{` counts as a bracket)."""
    depth = 0
    for at, step in brackets(text, start):
        depth += step
        if depth == 0:
            return at == len(text)
    return False


_BRACKET = re.compile(r"\\[\\{}()\[\]]|[{}()\[\]]|\\(begin|end)\s*\{[A-Za-z*]*\}")


def brackets(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Find where each bracket ends and what it does to the depth: +1 or -1."""
    found = []
    for match in _BRACKET.finditer(text, start):
        last = match[0][-1]
        if match[1]:
            found.append((match.end(), 1 if match[1] == "begin" else -1))
        elif match[0] != "\\\\":
            found.append((match.end(), 1 if last in "{([" else -1))
    return found


_LOOSE = re.compile(r"(?<![0-9]) +| +(?![0-9])")
_TEXT = re.compile(r"\\(?:text|mathrm|mathit)\s*\{([A-Za-z ]*)\}")
_SMALL_GROUP = re.compile(r"([_^])\{([A-Za-z0-9])\}")


def squeeze(text: str) -> str:
    r"""Return what two spellings of one canonical text share: `E_{1}` and `E_1`, `\text{ red }` and `red`."""
    text = _TEXT.sub(r"\1", text)
    text = re.sub(r"(\\[A-Za-z]+) +(?=[A-Za-z])", "\\1\0", text)  # \cos x keeps one blank
    return _SMALL_GROUP.sub(r"\1\2", _LOOSE.sub("", text))

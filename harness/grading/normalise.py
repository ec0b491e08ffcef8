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
_SPACES = re.compile(r"\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\(?:thin|med|thick)?space(?![A-Za-z])|\s+")
_SIZES = re.compile(
    r"\\(?:left|right)(?:\.|(?![A-Za-z]))|\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])|\\(?:displaystyle|textstyle)(?![A-Za-z])"
)
_FONT = re.compile(r"\\(?:textbf|textit|textrm|textsf|textup|textnormal|mbox|operatorname)\s*(?=\{)")
_COLOUR = re.compile(r"\\(?:text)?color\s*\{[A-Za-z!0-9]*\}")
_DRESSED = re.compile(
    r"\\(?:text|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|boxed|fbox|underline|ensuremath)\s*\{([^A-Za-z{}\\]*)\}"
)
_LABEL = re.compile(r"\s*(?:\\text\s*\{\s*\(?([A-J])[).:]\s*\}|\(([A-J])\)(?=\s|\\|$)|([A-J])[).:](?=\s))\s*")
_LEAD = re.compile(
    r"\s*(?:\\text\s*\{)?[A-Za-z' ]{0,80}?\b(?:(?:is|are|be|equals|equal to|about|approximately)\b\s*:?|[Aa]nswer\s*:)"
    r"\s*(?:\}|(?=[\s$\d\\+-]))\s*"
)
_BARE_WORDS = re.compile(r"(?<=[\d}])\s+([A-Za-z]{3,}(?: [A-Za-z]{2,}){0,8})\Z")  # 204 apples
_DENIAL = re.compile(r"\b(?:not|no|never|than|or|if|nt)\b|n't")  # "less than or equal to 5" is not five
_TAIL = re.compile(r"(?:\s|(?<!\.)\.|[,;:]|\\\\|\\)\Z")
_E_NOTATION = re.compile(
    r"(?<![A-Za-z0-9.\\}_^])((?:\d+\.?\d*|\.\d+))[eE]([+-]?\d+)(?!\.?\d|[A-Za-z_{!]|\^(?!\{\\circ))"
)
_GROUP = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\,|\\!|\{\\,\})(?=\d{3}(?!\d))")
_COMMA_SPACE = re.compile(r"(?<=\d),\\,(?=\d{3}(?!\d))")  # 10,\,000 is written like 10,000
_CIRCLE = re.compile(r"\^\s*\{?\s*\\circ(?![A-Za-z])\s*\}?|\\degrees?(?![A-Za-z])")
_PRIME = re.compile(r"\^\s*\{\s*((?:\\prime\s*)+)\}|\^\s*\\prime(?![A-Za-z])")
_FRAC = re.compile(r"\\[dtc]frac(?![A-Za-z])")
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
    text = _characters(text)
    text = _GROUP.sub("", _COMMA_SPACE.sub(",", text))
    text = _SPACES.sub(" ", text).replace("\\!", "").replace("{,}", ",")
    text = _FRAC.sub(r"\\frac", _SIZES.sub("", text))
    text = _SHORT_FRAC.sub(lambda m: f"\\frac{{{m[1]}}}" + (m[2] if m[2] == "{" else f"{{{m[2]}}}"), text)
    text = _COLOUR.sub("", _FONT.sub(r"\\text", text))
    for _ in range(3):  # \mathbf{\text{204}}: a font changes no number
        text = _DRESSED.sub(r"\1", text)
    text = _CIRCLE.sub(r"^{\\circ}", text)
    text = _PRIME.sub(lambda m: "'" * max(1, m[0].count("prime")), text)
    for _ in range(6):
        before = text
        text = _undress(_strip_tail(text))
        if (label := _LABEL.match(text)) and not text[label.end() :].startswith(("=", "^", "_", "'")):
            text = text[label.end() :] or next(filter(None, label.groups()))
        if (lead := _LEAD.match(text)) and lead.end() < len(text) and not _DENIAL.search(lead[0]):
            text = text[lead.end() :]
        if text == before:
            break
    text = _BARE_WORDS.sub(r"\\text{\1}", text)
    return _E_NOTATION.sub(r"\1 \\times 10^{\2}", text).strip()


def _strip_tail(text: str) -> str:
    """Drop the punctuation and spacing around a text; `0.333...` keeps its dots, which mean something."""
    text = text.lstrip(" :")
    while match := _TAIL.search(text, max(0, len(text) - 3)):
        text = text[: match.start()]
    return text


def _undress(text: str) -> str:
    """Take off one pair of delimiters around the whole: `{204}`, `$204$`, `\\boxed{204}`."""
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1] and text[-2] != "\\":
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


_BRACKET = re.compile(r"\\[\\{}()\[\]]|[{}()\[\]]")


def brackets(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Find where each bracket ends and what it does to the depth: +1 or -1."""
    found = []
    for match in _BRACKET.finditer(text, start):
        last = match[0][-1]
        if match[0] != "\\\\":
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

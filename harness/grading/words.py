"""Answers in words, chemical formulas and other texts that are no mathematics: compared letter by letter."""

import re

from harness.grading.normalise import squeeze

_WORDS = re.compile(r"\\(?:text|mathrm)\s*\{([A-Za-z .'-]*)\}")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_FONTS = re.compile(r"\\(?:text|mathrm|mathit|mathsf|ce|rm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_CE = re.compile(r"\\ce\s*\{([^{}]*)\}")
_FORMULA = re.compile(r"(?:[A-Z][a-z]?|[()]|_\{?\d+\}?|\^\{?\d*[+-]\}?)+")


def are_words(text: str) -> bool:
    r"""Tell whether a text is `\text{...}` around letters only."""
    return text.startswith(r"\text") and _WORDS.fullmatch(text) is not None


def same_words(gold: str, answer: str) -> bool:
    r"""Tell whether two texts are the same words: `\text{True}` and `true`, `\text{H}_2\text{O}` and `H_2O`.

    At least one side says that it is text; case counts in chemical formulas only.
    """
    first, second = _WORDS.fullmatch(gold), _WORDS.fullmatch(answer)
    if first or second:
        words = [
            " ".join((m[1] if m else text).split()).casefold().rstrip(".")
            for m, text in ((first, gold), (second, answer))
        ]
        if len(words[0]) > 1 and words[0] == words[1]:
            return not _differ_in_case(gold, answer)
    if not (_FONTS.search(gold) or _FONTS.search(answer)):
        return False
    if _TEXT.search(gold) and _TEXT.search(answer):
        sentences = [_lower(text) for text in (gold, answer)]
        if sentences[0] == sentences[1]:
            return True
    formulas = [_chemical(text) for text in (gold, answer)]
    return formulas[0] is not None and formulas[0] == formulas[1]


def _differ_in_case(gold: str, answer: str) -> bool:
    r"""Tell whether two chemical formulas differ: `\mathrm{CO}` and `\mathrm{Co}`. `\text{NO}` is a word."""
    if r"\text" in gold:
        return False
    formulas = [_chemical(text) for text in (gold, answer)]
    return None not in formulas and formulas[0] != formulas[1]


def _lower(text: str) -> str:
    return squeeze(_TEXT.sub(lambda m: f" {' '.join(m[1].split()).casefold()} ", text)).replace(" ", "")


def _chemical(text: str) -> str | None:
    text = _CE.sub(lambda m: re.sub(r"(?<=[A-Za-z)])(\d+)", r"_\1", m[1]), text)
    for _ in range(2):
        text = _FONTS.sub(r"\1", text)
    text = re.sub(r"\s+", "", text)
    return re.sub(r"[{}]", "", text) if _FORMULA.fullmatch(text) else None

r"""The robust grader: numbers exactly, structures by rule, and only what remains by math-verify in a bounded worker.

`compare` walks through an answer and asks an oracle about the pieces it cannot decide itself. The first walk collects
the questions of all pairs, the pool answers them together, the second walk gives the verdicts.
docs/grading.md has the rules.
"""

import re
from collections.abc import Callable, Sequence

from harness.grading.bounds import too_large
from harness.grading.normalise import normalise, squeeze
from harness.grading.numbers import equal, read_number
from harness.grading.pool import verify_many
from harness.grading.structure import Parts, is_name, parts, sides, unwrap
from harness.grading.units import read_tail

CPU_SECONDS = 2.0  # for one question; a Minerva answer takes some hundredths of a second
_PENDING = "pending"
_SYMBOL = re.compile(r"(?<![\\A-Za-z])[A-DF-Za-df-hj-z](?![A-Za-z])")  # not e, E, i: they may be constants
_WORD_COMMAND = re.compile(r"\\(?:text|mathrm)(?![A-Za-z])")
_SEVERAL = re.compile(  # what may stand for several values, or for an interval
    r"[<>]|\\(?:pm|mp|[lg]eq?(?:slant)?|neq?|in|c[au]p|setminus|math[a-z]+|begin|text|emptyset|varnothing)(?![A-Za-z])"
)
_WORDS = re.compile(r"\\(?:text|mathrm)\s*\{([A-Za-z .'-]*)\}")

Ask = Callable[[str, str], str]


def grade_robust(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return one kind a (gold, answer) pair."""
    known: dict[tuple[str, str], str] = {}
    open_questions: dict[tuple[str, str], None] = {}

    def ask(gold: str, answer: str) -> str:
        if not too_large(gold) and too_large(answer):
            return "too_large"
        if (gold, answer) not in known:
            open_questions[gold, answer] = None
        return known.get((gold, answer), _PENDING)

    clean = [(normalise(gold), normalise(answer)) for gold, answer in pairs]
    kinds = [compare(gold, answer, ask) for gold, answer in clean]
    if open_questions:
        asked = list(open_questions)
        known.update(zip(asked, verify_many(asked, careful=True, cpu_seconds=CPU_SECONDS), strict=True))
        kinds = [compare(*pair, ask) if kind == _PENDING else kind for pair, kind in zip(clean, kinds, strict=True)]
    return kinds


def compare(gold: str, answer: str, ask: Ask) -> str:
    """Return the kind of two normalised texts: numbers, then structures, then equations, then the oracle."""
    gold, answer = unwrap(gold), unwrap(answer)
    if gold and squeeze(gold) == squeeze(answer):
        return "correct"
    g = read_number(gold, bare_units=False)
    a = read_number(answer, bare_units=g is not None)
    if g and a:
        return "correct" if equal(g, a) else "wrong"
    if _same_words(gold, answer):
        return "correct"
    gold_parts, answer_parts = (None if _ends_in_thousands(text) else parts(text) for text in (gold, answer))
    if g and not answer_parts:  # 104,105 is a list only beside a list
        gold_parts = None
    if a and not gold_parts:
        answer_parts = None
    if gold_parts and answer_parts:
        return _compare_parts(gold, answer, gold_parts, answer_parts, ask)
    if several := gold_parts or answer_parts:
        return _compare_with_one(gold, answer, several, ask, several_golds=gold_parts is not None)
    gold_sides, answer_sides = sides(gold), sides(answer)
    if (gold_sides[-1], answer_sides[-1]) != (gold, answer) and len(gold_sides) == len(answer_sides) == 1:
        return compare(gold_sides[0], answer_sides[0], ask)  # \approx 204
    if len(gold_sides) > 1 or len(answer_sides) > 1:
        return _compare_equations(gold, answer, gold_sides, answer_sides, ask)
    if a and not g and _SYMBOL.search(gold):
        return "wrong"  # \frac{37}{4} m is not 37/4: in a gold, a bare letter is a symbol
    (gold_value, gold_unit), (value, unit) = _without_unit(gold), _without_unit(answer)
    if gold_unit or unit:  # \sqrt{16}\text{ cm} against 4
        same = not (gold_unit and unit) or gold_unit.lower() == unit.lower()
        return compare(gold_value, value, ask) if same else "wrong"
    if g and _WORD_COMMAND.search(answer):  # 5\text{ or more} is not 5
        return "wrong"
    return ask(gold, answer)


def _without_unit(text: str) -> tuple[str, str]:
    r"""Split a formula from the unit behind it, in `\text{...}` or `\mathrm{...}`; a number keeps its own."""
    if read_number(text) is None:
        for words in _WORD_COMMAND.finditer(text):
            before = text[: words.start()].rstrip()
            tail = read_tail(text[words.start() :], integer=False, bare=False)
            if before and before[-1] not in "_^{([+-*/=<>,." and tail and tail.factor == 1 and not tail.percent:
                return before, tail.unit
    return text, ""


def _ends_in_thousands(text: str) -> bool:
    """Tell whether the only commas are those of a number on the right: `x = 1,000`, but not `x = 1, y = 2`."""
    *before, last = sides(text)
    return last != text and "," in last and not any("," in side for side in before) and read_number(last) is not None


def _same_words(gold: str, answer: str) -> bool:
    r"""Compare `\text{True}` and `true`: words, of which at least one side says that it is text, by their letters."""
    first, second = _WORDS.fullmatch(gold), _WORDS.fullmatch(answer)
    if not (first or second):
        return False
    words = [" ".join((m[1] if m else text).split()).casefold() for m, text in ((first, gold), (second, answer))]
    return len(words[0]) > 1 and words[0] == words[1]


def _compare_with_one(gold: str, answer: str, several: Parts, ask: Ask, *, several_golds: bool) -> str:
    """Compare an answer of several parts on one side (`several_golds`: the gold's) with what is in one piece."""
    other = answer if several_golds else gold
    if several.kind in ("set", "list") and len(several.items) == 1:
        part = several.items[0]
        return compare(part, answer, ask) if several_golds else compare(gold, part, ask)
    if (value := sides(other))[1:] and parts(value[-1]) and all(is_name(side) for side in value[:-1]):
        return compare(gold, value[-1], ask) if several_golds else compare(value[-1], answer, ask)
    return ask(gold, answer) if _SEVERAL.search(other) else "wrong"


def _compare_parts(gold: str, answer: str, g: Parts, a: Parts, ask: Ask) -> str:
    if "brackets" in (g.kind, a.kind):
        if {g.kind, a.kind} & {"set", "union"} or not _ends_agree(g.ends, a.ends):
            return "wrong"
        return _in_order(g.items, a.items, ask)
    if "union" in (g.kind, a.kind) and g.kind != a.kind:
        return ask(gold, answer)
    return _in_any_order(g.items, a.items, ask)


def _ends_agree(gold: str, answer: str) -> bool:
    """Tell whether the brackets are the same; round ones, a tuple's, may be left out."""
    return gold == answer or {gold, answer} == {"()", ""}


def _in_order(gold: Sequence[str], answer: Sequence[str], ask: Ask) -> str:
    if len(gold) != len(answer):
        return "wrong"
    return _all([compare(g, a, ask) for g, a in zip(gold, answer, strict=True)])


def _in_any_order(gold: Sequence[str], answer: Sequence[str], ask: Ask) -> str:
    """Compare in any order: each part of the gold has its own equal in the answer, and nothing is left over."""
    if len(gold) != len(answer):
        return "wrong"
    table = [[compare(g, a, ask) for a in answer] for g in gold]  # all questions are asked in the first walk
    free = list(range(len(answer)))
    for row in table:
        match = next((i for i in free if row[i] == "correct"), None)
        if match is None:
            return _all([row[i] for i in free], found="wrong")
        free.remove(match)
    return "correct"


def _all(kinds: Sequence[str], found: str = "correct") -> str:
    """Join kinds: `wrong` and refusals outweigh what is not known yet, that outweighs `correct`."""
    if found == "correct" and "wrong" in kinds:
        return "wrong"
    return next((kind for kind in (_PENDING, "timed_out", "grader_error", "too_large") if kind in kinds), found)


def _letters(sides: Sequence[str]) -> bool:
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", "".join(sides))) is not None


def _compare_equations(gold: str, answer: str, g: tuple[str, ...], a: tuple[str, ...], ask: Ask) -> str:
    """Compare equations: a name on the left is not part of the answer, and of a chain the last side counts."""
    named = all(is_name(side) for side in g[:-1])
    if len(a) == 2 and is_name(a[1]) and not is_name(a[0]) and not is_name(g[-1]):  # 5 = x
        a = a[::-1]
    if len(a) == 1:  # one side of MR = SRMC is not the equation
        return compare(g[-1], a[0], ask) if named or not _letters(g[:-1]) else "wrong"
    if len(g) == 1:
        zero = (value := read_number(a[-1])) is not None and value.top == 0
        if zero and _letters(a[:-1]) and not all(is_name(side) for side in a[:-1]):
            return "wrong"  # y' + y = 0 is an equation, and m + n = 204 an answer
        return compare(gold, a[-1], ask)
    left, other, numbers = squeeze(g[0]), squeeze(a[0]), read_number(g[-1]) and read_number(a[-1])
    if named and left == other:
        return compare(g[-1], a[-1], ask)
    if named and numbers and is_name(a[0]):
        return "wrong"  # x = 5 is not y = 5
    if named and numbers and left not in other:  # m + n = 204 against x = 204, but not 2x = 5 against x = 5
        return compare(g[-1], a[-1], ask)
    return ask(gold, answer)  # x = 5 is x - 5 = 0

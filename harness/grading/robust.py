r"""The robust grader: numbers exactly, structures by rule, and only what remains by math-verify in a bounded worker.

`compare` walks through an answer and asks an oracle about the pieces it cannot decide itself. The first walk collects
the questions of all pairs, the pool answers them together, the second walk gives the verdicts.
docs/grading.md has the rules.
"""

import re
from collections.abc import Callable, Sequence

from harness.grading.bounds import too_large
from harness.grading.formulas import APPROXIMATELY
from harness.grading.normalise import choice, normalise, squeeze
from harness.grading.numbers import equal, far, read_number
from harness.grading.pool import verify_many
from harness.grading.structure import (
    APPROXIMATE,
    Parts,
    interval_of,
    is_name,
    named_values,
    parts,
    sides,
    split,
    unwrap,
)
from harness.grading.units import read_tail
from harness.grading.words import are_words, same_words

CPU_SECONDS = 2.0  # for one question; a Minerva answer takes some hundredths of a second
_PENDING = "pending"
_SYMBOL = re.compile(r"(?<![\\A-Za-z])[A-DF-Za-df-hj-z](?![A-Za-z])")  # not e, E, i: they may be constants
_WORD_COMMAND = re.compile(r"\\(?:text|mathrm)(?![A-Za-z])")
_SEVERAL = re.compile(  # what may stand for several values, or for an interval
    r"[<>]|\\(?:pm|mp|[lg]eq?(?:slant)?|neq?|in|c[au]p|setminus|math[a-z]+|begin|text|emptyset|varnothing)(?![A-Za-z])"
)
_LAST_WORDS = re.compile(r"(?:\\(?:text|mathrm)\s*\{[^{}]*\}|\^\{\\circ\})\s*(?:\^\s*\{?-?\d\}?)?\s*\Z")
_DOTS = re.compile(r"\\[lc]?dots(?![A-Za-z])")
_DEGREES = re.compile(r"(-?\d+(?:\.\d+)?|-?\\frac\s*\{\d+\}\s*\{\d+\})\s*(?:\^\{\\circ\}|\\text\s*\{\s*degrees?\s*\})")

Ask = Callable[[str, str], str]
Item = tuple[tuple[str, ...], str]  # what is right, any of it, and an answer


def grade_robust(items: Sequence[Item]) -> list[str]:
    """Return one kind an item: the best of its answer against each of its golds."""
    known: dict[tuple[str, str], str] = {}
    owners: dict[tuple[str, str], list[int]] = {}

    def walk(number: int) -> str:
        def ask(gold: str, answer: str) -> str:
            if not too_large(gold) and too_large(answer):
                return "too_large"
            if (gold, answer) not in known and owners.setdefault((gold, answer), [])[-1:] != [number]:
                owners[gold, answer].append(number)
            return known.get((gold, answer), _PENDING)

        return best([compare(*pair, ask) for pair in clean[number]])

    clean = [[_without_labels(gold, answer) for gold in golds] for golds, answer in items]
    kinds = [walk(number) for number in range(len(items))]
    if owners:
        asked, whose = [*owners], [*owners.values()]
        known.update(zip(asked, verify_many(asked, careful=True, cpu_seconds=CPU_SECONDS, owners=whose), strict=True))
        kinds = [walk(number) if kind == _PENDING else kind for number, kind in enumerate(kinds)]
    return kinds


def best(kinds: Sequence[str]) -> str:
    """Return the verdict over several golds: any `correct` counts; else a grader's failure shows before `wrong`."""
    return next((kind for kind in ("correct", _PENDING, "timed_out", "grader_error") if kind in kinds), kinds[0])


def _without_labels(gold: str, answer: str) -> tuple[str, str]:
    """Normalise a pair; of two choices with a label the letters are the answer, unless the texts differ."""
    (letter, text), (other, words) = choice(gold), choice(answer)
    if not letter or (letter and not text and not other):
        return normalise(gold), normalise(answer)
    if other and (letter != other or not (text and words)):
        return letter, other
    return text or letter, words


def compare(gold: str, answer: str, ask: Ask) -> str:
    """Return the kind of two normalised texts: numbers, then structures, then equations, then the oracle."""
    return decide(gold, answer, ask)[1]


def rule_of(gold: str, answer: str) -> str:
    """Return the name of the rule that decides about an answer, as docs/grading.md calls it; no worker is asked."""
    return decide(*_without_labels(gold, answer), lambda *_: _PENDING)[0]


def decide(gold: str, answer: str, ask: Ask) -> tuple[str, str]:
    """Return the rule that decides about two normalised texts, and their kind."""
    gold, answer = unwrap(gold), unwrap(answer)
    if gold and squeeze(gold) == squeeze(answer):
        return "the same text", "correct"
    for rule, special in (("times of day", _compare_times), ("bases", _compare_in_bases)):
        if (kind := special(gold, answer)) is not None:
            return rule, kind
    g = read_number(gold, bare_units=False)
    a = read_number(answer, bare_units=g is not None)
    if g and a:
        bare = answer.endswith("'") and not g.unit  # 5' is a derivative, or five of something that the gold is not
        return "numbers", "correct" if equal(g, a) and not bare else "wrong"
    if same_words(gold, answer):
        return "words", "correct"
    if are_words(gold) and are_words(answer):
        return "words", "wrong"  # other words, never a product of their letters
    if split(gold, APPROXIMATE)[1:] or split(answer, APPROXIMATE)[1:]:
        return r"\approx", _compare_approximations(gold, answer, ask)
    if (kind := _compare_by_name(gold, answer, ask)) is not None:
        return "values by name", kind
    gold_parts, answer_parts = (None if _ends_in_thousands(text) else parts(text) for text in (gold, answer))
    if g and not answer_parts:  # 104,105 is a list only beside a list
        gold_parts = None
    if a and not gold_parts:
        answer_parts = None
    gold_parts = gold_parts or (interval_of(gold) if answer_parts and answer_parts.kind == "brackets" else None)
    answer_parts = answer_parts or (interval_of(answer) if gold_parts and gold_parts.kind == "brackets" else None)
    if g and answer_parts and (total := _sum_of_named(answer_parts)):
        return "values by name", compare(gold, total, ask)
    if gold_parts and answer_parts:
        return f"structures: {gold_parts.kind}", _compare_parts(gold, answer, gold_parts, answer_parts, ask)
    if several := gold_parts or answer_parts:
        kind = _compare_with_one(gold, answer, several, ask, several_golds=gold_parts is not None)
        return "one value, and a structure", kind
    gold_sides, answer_sides = sides(gold), sides(answer)
    if (gold_sides[-1], answer_sides[-1]) != (gold, answer) and len(gold_sides) == len(answer_sides) == 1:
        return decide(gold_sides[0], answer_sides[0], ask)  # \approx 204
    if len(gold_sides) > 1 or len(answer_sides) > 1:
        return "equations", _compare_equations(gold, answer, gold_sides, answer_sides, ask)
    if (
        (g is None) != (a is None) and "°^1" in [one.unit for one in (g, a) if one] and r"\pi" in gold + answer
    ):  # 30 degrees are \pi / 6
        return "degrees and radians", ask(*(_DEGREES.sub(r"(\1 \\pi / 180)", text) for text in (gold, answer)))
    if g and _DOTS.search(answer):
        return "a number, and dots", "wrong"
    if a and not g and _SYMBOL.search(gold):
        return "a number, and a letter", "wrong"  # \frac{37}{4} m is not 37/4: in a gold, a bare letter is a symbol
    (gold_value, gold_unit), (value, unit) = _without_unit(gold), _without_unit(answer)
    if gold_unit or unit:  # \sqrt{16}\text{ cm} against 4
        same = not (gold_unit and unit) or gold_unit == unit
        return "formulas with units", compare(gold_value, value, ask) if same else "wrong"
    return "formulas", ask(gold, answer)


_TIME = re.compile(
    r"(?:\\text\s*\{)?\s*(\d{1,2})(?:\s*:\s*([0-5]\d))?\s*(?:\\text\s*\{)?\s*(?:([aApP])\.?\s*[mM]\.?)?\s*\}?"
)


def _compare_times(gold: str, answer: str) -> str | None:
    """Compare times of day by hour, minute and half of the day; None where they are none. `3:10` may be a ratio."""
    first, second = _TIME.fullmatch(gold), _TIME.fullmatch(answer)
    certain = [m is not None and (m[3] is not None or (m[2] or "9")[0] == "0" or m[2] == "30") for m in (first, second)]
    if not any(certain) or not any(m is not None and m[2] for m in (first, second)):
        return None
    if not (first and second):
        return "wrong"
    same = (int(first[1]), first[2] or "00") == (int(second[1]), second[2] or "00")
    halves = {m[3].lower() for m in (first, second) if m[3]}
    both_hours = all(m[2] or m[3] for m in (first, second))  # 4 is no time
    return "correct" if same and len(halves) < 2 and both_hours else "wrong"


_BASES = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_IN_BASE = re.compile(
    r"\(?\s*(?:\\(?:text|mathrm)\s*\{)?\s*([0-9A-F]+)\s*\}?\s*\)?\s*_\s*\{?\s*(?:\\(?:text|mathrm)\s*\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\s*\}?"
)


def _compare_in_bases(gold: str, answer: str) -> str | None:
    """Compare numbers in a base by their digits; a base that the gold states may be left out. None: there is none."""
    found = []
    for text in (gold, answer):
        match = _IN_BASE.fullmatch(text)
        base = match[2] if match else ""
        base = str(_BASES.index(base) + 2) if base in _BASES else base
        if match and not base.isdigit():
            return None
        found.append((match[1].lstrip("0"), base) if match else (text.strip(), ""))
    (digits, base), (others, other) = found
    if not base and other in ("", "10"):
        return None
    if not re.match("[0-9]", gold.lstrip("( ")) or not base:  # x_1 is a name
        return "wrong" if other and re.fullmatch(r"[\d.,]+", gold) else None
    return "correct" if digits == others.lstrip("0") and other in ("", base) else "wrong"


def _compare_approximations(gold: str, answer: str, ask: Ask) -> str:
    r"""Compare around `\approx`: of the gold either side counts, of the answer the last, or a first that it rounds."""
    golds = [piece for piece in split(gold, APPROXIMATE) if piece]
    pieces = [piece for piece in split(answer, APPROXIMATE) if piece]
    if not golds or not pieces or len(golds) > 2:
        return "wrong"
    kinds = [compare(one, pieces[-1], ask) for one in golds if not is_name(one) or len(golds) == 1]
    if len(pieces) == 2 and not is_name(pieces[0]):
        exact = sides(pieces[0])[-1]
        roughly = ask(APPROXIMATELY + _LAST_WORDS.sub("", pieces[1]), _LAST_WORDS.sub("", exact))
        kinds += [_all([compare(one, exact, ask), roughly]) for one in golds]
    return next((kind for kind in ("correct", _PENDING) if kind in kinds), kinds[0] if kinds else "wrong")


def _compare_by_name(gold: str, answer: str, ask: Ask) -> str | None:
    """Compare values that have names, name by name; beside a bare tuple, x comes before y. None: there are no names."""
    first, second = named_values(gold), named_values(answer)
    if first and second:
        first, second = ({squeeze(name): value for name, value in each.items()} for each in (first, second))
        if set(first) != set(second):
            return "wrong"
        return _all([compare(first[name], second[name], ask) for name in first])
    if (named := first or second) is None:
        return None
    bare = parts(answer if first else gold)
    if bare is None or bare.kind == "union":
        return None
    values = tuple(named.values())
    if all(re.fullmatch(r"[A-Za-z]|[A-Za-z]_\{?\d\}?", squeeze(name)) for name in named):
        values = tuple(named[name] for name in sorted(named))
    these = Parts(
        "brackets" if bare.kind == "brackets" else "list", values, bare.ends if bare.kind == "brackets" else ""
    )
    return _compare_parts(gold, answer, these if first else bare, these if second else bare, ask)


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


def _compare_with_one(gold: str, answer: str, several: Parts, ask: Ask, *, several_golds: bool) -> str:
    """Compare an answer of several parts on one side (`several_golds`: the gold's) with what is in one piece."""
    other = answer if several_golds else gold
    if several.kind in ("set", "list") and len(several.items) == 1:
        part = several.items[0]
        if several.kind == "set" and _is_set(part):
            return "wrong"  # a set in a set is not that set
        return compare(part, answer, ask) if several_golds else compare(gold, part, ask)
    if (value := sides(other))[1:] and parts(value[-1]) and all(is_name(side) for side in value[:-1]):
        return compare(gold, value[-1], ask) if several_golds else compare(value[-1], answer, ask)
    return ask(gold, answer) if _SEVERAL.search(other) else "wrong"


def _is_set(text: str) -> bool:
    inner = parts(text)
    return r"\emptyset" in text or (inner is not None and inner.kind in ("set", "union"))


def _compare_parts(gold: str, answer: str, g: Parts, a: Parts, ask: Ask) -> str:
    if "matrix" in (g.kind, a.kind):
        return _compare_matrices(g, a, ask)
    if "brackets" in (g.kind, a.kind):
        for one, other, gold_is_set in ((g, a, True), (a, g, False)):
            if one.kind == "set" and len(one.items) == 1 and other.kind == "brackets" and other.ends == "()":
                return compare(one.items[0], answer, ask) if gold_is_set else compare(gold, one.items[0], ask)
        if {g.kind, a.kind} & {"set", "union"} or not _ends_agree(g.ends, a.ends):
            return "wrong"
        return _in_order(g.items, a.items, ask)
    if "set" in (g.kind, a.kind):  # a set is no element that is not one
        apart = [[[x for x in each.items if _is_set(x) is inner] for inner in (True, False)] for each in (g, a)]
        return _all([_in_any_order(these, those, ask) for these, those in zip(*apart, strict=True)])
    return _in_any_order(g.items, a.items, ask)


def _compare_matrices(g: Parts, a: Parts, ask: Ask) -> str:
    """Compare by shape and entry; a tuple is a vector, in a row or in a column."""
    shapes = [each.ends if each.kind == "matrix" else "" for each in (g, a)]
    if all(shapes):
        return _in_order(g.items, a.items, ask) if shapes[0] == shapes[1] else "wrong"
    matrix, other = (g, a) if shapes[0] else (a, g)
    vector = "1" in matrix.ends.split("x") and (other.kind, other.ends) == ("brackets", "()")
    return _in_order(g.items, a.items, ask) if vector else "wrong"


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


_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")


def _sum_of_named(answer: Parts) -> str | None:
    """Return what the last of several equations says of a sum of letters that the others have, `m + n = 25`."""
    pairs = [sides(item) for item in answer.items]
    if answer.kind != "list" or len(pairs) < 2 or not all(len(pair) == 2 for pair in pairs) or is_name(pairs[-1][0]):
        return None
    known = {letter for pair in pairs[:-1] for letter in _LETTER.findall(pair[0])}
    asked = {*_LETTER.findall(pairs[-1][0])}
    return pairs[-1][1] if asked and asked <= known else None


_ASKS_FOR_A_LETTER = re.compile(r"-?\d+(\.\d+)?\s*[A-Za-z](\s*[+-]\s*\d+)?")


def _letters(sides: Sequence[str]) -> bool:
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", "".join(sides))) is not None


def _compare_equations(gold: str, answer: str, g: tuple[str, ...], a: tuple[str, ...], ask: Ask) -> str:
    """Compare equations: a name on the left is not part of the answer, and of a chain the last side counts."""
    named = all(is_name(side) for side in g[:-1])
    for both in (g, a):
        numeric = len(g) != len(a) and len(both) > 1 and not _letters(both[:-1]) and _letters(both[-1:])
        if numeric and not (both is a and is_name(a[-1])):
            return "wrong"  # 7 = 11a + c is not 11a + c
    if len(a) == 1:  # one side of MR = SRMC is not the equation
        return compare(g[-1], a[0], ask) if named or not _letters(g[:-1]) else "wrong"
    if len(g) == 1:
        zero = (value := read_number(a[-1])) is not None and value.top == 0
        if zero and _letters(a[:-1]) and not all(is_name(side) for side in a[:-1]):
            return "wrong"  # y' + y = 0 is an equation, and m + n = 204 an answer
        if any(_ASKS_FOR_A_LETTER.fullmatch(side) for side in a[:-1]):
            return "wrong"  # 2x = 5 asks for x
        if len(a) == 2 and is_name(a[1]) and not _letters(a[:1]):
            return compare(gold, a[0], ask)  # 5 = x
        numbers = [number for side in a[:-1] if (number := read_number(side)) is not None]
        if value and r"\equiv" not in answer and any(far(number, value) for number in numbers):
            return "wrong"  # 1 = 5
        return compare(gold, a[-1], ask)
    left, other, numbers = squeeze(g[0]), squeeze(a[0]), read_number(g[-1]) and read_number(a[-1])
    if named and left == other:
        return compare(g[-1], a[-1], ask)
    if named and numbers and is_name(a[0]):
        return "wrong"  # x = 5 is not y = 5
    return ask(gold, answer)  # x = 5 is x - 5 = 0

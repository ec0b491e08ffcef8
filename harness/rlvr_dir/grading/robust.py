r"""Grade robustly: equal texts and two numbers at once, every other pair as a whole, in a worker with limits.

    judge(r"\{1,2\}", r"2 \text{ and } 1")  # True

A worker receives each pair only once: a list's elements, an equation's sides and a formula's values are all compared
there, within the processor time of one pair. docs/grading.md has the rules.
"""

import re
from collections.abc import Sequence

from rlvr_dir.grading.bounds import too_large
from rlvr_dir.grading.formulas import compare_formulas, differ, has_factor, nearly
from rlvr_dir.grading.normalise import choice, normalise, split, squeeze
from rlvr_dir.grading.numbers import equal, in_base, read_number
from rlvr_dir.grading.pool import Item, grade_items
from rlvr_dir.grading.structure import (
    EQUALS,
    ORDER,
    Parts,
    described,
    is_name,
    named,
    parts,
    unwrap,
    without_names,
)

CPU_SECONDS = 2.0  # for one pair; a Minerva answer takes a few hundredths of a second
_WORDS = re.compile(r"[A-Za-z][A-Za-z ,.'-]+")
_TEXT_WORDS = re.compile(r"\\text\s*\{[A-Za-z ,.'-]{3,}\}")
_SEVERAL = re.compile(
    rf"{ORDER}|\\(?:begin|ne|in|c[au]p|setminus|math[a-z]+|emptyset|text)(?![A-Za-z])"
)  # what may stand for several values, or for an interval
_MEMBERSHIP = re.compile(r"[A-Za-z](?:_\w)?\s*\\in(?![A-Za-z])\s*(.*)")
_SUM = re.compile(r"[A-Za-z](?:\s*\+\s*[A-Za-z])+")
_FUNCTION = re.compile(r"[A-Za-z]\(x\)")
_APPROXIMATELY = r"\\approx(?![A-Za-z])"


def grade_robust(items: Sequence[Item]) -> list[str]:
    """Return one kind per item: the best of its answer compared with each of its golds."""
    return grade_items(items, _at_once, careful=True, cpu_seconds=CPU_SECONDS)


def _at_once(gold: str, answer: str) -> str | None:
    """Decide about equal texts, two numbers, and texts that are too large; None leaves the pair to a worker."""
    gold, answer = normalise(gold), normalise(answer)
    if not gold:
        return "grader_error"
    if squeeze(gold) == squeeze(answer):
        return "correct"
    if (same := _compare_numbers(gold, answer)) is not None:
        return "correct" if same else "wrong"
    return "too_large" if too_large(answer) else None


def _compare_numbers(gold: str, answer: str) -> bool | None:
    g = read_number(gold, bare_units=False)
    a = read_number(answer, bare_units=g is not None)
    if not g or not a or ("," in gold and "," in answer and not equal(g, a)):  # 100,200 may be a list as well
        return None
    return equal(g, a)


def judge(gold: str, answer: str) -> bool:
    """Return whether the content of a box equals the gold. For two labelled choices the letters decide."""
    (letter, text), (other, words) = choice(normalise(gold)), choice(normalise(answer))
    if letter and other:
        return letter == other and not (text and words and not judge_text(text, words))
    return judge_text(text or letter, words or other)


def judge_text(gold: str, answer: str) -> bool:
    """Compare two normalised texts: numbers, words, bases, structures, equations, then formulas."""
    gold, answer = (described(unwrap(text)) for text in (gold, answer))
    if squeeze(gold) == squeeze(answer):
        return bool(gold)
    for compare in (
        _compare_numbers,
        _compare_words,
        _compare_in_bases,
        _compare_approximations,
        _compare_structures,
        _compare_equations,
    ):
        if (same := compare(gold, answer)) is not None:
            return same
    return compare_formulas(gold, answer)


def _compare_words(gold: str, answer: str) -> bool | None:
    r"""Compare words, ignoring case in `\text{...}`; None if other texts than words differ."""
    words = [" ".join(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip(" .").split()) for text in (gold, answer)]
    words = [re.sub(r"^(?:[Aa]n?|[Tt]he) (?=[a-z]{3})", "", text) for text in words]
    if all(map(_WORDS.fullmatch, words)) and ("\\text" in gold + answer or all(len(word) > 2 for word in words)):
        first, second = words
        return first == second or (first.lower() == second.lower() and (len(first) > 2 or first.lower() == "no"))
    lowered = [squeeze(_TEXT_WORDS.sub(lambda match: match[0].lower(), text)) for text in (gold, answer)]
    return lowered[0] == lowered[1] or None


def _compare_in_bases(gold: str, answer: str) -> bool | None:
    """Compare numbers in a base by their digits; a base in the gold may be missing in the answer. None: there is
    none."""
    numbers = [in_base(text) for text in (gold, answer)]
    if not numbers[0] and not (numbers[1] and re.fullmatch(r"[\d.,]+", gold)):
        return None
    (digits, base), (others, other_base) = (
        number or (text.strip(), 0) for number, text in zip(numbers, (gold, answer), strict=True)
    )
    return digits.lstrip("0") == others.lstrip("0") and other_base in (0, base or 10)


def _compare_approximations(gold: str, answer: str) -> bool | None:
    r"""Compare around `\approx`: an answer's last side, or its first if the last is its rounding; None if there is no
    sign."""
    golds, answers = ([side for side in split(text, _APPROXIMATELY) if side] for text in (gold, answer))
    if golds == [gold] and answers == [answer]:
        return None
    if not 0 < len(golds) < 3 or not answers:
        return False
    if differ([split(side, EQUALS)[-1] for side in answers[:-1]], answers[-1], rounded=True):
        return False
    golds = [side for side in golds if not is_name(side)] or golds
    if any(judge_text(side, answers[-1]) for side in golds):
        return True
    exact = split(answers[0], EQUALS)[-1]
    return len(answers) == 2 and any(judge_text(side, exact) for side in golds) and nearly(exact, answers[1])


def _compare_structures(gold: str, answer: str) -> bool | None:
    """Compare answers with several parts, or values with names; None if neither side has them."""
    names = [named(text) for text in (gold, answer)]
    values, others = ({squeeze(name): value for name, value in pairs or ()} for pairs in names)
    if names[0] and names[1] and len(values) == len(names[0]):
        same_names = len(names[1]) == len(names[0]) and others.keys() == values.keys()
        return same_names and all(judge_text(value, others[name]) for name, value in values.items())
    g, a = (without_names(pairs) if pairs else parts(text) for pairs, text in zip(names, (gold, answer), strict=True))
    if read_number(gold, bare_units=False) and (a is None or a.kind not in ("ratio", "list", "set")):
        g = None  # 104,105 is a list only beside a list
    if read_number(answer) and a and a.kind == "list" and not (g and g.kind == "list"):
        a = None
    if g and a:
        return _compare_parts(g, a) or ("union" in (g.kind, a.kind) and compare_formulas(gold, answer))
    if pairs := names[0] or names[1]:  # m = 3, n = 4, m + n = 7
        letters = [set(re.findall("[A-Za-z]", name)) for name, _ in pairs]
        total, is_total = pairs[-1][1], split(pairs[-1][0], "[+-]")[1:] and letters[-1] <= set().union(*letters[:-1])
        return bool(is_total) and judge_text(*((total, answer) if names[0] else (gold, total)))
    if len(split(gold, EQUALS)) > 1 or len(split(answer, EQUALS)) > 1:
        return None
    sets = [match[1] if (match := _MEMBERSHIP.fullmatch(text)) else text for text in (gold, answer)]
    if sets != [gold, answer]:
        return judge_text(*sets)
    if (several := g or a) is None:
        return None
    if several.kind == "set" and len(several.items) == 1:
        (element,) = several.items
        return not _is_set(element) and judge_text(*((element, answer) if g else (gold, element)))
    if several.kind == "ratio":
        times = re.search(r":\s*0\d", f"{gold} {answer}")
        return (
            len(several.items) == 2 and not times and compare_formulas(gold.replace(":", "/"), answer.replace(":", "/"))
        )
    single = answer if g else gold
    return read_number(single) is None and _SEVERAL.search(single) is not None and compare_formulas(gold, answer)


def _compare_parts(g: Parts, a: Parts) -> bool:
    kinds = {g.kind, a.kind}
    if kinds == {"ratio"}:
        return len(g.items) == len(a.items) and _proportional(g.items, a.items)
    if kinds == {"set", "tuple"} and 1 in (len(g.items), len(a.items)):  # \{(1,2)\}
        return judge_text(*(p.items[0] if p.kind == "set" else f"({','.join(p.items)})" for p in (g, a)))
    if g.kind == a.kind == "set" and len(g.items) != len(a.items):  # {1,1,2}
        g, a = (Parts("set", tuple(dict.fromkeys(map(squeeze, p.items)))) for p in (g, a))
    if len(g.items) != len(a.items):
        return False
    listed = [item for p in (g, a) if p.kind == "list" for item in p.items]
    inequalities = kinds == {"list", "union"} and all(re.search(ORDER, item) for item in listed)
    if kinds <= {"list", "set"} or kinds == {"union"} or inequalities:
        return _in_any_order(g.items, a.items)
    vector = kinds == {"matrix", "tuple"} and "1" in (g.ends + "x" + a.ends).split("x") and "()" in (g.ends, a.ends)
    ends = g.ends == a.ends or {g.ends, a.ends} == {"()", ""} or vector
    ordered = len(kinds) == 1 or kinds == {"list", "tuple"} or vector
    return ordered and ends and all(judge_text(*pair) for pair in zip(g.items, a.items, strict=True))


def _proportional(golds: Sequence[str], answers: Sequence[str]) -> bool:
    """Return whether two ratios are the same: 1:2:3 is 2:4:6. Ratios with words, such as a time of day, must be
    equal."""
    if all(judge_text(*pair) for pair in zip(golds, answers, strict=True)):
        return True
    quotients = zip(golds[1:], answers[1:], strict=True)
    return not any("\\text" in item for item in (*golds, *answers)) and all(
        compare_formulas(rf"\frac{{{gold}}}{{{golds[0]}}}", rf"\frac{{{answer}}}{{{answers[0]}}}")
        for gold, answer in quotients
    )


def _in_any_order(golds: Sequence[str], answers: Sequence[str]) -> bool:
    free = [*answers]
    for gold in golds:
        same = (i for i, answer in enumerate(free) if _is_set(gold) == _is_set(answer) and judge_text(gold, answer))
        if (match := next(same, None)) is None:
            return False
        del free[match]
    return True


def _is_set(text: str) -> bool:
    return text.startswith((r"\{", r"\emptyset"))


def _letters(text: str) -> bool:
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text)) is not None


def _compare_equations(gold: str, answer: str) -> bool | None:
    """Drop a name on either side; use the last side of a chain, and both sides of two equations. None: there is
    none."""
    g, a = ([side for side in split(text, EQUALS) if side] for text in (gold, answer))
    if g == [gold] and a == [answer]:
        return None
    if not g or not a or len(g) == len(a) == 1:
        return bool(g and a) and judge_text(g[0], a[0])
    if differ(g[:-1], g[-1], known=False) or differ(a[:-1], a[-1]):
        return False  # 1 = 5, 2 + 2 = 5
    if len(g) > 1 and len(a) > 1:
        first, other = (_FUNCTION.sub("y", squeeze(side)) for side in (g[0], a[0]))  # f(x) = 3x is y = 3x
        if (squeeze(g[0]) == squeeze(a[0]) or (first == other == "y" and "y" in (g[0], a[0]))) and is_name(g[0]):
            return judge_text(g[-1], a[-1])
        named_numbers = is_name(g[0]) and is_name(a[0]) and read_number(g[-1]) and read_number(a[-1])
        return not named_numbers and compare_formulas(gold, answer)  # x = 5 is not y = 5
    sides, in_gold = (g, True) if len(g) > 1 else (a, False)
    first, *_, last = sides
    numeric, number = not _letters(first), read_number(last)
    if not in_gold and numeric and (is_name(last) or _SUM.fullmatch(last)):
        return judge_text(gold, "=".join(sides[:-1]))  # 5 = x, 5 = m + n
    if (
        (numeric and not number and _letters(last))  # 7 = 11a + c is not 11a + c
        or (in_gold and not numeric and not is_name(first))  # x + z = 1 is not 1
        or has_factor(first)  # 2x = 5
        or (in_gold and re.fullmatch(r"[A-Z]{2,}", last))  # MR = SRMC is not SRMC
        or (number and number.value == 0 and not numeric and not is_name(first))  # y' + y = 0
    ):
        return False
    return judge_text(last, answer) if in_gold else judge_text(gold, last)

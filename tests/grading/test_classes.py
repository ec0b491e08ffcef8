"""The tables of right and wrong answers, one test each, and properties beside them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_dir.grading.formulas import compare_formulas
from rlvr_dir.grading.robust import grade_robust, judge
from rlvr_dir.grading.values import POINTS, _coordinate
from tests.grading.chains import CHAINS
from tests.grading.classes import CLASSES
from tests.grading.notation import NOTATION
from tests.grading.public import PUBLIC
from tests.grading.spellings import SPELLINGS
from tests.grading.structures import STRUCTURES
from tests.grading.test_properties import bounded, kind
from tests.grading.wording import WORDING


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """Ask the worker's function itself: what is tried here is quick, and a process more would only cost time."""
    monkeypatch.setattr(
        "rlvr_dir.grading.pool.verify_many",
        lambda pairs, **_: ["correct" if judge(*pair) else "wrong" for pair in pairs],
    )


TABLES = {**CLASSES, **SPELLINGS, **PUBLIC, **NOTATION, **STRUCTURES, **CHAINS, **WORDING}


@pytest.mark.parametrize("name", TABLES)
def test_a_class(name):
    rows = [
        (gold, answer, wanted)
        for gold, right, wrong in TABLES[name]
        for wanted, answers in (("correct", right), ("wrong", wrong))
        for answer in answers
    ]
    kinds = grade_robust([((gold,), answer) for gold, answer, _ in rows])
    assert [(*row[:2], found) for row, found in zip(rows, kinds, strict=True)] == rows


entries = st.integers(-9, 9)
matrices = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(entries, min_size=n, max_size=n), min_size=1, max_size=3)
)


def write_matrix(rows, kind="p"):
    body = r" \\ ".join(" & ".join(map(str, row)) for row in rows)
    return rf"\begin{{{kind}matrix}} {body} \end{{{kind}matrix}}"


@bounded
@given(matrices, matrices)
def test_matrices_are_equal_by_shape_and_entry(first, second):
    assert (kind(write_matrix(first), write_matrix(second, "b")) == "correct") == (first == second)
    transposed = [list(column) for column in zip(*first, strict=True)]
    assert (kind(write_matrix(first), write_matrix(transposed)) == "correct") == (first == transposed)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (r"%d!", lambda n: Fraction(__import__("math").factorial(n))),
        (r"2^{%d}", lambda n: Fraction(2**n)),
        (r"\frac{3^{%d}-1}{3}", lambda n: Fraction(3**n - 1, 3)),
        (r"1-\left(\frac{5}{6}\right)^{%d}", lambda n: 1 - Fraction(5, 6) ** n),
    ],
)
@pytest.mark.parametrize("n", [3, 20, 64, 150])
def test_exact_is_exact(form, value, n):
    right = value(n)
    written = rf"\frac{{{right.numerator}}}{{{right.denominator}}}" if len(str(right)) < 300 else form % n
    for gold, answer in ((form % n, written), (written, form % n)):
        assert compare_formulas(gold, answer)
        assert not compare_formulas(gold, f"{answer} + 10^{{-{n}}}")
    for near in (Fraction(1), right + 1, right * (1 + Fraction(1, 10**40))):
        if near != right and len(str(near)) < 300:
            assert not compare_formulas(form % n, rf"\frac{{{near.numerator}}}{{{near.denominator}}}")


def test_any_two_letters_stand_in_both_orders_and_with_all_signs():
    letters = "abcdefghijklmnopqrstuvwxyz"
    for i, a in enumerate(letters):
        for b in letters[i + 1 :]:
            at = [(_coordinate(a, point, True), _coordinate(b, point, True)) for point in range(POINTS)]
            assert {x > y for x, y in at} == {True, False}
            assert {(x > 0, y > 0) for x, y in at} == {(s, t) for s in (True, False) for t in (True, False)}
            assert any(abs(x) < 1 and abs(y) < 1 for x, y in at)


@bounded
@given(st.integers(2, 30), st.integers(2, 30))
def test_names_are_no_order_of_their_own(a, b):
    assert kind(f"({a},{b})", f"(x,y)=({a},{b})") == "correct"
    assert (kind(f"({a},{b})", f"(y,x)=({a},{b})") == "correct") == (a == b)
    assert kind(f"(x,y)=({a},{b})", f"(y,x)=({b},{a})") == "correct"
    assert (kind(f"a={a},b={b}", f"{b},{a}") == "correct") == (a == b)
    assert kind(f"x={a},x={b}", f"{b},{a}") == "correct"

r"""Remainders, against the numbers themselves where these can be computed."""

import time
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_dir.grading.residues import reduced, residue
from tests.grading.test_properties import bounded

small = st.integers(0, 30).map(lambda value: (str(value), value))


def _compound(inner):
    """Return expressions of two others with their values; a power stays below some thousand digits."""
    two = st.tuples(inner, inner)
    powers = two.filter(lambda pair: 0 <= pair[1][1] < 300 and abs(pair[0][1]) < 10**12)
    return st.one_of(
        two.map(lambda pair: (f"({pair[0][0]}+{pair[1][0]})", pair[0][1] + pair[1][1])),
        two.map(lambda pair: (f"({pair[0][0]}-{pair[1][0]})", pair[0][1] - pair[1][1])),
        two.map(lambda pair: (rf"{pair[0][0]}\cdot({pair[1][0]})", pair[0][1] * pair[1][1])),
        powers.map(lambda pair: (f"({pair[0][0]})^{{{pair[1][0]}}}", pair[0][1] ** pair[1][1])),
        st.integers(0, 12).map(lambda value: (f"{value}!", factorial(value))),
    )


@bounded
@given(st.recursive(small, _compound, max_leaves=5), st.one_of(st.integers(1, 40), st.integers(1, 10**6)))
def test_a_remainder_is_that_of_the_number(expression, modulus):
    text, value = expression
    assert residue(text, modulus) in (value % modulus, None)


@bounded
@given(st.integers(2, 40), st.integers(0, 4), st.integers(0, 4), st.integers(1, 500))
def test_a_tower_has_a_remainder(base, first, second, modulus):
    assert residue(f"{base}^{{{first}^{{{second}}}}}", modulus) == base ** (first**second) % modulus


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r"3^{2^{100}} \bmod 10 = 1", "1 = 1"),
        (r"N \equiv 1204 \equiv 204 \pmod{1000}", r"204 \pmod{1000}"),
        (r"10 \equiv 7 \pmod 3", "7"),
        (r"10 \equiv 7 \pmod 4", "2=3"),
        (r"\frac{3^{100}-1}{2} \bmod 10", r"0 \bmod 10"),
        (r"3!4! \bmod 100", r"44 \bmod 100"),
        (r"2(3^{2})(5) \bmod 7 = 6", "6=6"),
    ],
)
def test_a_remainder_stands_for_what_it_is_of(text, kept):
    assert reduced(text).replace(" ", "") == kept.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    [
        "x^2",
        "2^{x}",
        r"\frac{1}{2}",
        "2^{-1}",
        "1.5",
        "2(3",
        ")",
        "",
        "2^",
        r"\frac{2}{3",
        "(10^9)!",
        "5^{2^{9}-3^{99}}",
    ],
)
def test_what_is_no_whole_number_has_no_remainder(text):
    assert residue(text, 10) is None


def test_the_largest_text_takes_no_time():
    started = time.process_time()
    residue("9^{" * 100 + "9" + "}" * 100, 999_999_937)
    residue("9^" * 199 + "9", 999_999_937)
    residue("(" * 200 + "1" + ")" * 200, 7)
    residue("9!" * 1 + r"\cdot9999!" * 40, 999_999_937)
    assert time.process_time() - started < 2

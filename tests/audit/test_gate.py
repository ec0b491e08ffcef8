"""Conditions on an audit's numbers: which row, which end, which unit, and what is refused."""

import pytest

from rlvr_dir.audit.gate import condition
from rlvr_dir.audit.run import claims
from rlvr_dir.stats import Estimate
from tests.facts import refuses

CLAIMS = claims()
NUMBERS = {
    "outcomes/gain": Estimate(0.05, -0.01, 0.11),
    "tokens/kl_rl_base/rl": Estimate(0.2),
    "outcomes/crossing": Estimate(None),
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("gain < 0", False), ("gain < 5.1", True), ("gain<=5", True), ("gain > 5", False), ("gain >= 5", True),
        ("outcomes/gain.low < 0", True), ("gain.high < 11", False), ("gain.high <= 11.001", True),
        ("kl_rl_base/rl > 0.1", True), ("tokens/kl_rl_base/rl >= 2e-1", True), (" gain  >  -1.5 ", True),
    ],
)  # fmt: skip
def test_a_condition_compares_the_number_that_is_printed(text, holds):
    assert condition(text, CLAIMS)(NUMBERS) is holds


@pytest.mark.parametrize("text", ["gain", "gain < x", "gain = 0", "gain < 0 and 1", "__import__('os') < 1", "", "< 0"])
def test_anything_else_is_refused(text):
    with refuses("fail_if", text):
        condition(text, CLAIMS)


def test_unknown_rows_and_numbers_that_were_not_measured():
    with refuses("fail_if", "gian", "outcomes/gain"):
        condition("gian < 0", CLAIMS)
    for text in ("crossing < 3", "outcomes/avg/rl < 3", "kl_rl_base/rl.low < 1"):
        with refuses("fail_if", text):
            condition(text, CLAIMS)(NUMBERS)

"""Check that a terminal names a pattern only if the intervals of the results show it."""

import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.results.answer import READING, doubts, reading
from tests.facts import states
from tests.report.made import result

LOW, HIGH = 0.2, 0.6


def results(rl=HIGH, **shares):
    """Base, RL, and decodings at one gate, of so many right answers; equal shares are equal problem by problem."""
    ways = {mode: Decoding(mode=mode, tau=-0.1) for mode in shares}
    every = {Decoding(mode="base"): LOW, Decoding(mode="rl"): rl} | {ways[mode]: shares[mode] for mode in shares}
    return [result(decoding, share, problems=40) for decoding, share in every.items()]


def shown(of):
    """Return what is seen, by the rows of the guide that are printed."""
    said = reading(of)
    return {seen for seen, means in READING if means in said}


LIKE_RL, LIKE_REJECT, LIKE_RESAMPLE = "replace ≈ rl, few tokens changed", "replace ≈ reject", "reject ≈ resample"
ABOVE_RL, ABOVE_RESAMPLE = "replace above rl", "reject above resample"
LIKE_VETO, BELOW_VETO = "veto ≈ reject", "veto above reject"


@pytest.mark.parametrize(
    ("shares", "rows"),
    [
        ({"replace": HIGH, "reject": HIGH}, {LIKE_RL, LIKE_REJECT}),
        ({"replace": HIGH, "reject": LOW}, {LIKE_RL}),
        ({"replace": 0.95, "reject": 0.95}, {LIKE_REJECT, ABOVE_RL}),
        ({"replace": 0.95, "reject": LOW}, {ABOVE_RL}),
        ({"replace": LOW, "reject": LOW}, {LIKE_REJECT}),
        ({"replace": HIGH, "reject": LOW, "resample": LOW}, {LIKE_RL, LIKE_RESAMPLE}),
        ({"replace": HIGH, "reject": HIGH, "resample": LOW}, {LIKE_RL, LIKE_REJECT, ABOVE_RESAMPLE}),
        ({"replace": HIGH, "reject": HIGH, "veto": HIGH}, {LIKE_RL, LIKE_REJECT, LIKE_VETO}),
        ({"replace": HIGH, "reject": HIGH, "veto": 0.95}, {LIKE_RL, LIKE_REJECT, BELOW_VETO}),
    ],
)
def test_only_what_the_intervals_show_is_said(shares, rows):
    assert shown(results(**shares)) == rows


@pytest.mark.parametrize("rl", [LOW, 0.05])
def test_without_a_gain_nothing_is_explained(rl):
    of = results(rl=rl, replace=LOW, reject=LOW)
    assert shown(of) == set()
    assert reading(of)


def test_a_table_in_which_nothing_is_right_is_doubted():
    assert not any("max_tokens" in doubt for doubt in doubts(results(replace=0.0, reject=0.0)))
    of = [result(each.decoding, 0.0, problems=40) for each in results(replace=0.0, reject=0.0)]
    states(doubts(of)[0], "max_tokens", of[0].task)
    assert shown(of) == set()


def test_a_wide_interval_leaves_a_question_open():
    """Twenty problems: the intervals are wider than a quarter of the gain, so no two decodings are called alike."""
    ways = [Decoding(mode="base"), Decoding(mode="rl"), *(Decoding(mode=m, tau=-0.1) for m in ("replace", "reject"))]
    of = [result(how, share, problems=20) for how, share in zip(ways, (0.3, 0.6, 0.6, 0.6), strict=True)]
    assert shown(of) == set()
    assert reading(of).count("too few problems") == 2


def test_a_veto_below_base_is_named():
    assert shown(results(replace=HIGH, reject=HIGH, veto=0.0)) == {LIKE_RL, LIKE_REJECT, "veto far below base"}


def test_a_gate_that_flags_nearly_everything_explains_nothing():
    of = results(replace=HIGH, reject=HIGH)
    every = [each.replace(n_replaced=each.n_tokens) if each.decoding.gated else each for each in of]
    assert shown(every) == set()

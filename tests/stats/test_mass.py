"""Shares of a mass, parts of a gain: small cases by hand, and how often their intervals hold a known truth."""

import numpy as np
import pytest

from benchmarks.mass import bench_mass
from rlvr_dir import stats
from rlvr_dir.stats import gain_parts, least_share, mass_share, share_of_gain


def test_a_share_of_mass_is_a_ratio_of_sums_and_scales_with_nothing():
    part, whole = [1.0, 0.0, 3.0], [2.0, 1.0, 5.0]
    found = mass_share(part, whole)
    assert found.value == pytest.approx(4 / 8)
    scaled = mass_share(1e-3 * np.array(part), 1e-3 * np.array(whole))
    assert (scaled.low, scaled.high) == pytest.approx((found.low, found.high))
    assert mass_share([0, 0], [0, 0]) == stats.Estimate(None)
    assert mass_share([2.0, 1.0], [2.0, 1.0]) == stats.Estimate(1.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 1 / 10), (0.6, 1.5 / 10), (0.9, 3.625 / 10), (1.0, 6 / 10)])
def test_the_least_share_of_ten_tokens(share, expected):
    """Of 20 nats 10, 4, 3, 1.6, 1, and 0.4 stand on six of ten tokens; a part of a token counts as a part."""
    values = [0, 4, 0.4, 0, 10, 0, 1, 3, 1.6, 0]
    found = least_share(values, [0] * 5 + [1] * 5, share)
    assert found.value == pytest.approx(expected, abs=1e-9)


def test_both_parts_add_up_to_the_gain():
    random = np.random.default_rng(0)
    for _ in range(20):
        answered = random.uniform(0.1, 1, (2, 12))
        right = answered * random.uniform(0, 1, (2, 12))
        more, better = gain_parts((answered[0], right[0]), (answered[1], right[1]))
        assert more.value + better.value == pytest.approx(right[1].mean() - right[0].mean())
        for part in (more, better):
            assert part.low < part.value < part.high


def test_a_gain_that_is_all_more_answers():
    """RL answers everything, base every other time, and six in ten answers of either are right."""
    answered = np.array([0.3, 0.7, 0.5, 0.5])
    more, better = gain_parts((answered, 0.6 * answered), (np.ones(4), np.full(4, 0.6)))
    assert (more.value, better.value) == pytest.approx((0.3, 0.0))
    never, _ = gain_parts((np.zeros(4), np.zeros(4)), (np.ones(4), np.full(4, 0.6)))
    assert never.value == pytest.approx(0.6)


def test_a_share_is_of_a_gain_beyond_chance():
    """There is no share of none, of a loss, or of a gain that chance alone may give."""
    random = np.random.default_rng(0)
    base = random.uniform(0.1, 0.4, 20)
    rl = base + random.uniform(0.2, 0.5, 20)
    assert share_of_gain(base, base, rl, 8).value == 0
    assert share_of_gain(rl, base, rl, 8).value == pytest.approx(1)
    assert share_of_gain(base + 0.3 * (rl - base), base, rl, 8).value == pytest.approx(0.3)
    for other, none in ((base, base), (rl, base), (rl[:3], base[:3])):
        gained = share_of_gain(other, none, base[: len(none)], 8)
        assert gained == stats.Estimate(None), gained
    chance = np.array([0.0, 1.0] * 10)
    assert share_of_gain(base, chance, chance[::-1] + 0.01, 8) == stats.Estimate(None)
    assert share_of_gain(base, rl, base, 8) == stats.Estimate(None), "a loss"


def test_intervals_hold_the_truth_at_30_and_240_problems():
    for row in bench_mass(runs=150)["rows"]:
        assert row["coverage"] >= 0.88, row


def test_intervals_hold_the_truth_of_problems_in_families():
    rows = bench_mass(runs=60, in_families=True)["rows"]
    for row in rows:
        assert row["coverage"] >= 0.85, row
    careless = [row["over problems"] for row in rows if "tenth" not in row["number"]]
    assert max(careless) < 0.95
    assert np.mean(careless) < 0.75

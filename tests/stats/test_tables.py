"""Majority votes, Holm, averages over benchmarks and power: against scipy, enumeration and simulation."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import logit

from harness import stats
from harness.errors import UserError


@pytest.mark.parametrize(
    ("answers", "correct", "value"),
    [
        (["7", "7", "3"], [1, 1, 0], 1.0),
        (["7", "3", "3"], [1, 0, 0], 0.0),
        (["7", "3"], [1, 0], 0.5),  # a tie shares the point
        (["7", "3", "5"], [1, 0, 0], 1 / 3),
        ([None, None, "7"], [0, 0, 1], 1.0),  # no answer, no vote
        ([None, None], [0, 0], 0.0),
    ],
)
def test_majority_of_all_samples(answers, correct, value):
    assert stats.maj_at_k([answers], [correct]) == pytest.approx(value)


@pytest.mark.parametrize(("answers", "k"), [([["a"], ["b", "c"]], None), ([["a", "b"], ["c", "d"]], 3), ([], None)])
def test_majority_refusals(answers, k):
    with pytest.raises(UserError):
        stats.maj_at_k(answers, [[0] * len(row) for row in answers], k)


def test_holm_by_hand_and_by_definition():
    assert stats.holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.9, 0.9]).tolist() == [1.0, 1.0]
    assert stats.holm([]).size == 0
    p = np.random.default_rng(2).random(9) ** 3
    adjusted, order = stats.holm(p), np.argsort(p)
    for rank, i in enumerate(order):
        assert adjusted[i] == pytest.approx(min(1, max(p[order[j]] * (9 - j) for j in range(rank + 1))))
    with pytest.raises(UserError):
        stats.holm([0.5, 1.2])


def simulate(gain, spread, problems, samples, runs, rng):
    """Share of simulated paired experiments that a t test calls significant."""
    true_gain = gain + rng.normal(0, math.sqrt(spread.between), size=(runs, problems))
    noise = rng.normal(0, math.sqrt(spread.within / samples), size=(runs, problems))
    return (scipy_stats.ttest_1samp(true_gain + noise, 0, axis=1).pvalue < 0.05).mean()


@pytest.mark.parametrize(("gain", "problems", "samples"), [(0.02, 30, 32), (0.05, 30, 8), (0.03, 300, 4)])
def test_power_is_what_simulation_finds(gain, problems, samples):
    spread = stats.Spread(between=0.01, within=0.3)
    found = simulate(gain, spread, problems, samples, 4000, np.random.default_rng(0))
    assert stats.power(gain, spread, problems, samples) == pytest.approx(found, abs=0.03)


def test_problems_needed_and_detectable_gain_invert_power():
    spread = stats.Spread(between=0.01, within=0.3)
    n = stats.problems_needed(0.02, spread, samples=32)
    assert stats.power(0.02, spread, n, 32) >= 0.8 > stats.power(0.02, spread, n - 1, 32)
    gain = stats.detectable_gain(spread, 30, 32)
    assert stats.power(gain, spread, 30, 32) == pytest.approx(0.8, abs=1e-6)
    assert stats.detectable_gain(spread, 30, 10**9) > 0.04  # samples alone cannot go below the spread of problems


def test_spread_is_recovered_from_matrices():
    rng = np.random.default_rng(4)
    problems, samples = 4000, 16
    p = rng.uniform(0.2, 0.8, problems)
    q = np.clip(p + rng.normal(0.05, 0.08, problems), 0, 1)
    a, b = (rng.random((problems, samples)) < r[:, None] for r in (q, p))
    spread = stats.paired_spread(a, b)
    assert spread.between == pytest.approx((q - p).var(), rel=0.1)
    assert spread.within == pytest.approx((p * (1 - p) + q * (1 - q)).mean(), rel=0.02)
    with pytest.raises(UserError):
        stats.paired_spread(a, b[:10])


def test_the_interval_of_a_share_of_tokens_is_students_of_its_log_odds():
    """Where all problems have as many tokens, the share is a mean over problems, its variance that of the mean."""
    values = np.random.default_rng(1).beta(2, 3, size=30)
    ours = stats.token_share(1000 * values, np.full(30, 1000))
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(30)
    half = scipy_stats.t.ppf(0.975, 29) * error / (mean * (1 - mean))
    assert ours.value == pytest.approx(mean)
    assert (logit(ours.low), logit(ours.high)) == pytest.approx((logit(mean) - half, logit(mean) + half), rel=1e-6)
    more = stats.token_share([*1000 * values, 0, 0], [1000] * 30 + [0, 0])
    assert (more.low, more.high) == pytest.approx((ours.low, ours.high))  # a problem without tokens says nothing
    assert stats.token_share([0.5], [1]) == stats.Estimate(0.5, None, None)
    with pytest.raises(ValueError, match=r"1\.5 is no share"):
        stats.token_share([3.0, 6.0], [2, 4])
    whole = stats.token_mean(3000 * values, np.full(30, 1000))  # every problem weighs the same: the plain t interval
    reach = scipy_stats.t.ppf(0.975, 29) * 3 * error
    assert (whole.value, whole.low, whole.high) == pytest.approx((3 * mean, 3 * mean - reach, 3 * mean + reach))


def test_a_share_of_nothing_and_problems_that_agree_have_an_interval():
    """Resampled, each of these was [x, x]."""
    none, every = (stats.token_share(np.full(30, hits), np.full(30, 50)) for hits in (0, 50))
    assert (none.low, none.high) == (0, pytest.approx(stats.score_interval(np.zeros((30, 1)))[1]))
    assert (every.low, every.high) == (pytest.approx(1 - none.high), 1)
    same = stats.token_share(np.full(30, 10), np.full(30, 50))
    assert same.low < 0.185 < 0.2 < 0.215 < same.high
    ratio = stats.share_ratio((np.full(30, 10), np.full(30, 50)), (np.zeros(30), np.full(30, 50)))
    assert ratio.low < 100 < ratio.value == 601 < ratio.high


def test_the_interval_of_an_average_knows_that_a_benchmark_of_zeros_is_not_certain():
    """By standard errors the second benchmark would add nothing: 40 problems without a right sample."""
    some, none = np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], (10, 1)), np.zeros((40, 2))
    (a, b), (_, top) = stats.score_interval(some), stats.score_interval(none)
    low, high = stats.mean_interval([(0.5, a, b), (0.0, 0.0, top)])
    assert (low, high) == pytest.approx((0.25 - (0.5 - a) / 2, 0.25 + np.hypot(b - 0.5, top) / 2))
    found = stats.score_over_runs([{0: some}, {0: none}])
    assert (found.low, found.high) == pytest.approx((low, high))
    ends = stats.mean_interval([(1.0, *stats.score_interval(1 - none))] * 3)
    assert 0.9 < ends[0] < 1 == ends[1]
    assert np.isnan(stats.mean_interval([(0.5, a, b), (1.0, float("nan"), float("nan"))])).all()

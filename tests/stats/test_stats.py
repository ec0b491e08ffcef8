"""Statistics against fixtures worked out by hand, closed forms, scipy, enumeration and simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import logit

from rlvr_dir import stats
from rlvr_dir.errors import UserError
from rlvr_dir.stats.paired import sign_flips, with_signs
from tests.facts import refuses

X = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
Y = np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 1]])


def row(n, c):
    return [[1] * c + [0] * (n - c)]


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (32, 0, 16, 0.0),
        (32, 1, 16, 0.5),
        (32, 2, 16, 0.758064516129),
        (32, 5, 16, 0.978309232481),
        (32, 16, 16, 0.999999998336),
        (32, 17, 16, 1.0),
        (32, 10, 1, 0.3125),
        (32, 3, 8, 0.591935483871),
        (8, 4, 4, 0.985714285714),
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_fixtures(n, c, k, value):
    assert stats.pass_at_k(row(n, c), k) == pytest.approx(value, abs=1e-12)


def test_pass_at_k_is_the_binomial_form_for_every_k():
    n = 32
    for c in range(n + 1):
        for k in range(1, n + 1):
            exact = 1 - math.comb(n - c, k) / math.comb(n, k)
            assert stats.pass_at_k(row(n, c), k) == pytest.approx(exact, abs=1e-12)


def test_pass_at_one_is_avg():
    assert stats.pass_at_k(X, 1) == pytest.approx(stats.avg_at_k(X))
    assert stats.avg_at_k(X) == 0.5
    assert stats.pass_at_k(X, 2) == pytest.approx(0.6666666667)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_refuses_more_than_there_is(k):
    with refuses("k", k):
        stats.pass_at_k(X, k)


@pytest.mark.parametrize("bad", [[], [[]], [0, 1], [[0.5, 1]], [[np.nan, 1]]])
def test_missing_samples_are_refused(bad):
    with pytest.raises(UserError):
        stats.avg_at_k(bad)


def test_errors_match_the_fixture_and_scipy():
    assert stats.standard_error(X) == pytest.approx(0.1767766953)
    assert stats.standard_error(X) == pytest.approx(scipy_stats.sem(X.mean(axis=1)))
    p = X.mean(axis=1)
    assert stats.sampling_error(X) == pytest.approx(math.sqrt((p * (1 - p)).sum() / 3) / 5)
    assert math.isnan(stats.standard_error(X[:1]))
    assert math.isnan(stats.sampling_error(X[:, :1]))


def test_sampling_error_is_the_spread_of_reruns():
    rng = np.random.default_rng(0)
    p = np.array([0.1, 0.5, 0.9, 0.7])
    runs = rng.random((4000, 4, 8)) < p[None, :, None]
    spread = runs.mean(axis=(1, 2)).std()
    squared = np.mean([stats.sampling_error(run) ** 2 for run in runs])
    assert math.sqrt(squared) == pytest.approx(spread, rel=0.03)


def test_t_interval_against_scipy():
    values = X.mean(axis=1)
    low, high = stats.t_interval(values.mean(), stats.standard_error(X), 5)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert all(math.isnan(edge) for edge in stats.t_interval(0.5, float("nan"), 1))


def test_paired_difference_fixture():
    d = stats.paired_difference(Y.mean(axis=1), X.mean(axis=1))
    assert (d.mean, d.n) == (pytest.approx(0.15), 5)
    assert d.error == pytest.approx(0.0612372436)
    assert d.p == 0.25
    expected = scipy_stats.ttest_rel(Y.mean(axis=1), X.mean(axis=1))
    assert expected.pvalue == pytest.approx(0.0704839969)
    assert (d.low, d.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_sign_flip_is_scipys_permutation_test():
    d = np.random.default_rng(3).normal(0.3, 1, size=11)
    expected = scipy_stats.permutation_test(
        (d,), lambda x, axis: x.mean(axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert stats.sign_flip_p(d) == pytest.approx(expected.pvalue)


def test_sign_flip_limits():
    assert stats.sign_flip_p(np.zeros(30)) == 1.0
    assert stats.sign_flip_p(np.ones(10)) == pytest.approx(2 / 2**10)
    many = stats.sign_flip_p(np.ones(30))
    assert 0 < many < 0.001
    assert stats.sign_flip_p(np.ones(30)) == many  # a fixed seed


def test_sign_flips_count_ties_exactly_at_any_scale():
    """Sums that are equal on paper differ in their last bits; they count as ties, whatever the unit."""
    tenths = [6, -1, -6, -5, 6, 5, 5, 4, -2, 2, -7]
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(tenths))).reshape(len(tenths), -1)
    exact = float((np.abs(signs.T @ np.abs(tenths)) >= abs(sum(tenths))).mean())
    for unit in (0.1, 1e-3, 1e5 / 3):
        assert stats.sign_flip_p(np.array(tenths) * unit) == exact


def test_random_signs_are_the_same_in_every_run():
    """More than 20 differences draw their signs from one seed, which is 0 unless another is given."""
    d = np.random.default_rng(4).standard_normal(40) + 0.3
    p = stats.sign_flip_p(d)
    assert p == stats.sign_flip_p(d, seed=0) == sign_flips(d)[0]
    assert p != stats.sign_flip_p(d, seed=1) == pytest.approx(p, abs=0.02)


def test_the_least_p_that_random_signs_can_give_is_an_upper_bound():
    """If no drawn pattern is as far from 0, p is an upper bound, also if the t test gives exactly the same p."""
    d = 0.5 + np.random.default_rng(5).random(60)
    p, least = sign_flips(d)
    assert (p, least) == (1 / 10_001, True)
    found = stats.paired_difference(d[:, None], np.zeros((60, 1)))
    for of_t, bound in ((1e-9, True), (p, True), (0.01, False)):
        assert with_signs(replace(found, p=of_t), d, 0.95).at_most is bound


def test_different_problems_are_refused():
    with refuses("a"):
        stats.paired_difference(X, Y[:4])


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
    assert stats.holm([1.0, 0.0]).tolist() == [1.0, 0.0]
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


def test_power_of_two_problems_with_a_huge_gain_is_that_of_their_spread_alone():
    """A gain of 40 errors, one degree of freedom: only the estimate of the error is random."""
    rng, edge = np.random.default_rng(6), scipy_stats.t.ppf(0.995, 1)
    found = stats.power(40.0, stats.Spread(between=2.0, within=0.0), 2, 1, level=0.01)
    t = (rng.standard_normal(400_000) + 40) / np.abs(rng.standard_normal(400_000))
    assert found == pytest.approx((np.abs(t) > edge).mean(), abs=0.005)
    assert 0.4 < found < 0.5


def test_a_score_of_trainings_without_their_seeds_has_no_interval():
    table = {seed: np.random.default_rng(seed).integers(0, 2, (12, 4)).astype(float) for seed in range(3)}
    means = np.array([x.mean() for x in table.values()])
    kept = stats.RunScores("DAPO", "task", ("0", "1", "2"), means, runs=table)
    assert 0 <= kept.interval[0] < kept.avg < kept.interval[1] <= 1
    assert np.isnan(replace(kept, runs={}).interval).all()


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
    for of in (stats.token_share, stats.token_mean):
        assert of([0, 0], [0, 0]) == stats.Estimate(None)  # of no token there is none: not 0
    with refuses("1.5"):
        stats.token_share([3.0, 6.0], [2, 4])
    whole = stats.token_mean(3000 * values, np.full(30, 1000))  # every problem weighs the same: the plain t interval
    reach = scipy_stats.t.ppf(0.975, 29) * 3 * error
    assert (whole.value, whole.low, whole.high) == pytest.approx((3 * mean, 3 * mean - reach, 3 * mean + reach))


def test_a_mean_share_counts_each_problem_once_however_long_its_responses_are():
    hits, tokens = [10, 300, 0, 4], [100, 1000, 0, 10]
    each = np.array([0.1, 0.3, 0.4])
    ours = stats.problem_share(hits, tokens)
    half = scipy_stats.t.ppf(0.975, 2) * each.std(ddof=1) / np.sqrt(3) / (each.mean() * (1 - each.mean()))
    assert ours.value == pytest.approx(each.mean())
    assert (logit(ours.low), logit(ours.high)) == pytest.approx((logit(each.mean()) - half, logit(each.mean()) + half))
    assert stats.token_share(hits, tokens).value == pytest.approx(314 / 1110)
    few = stats.problem_share([1, 2, 4], [5, 10, 20])  # problems that agree: as wide as independent tokens make it
    error = np.sqrt(0.16 * (1 / 5 + 1 / 10 + 1 / 20)) / 3
    assert logit(few.high) == pytest.approx(logit(0.2) + scipy_stats.t.ppf(0.975, 2) * error / 0.16)
    families = stats.problem_share([10, 300, 4], [100, 1000, 10], ["a", "a", "b"])
    assert families.value == pytest.approx(each.mean())
    assert families.high > ours.high
    assert stats.problem_share([0, 0], [0, 0]) == stats.Estimate(None)
    with refuses("1.5"):
        stats.problem_share([3.0, 6.0], [2, 4])


def test_a_share_of_nothing_and_problems_that_agree_have_an_interval():
    """Resampled, each of these was [x, x]."""
    none, every = (stats.token_share(np.full(30, hits), np.full(30, 50)) for hits in (0, 50))
    assert (none.low, none.high) == (0, pytest.approx(stats.score_interval(np.zeros((30, 1)))[1]))
    assert (every.low, every.high) == (pytest.approx(1 - none.high), 1)
    same = stats.token_share(np.full(30, 10), np.full(30, 50))
    assert same.low < 0.185 < 0.2 < 0.215 < same.high
    ratio = stats.share_ratio((np.full(30, 10), np.full(30, 50)), (np.zeros(30), np.full(30, 50)))
    assert 3 < ratio.low < 100 < ratio.value == 601
    assert ratio.high is None  # of a share that no problem shows there is no upper end


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

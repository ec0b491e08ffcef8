"""Intervals near 0 and 1, few differences, families of tests, seeds and shared noise: closed forms and simulations."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats as scipy_stats

from benchmarks.intervals import SIMULATIONS, bench_statistics
from rlvr_dir import stats
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import interval
from rlvr_dir.stats.paired import difference_error
from tests.facts import refuses


def test_a_score_whose_problems_are_single_coins_has_wilsons_interval():
    correct = np.zeros((200, 1))
    correct[:60] = 1
    low, high = stats.score_interval(correct)
    expected = scipy_stats.binomtest(60, 200).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.001)  # t for z, n - 1 for n


def test_a_score_of_nothing_has_an_upper_bound_and_all_stay_within_0_and_1():
    low, high = stats.score_interval(np.zeros((30, 32)))
    assert low == 0
    assert 0.1 < high < 0.13  # not below the rule of three's: 30 problems say no more, however often they are asked
    assert stats.score_interval(np.ones((30, 32))) == pytest.approx((1 - high, 1))
    equal = stats.score_interval(np.tile([1, 0], (30, 8)))  # problems that do not differ at all: each sample counts
    assert equal[1] - equal[0] == pytest.approx(2 * 2.045 * 0.5 / np.sqrt(480), rel=0.02)
    assert all(np.isnan(stats.score_interval(np.ones((1, 4)))))
    with refuses("correct", "0", "1"):
        stats.score_interval([[0, 7]])


def few(differing, n=60, samples=32):
    """So many problems of which one sample of 32 was lost, the others all right."""
    a = np.ones((n, samples))
    a[:differing, 0] = 0
    return stats.paired_difference(np.ones((n, samples)), a)


def test_a_difference_of_which_nothing_is_seen_is_not_known_to_be_zero():
    d = stats.paired_difference(np.ones((30, 4)), np.ones((30, 4)))
    assert (d.mean, d.p) == (0, 1)
    assert d.high == -d.low == pytest.approx(scipy_stats.t.ppf(0.975, 29) * 2**0.5 / 32)  # Bonett and Price
    all_one = stats.paired_difference(np.ones((30, 4)), np.zeros((30, 4)))  # nor is a difference that never varies
    assert 0.88 < all_one.low < all_one.high == 1


def test_the_interval_of_a_difference_does_not_leap_where_one_more_problem_differs():
    widths = [d.high - d.low for d in map(few, range(30))]
    ratios = [before / after for before, after in pairwise(widths)]
    assert max(ratios) < 2.05  # from none that differs to one; from 5 to 6 it was 19
    assert max(ratios[3:]) < 1.25
    five, six = few(5), few(6)
    assert five.p > six.p > 0.05
    assert six.high - six.low < five.high - five.low
    m = 6  # by hand: two problems more that differ by +s and -s
    d = np.zeros(60)
    d[:m] = 1 / 32
    error = np.sqrt(((d - d.mean()) ** 2).sum() + 2 / (1 + m) ** 2) / 62
    assert six.error == pytest.approx(error)
    d[:] = np.linspace(-0.2, 0.5, 60)  # where all differ it is the t interval
    plain = stats.mean_difference([d], 32)
    assert (plain.low, plain.high) == pytest.approx(stats.t_interval(d.mean(), scipy_stats.sem(d), 60))


def test_p_and_interval_of_a_difference_agree():
    random, seen = np.random.default_rng(4), set()
    for _ in range(400):
        n, k = int(random.integers(2, 40)), int(random.integers(1, 9))
        p = random.beta(0.4, 0.6, n)
        a, b = (
            random.random((n, k)) < chance[:, None] for chance in (p, np.clip(p + random.normal(0.1, 0.2, n), 0, 1))
        )
        d = stats.paired_difference(b, a)
        seen.add(excludes := not d.low <= 0 <= d.high)
        assert excludes == (d.p < 0.05)
        assert -1 <= d.low <= d.mean <= d.high <= 1
    assert seen == {True, False}


def test_the_interval_for_these_very_problems_is_of_responses_that_went_up_and_down():
    a, b = np.zeros((60, 32)), np.zeros((60, 32))
    b[:2, :3], a[5, :1] = 1, 1  # six up, one down
    low, high = stats.paired_difference(b, a).sampling
    bounds = [(scipy_stats.chi2.ppf(0.025, 2 * c) / 2, scipy_stats.chi2.ppf(0.975, 2 * c + 2) / 2) for c in (6, 1)]
    assert low == pytest.approx((5 - np.hypot(6 - bounds[0][0], bounds[1][1] - 1)) / 1920)
    assert high == pytest.approx((5 + np.hypot(bounds[0][1] - 6, 1 - bounds[1][0])) / 1920)
    nothing = stats.paired_difference(a, a).sampling
    assert nothing == pytest.approx((-3.6889 / 1920, 3.6889 / 1920), abs=1e-6)
    assert np.isnan(stats.paired_difference(a, b[:, :16]).sampling[0])  # whose samples have no partners


def test_parts_of_an_error_count_with_their_own_degrees_of_freedom():
    assert stats.combined(0.3, [(0.1, 9)])[:2] == stats.t_interval(0.3, 0.1, 10)
    low, high, p = stats.combined(0.3, [(0.1, 9), (0.05, 2)])
    half = np.hypot(0.1 * scipy_stats.t.ppf(0.975, 9), 0.05 * scipy_stats.t.ppf(0.975, 2))
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half))
    at = np.hypot(0.1 * scipy_stats.t.isf(p / 2, 9), 0.05 * scipy_stats.t.isf(p / 2, 2))
    assert at == pytest.approx(0.3)  # p is where the interval ends at 0
    assert stats.combined(0.0, [(0.1, 9), (0.05, 2)])[2] == pytest.approx(1)
    assert stats.combined(1e9, [(0.1, 9), (0.05, 2)])[2] == pytest.approx(0, abs=1e-11)
    assert np.isnan(stats.combined(0.3, [(0.1, 9), (float("nan"), 2)])).all()


def test_the_interval_of_few_problems_ends_where_a_difference_of_accuracies_does():
    """Two problems without a difference, and two that differ: by t the first would have [-4.49, 4.49]."""
    for d, mean in (((0.0, 0.0), 0.0), ((0.5, 0.75), 0.625)):
        found = stats.paired_difference(np.array([[each] for each in d]), np.zeros((2, 1)))
        assert (found.low, found.mean, found.high) == (-1, mean, 1)


def test_numbers_that_are_all_the_same_have_no_interval():
    """Of anything but shares no bound is known, and [0.0, 0.0] would say that there is nothing left to doubt."""
    scores = np.full(30, 12.5)  # of a metric in its own units
    d = stats.paired_difference(scores, scores - 2)
    assert (d.mean, np.isnan(d.low), np.isnan(d.high)) == (2, True, True)
    assert all(np.isnan(stats.Scores("a", "t", tuple(range(30)), scores).interval))
    few = stats.paired_difference(np.append(scores, 13), np.append(scores, 12.5))
    assert few.low < few.mean < few.high


def test_problems_that_differ_little_widen_a_score_by_two_coins():
    """Thirty problems, each solved in 3 of 8: as uncertain as n (n + 2) / 2 trials, not as all 240 samples."""
    low, high = stats.score_interval(np.tile([1, 1, 1, 0, 0, 0, 0, 0], (12, 1)))
    expected = scipy_stats.norm.interval(0.95, 0.375, np.sqrt(0.375 * 0.625 / 84))
    assert high - low == pytest.approx((expected[1] - expected[0]) * 2.201 / 1.96, rel=0.05)


def test_satterthwaite_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(0, 3, size=30)
    parts = [(float(scipy_stats.sem(each)), each.size - 1) for each in (a, b)]
    assert stats.satterthwaite(parts) == pytest.approx(scipy_stats.ttest_ind(a, b, equal_var=False).df)
    assert stats.satterthwaite([(0.0, 4), (0.0, 9)]) == 4


def test_the_mean_over_benchmarks_has_welchs_degrees_of_freedom():
    """Six problems with a wide spread count as six, however many the other benchmark has."""
    rng = np.random.default_rng(3)
    differences = [(rng.integers(-4, 5, n) / 4).astype(float) for n in (6, 400)]
    found = stats.mean_difference(differences, 4)
    errors = [scipy_stats.sem(d) for d in differences]
    df = stats.satterthwaite([(float(e), d.size - 1) for e, d in zip(errors, differences, strict=True)])
    assert df < 8
    half = scipy_stats.t.ppf(0.975, df) * np.hypot(*errors) / 2
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))


def test_holm_can_be_below_5_percent_in_the_largest_table():
    d = np.ones(40)
    assert stats.sign_flip_p(d) * 1000 > 0.05  # 10,000 patterns cannot do it
    assert stats.sign_flip_p(d, comparisons=1000) * 1000 < 0.03
    one, none = (stats.Scores(str(x), "t", tuple(range(21)), np.full((21, 1), x)) for x in (1.0, 0.0))
    assert stats.corrected([(one, none)] * 300)[0].holm_p < 0.03


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(bad):
    good, broken = np.zeros((5, 2)), np.zeros((5, 2))
    broken[3, 1] = bad
    for ask in (
        lambda: stats.paired_difference(good, broken),
        lambda: stats.sign_flip_p(broken[:, 1]),
        lambda: stats.standard_error(broken),
        lambda: stats.sampling_error(broken),
        lambda: stats.score_interval(broken),
        lambda: stats.mean_difference([broken[:, 1]], 2),
        lambda: stats.score_over_runs([{0: broken}]),
        lambda: stats.difference_over_runs([({0: good}, {0: broken})]),
    ):
        with pytest.raises(UserError) as info:
            ask()
        assert info.value.argument  # a, b, differences, values or correct


def test_shared_noise_is_not_counted_as_spread():
    rng = np.random.default_rng(5)
    p = rng.uniform(0.2, 0.8, 4000)
    u = rng.random((4000, 16))
    same = rng.random(u.shape) < 0.8
    a, b = u < p[:, None], np.where(same, u, rng.random(u.shape)) < p[:, None]
    spread = stats.paired_spread(a, b)
    assert spread.within == pytest.approx(0.2 * 2 * (p * (1 - p)).mean(), rel=0.03)
    assert spread.between < 1e-3
    apart = stats.paired_spread(a, b[:, :15])  # nobody says which samples belong together
    assert apart.within == pytest.approx(2 * (p * (1 - p)).mean(), rel=0.03)
    needed = [stats.problems_needed(0.02, each, 8) for each in (spread, apart)]
    assert needed[1] == pytest.approx(5 * needed[0], rel=0.1)
    assert stats.power(0.02, stats.Spread(4e-4, 0.022), 272, 32) == pytest.approx(1)  # scipy gives NaN for a tail


def test_a_score_over_seeds_is_for_other_problems_and_other_seeds():
    """By hand: problems of 0.25 and 0.75 in turn, seeds 0.1 apart."""
    p = np.tile([0.25, 0.75], 10)
    runs = {
        seed: (np.arange(20) < np.round(20 * (p + shift))[:, None]).astype(float)
        for seed, shift in ((0, -0.05), (1, 0.05))
    }
    found = stats.score_over_runs([runs])
    over_problems, over_seeds = p.std(ddof=1) / 20**0.5, 0.1 / 2**0.5 / 2**0.5
    assert found.error == pytest.approx(np.hypot(over_problems, over_seeds))
    half = np.hypot(scipy_stats.t.ppf(0.975, 19) * over_problems, scipy_stats.t.ppf(0.975, 1) * over_seeds)
    assert (found.low, found.high) == pytest.approx((max(0, 0.5 - half), min(1, 0.5 + half)))
    one = stats.score_over_runs([{0: runs[0]}])
    assert (one.low, one.high) == stats.score_interval(runs[0])
    nothing = {seed: np.zeros((20, 4)) for seed in (0, 1)}
    assert stats.score_over_runs([nothing]).high > 0.1  # no difference between seeds is no certainty


def test_differences_over_seeds_are_paired_by_seed_where_both_have_the_same():
    rng = np.random.default_rng(2)
    luck = {0: 0.0, 1: 0.3, 2: -0.3}
    runs = {seed: (rng.random((40, 16)) < 0.5 + each).astype(float) for seed, each in luck.items()}
    others = {seed: np.roll(x, 1, axis=1) for seed, x in runs.items()}  # the same shares
    same = stats.difference_over_runs([(runs, others)])
    assert (same.mean, same.p) == (0.0, 1.0)
    apart = stats.difference_over_runs([(runs, {seed + 10: x for seed, x in others.items()})])
    assert apart.high - apart.low > 4 * (same.high - same.low)
    part = stats.difference_over_runs([({0: runs[0], 1: runs[1]}, {1: others[0], 9: others[2]})])
    assert part.mean == pytest.approx((runs[0].mean() + runs[1].mean() - others[0].mean() - others[2].mean()) / 2)


@pytest.mark.parametrize(("ones", "others"), [(1, 3), (3, 1), (2, 5)])
def test_trainings_of_unequal_numbers_of_seeds_use_all_of_them(ones, others):
    """Seeds that differ by 3 points, no gain: with one of three seeds left out a quarter of them were claims."""
    rng, held, claims, trials = np.random.default_rng(ones), 0, 0, 200
    for _ in range(trials):
        chance = rng.beta(2, 2, 60)
        sides = [
            {
                seed: rng.random((60, 8)) < np.clip(chance + 0.03 * rng.standard_normal(), 0, 1)[:, None]
                for seed in range(n)
            }
            for n in (ones, others)
        ]
        found = stats.difference_over_runs([tuple({s: x.astype(float) for s, x in side.items()} for side in sides)])
        held, claims = held + (found.low <= 0 <= found.high), claims + (found.p < 0.05)
    assert held >= 0.95 * trials - 6  # two standard errors
    assert claims <= 0.05 * trials + 6


def test_the_samples_of_a_base_count_once_however_many_trainings_it_stands_beside():
    """One sample a problem, and no difference between the seeds: the error is that of one sample."""
    base, trained = np.zeros((40, 1)), np.zeros((2, 40, 1))
    trained[0, :4] = trained[1, 4:8] = 1
    found = stats.difference_over_runs([(dict(enumerate(trained)), {0: base, 1: base})])
    assert found.error == pytest.approx(difference_error([trained.mean(axis=(0, 2))], 1)[0])


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [
        (-0.012, 0.034, "[-1.2, +3.4]"),
        (0.0004, 0.02, "[+0.04, +2.0]"),
        (-0.00004, 0.02, "[-0.004, +2.0]"),
        (0.0, 0.1, "[+0.0, +10.0]"),
        (-0.0, 0.1, "[+0.0, +10.0]"),
        (float("nan"), float("nan"), ""),
    ],
)
def test_the_digits_that_decide_are_written(low, high, written):
    assert interval(low, high, sign=True) == written


def test_the_simulation_finds_what_the_page_says():
    """The same code as `python -m benchmarks.intervals`, few runs: bounds of 4.5 standard errors around 95 and 5 %."""
    found = bench_statistics(runs=20)
    assert all(len(found[name]) > 1 for name in SIMULATIONS)
    wrong = [row["coverage"] for name in ("scores", "shares") for row in found[name] if row["coverage"] < 0.75]
    assert not wrong
    assert all(row["false claims"] < 0.25 for name in ("differences", "families") for row in found[name])
    near_nothing = [row for row in found["scores"] if row["law"] == "few solved, 3 %" and row["problems"] == 30]
    assert all(row["of t"] < row["coverage"] for row in near_nothing)
    same, other = (
        np.mean([row["mean, points"] for row in found["choices"] if row["confirmed on"] == where])
        for where in ("the same problems", "other problems")
    )
    assert same > other + 0.3

"""Problems that come in families: laws, an example by hand, an oracle of matrices, brute force, and a simulation."""

from itertools import product

import numpy as np
import pytest
from scipy import linalg
from scipy import stats as scipy_stats

from benchmarks.laws import families, pair_of, shared_by
from rlvr_dir import stats
from rlvr_dir.stats.best import simultaneous_level
from rlvr_dir.stats.errors import mean_error
from rlvr_dir.stats.families import Families, by_family
from rlvr_dir.stats.paired import difference_error, sign_flips
from tests.facts import refuses

THREE = ["a", "a", "b", "c", "c", "c"]
D = np.array([0.5, 0.25, -0.25, 0.0, 0.5, 0.75])
NAN = float("nan")


def fields(d):
    return [d.mean, d.error, d.low, d.high, d.p]


def tables(random, problems, samples=8, gain=0.15):
    """Two settings of so many problems, (problems, samples) each, of which the second is better."""
    p = random.beta(0.8, 0.8, problems)
    q = np.clip(p + gain * random.normal(0.5, 1, problems), 0, 1)
    a, b = pair_of(p, q, samples, 0.5, random)
    return a * 1.0, b * 1.0


def numbers(a, b, own):
    """Everything that is over families, of two settings on the same problems: a list of numbers each."""
    tokens = 20 + 60 * np.arange(len(a)) % 7
    runs = [{seed: x[:, 4 * seed : 4 * seed + 4] for seed in (0, 1)} for x in (a, b)]
    best = stats.best_difference([b, a], [a, np.roll(a, 1, axis=1)[:, :4]], families=own)
    crossing = stats.crossing(a, b, families=own)
    share = stats.token_share(a.sum(axis=1), tokens, own)
    score = stats.score_over_runs([runs[0]], families=[own])
    return {
        "error": mean_error(a, own),
        "score": stats.score_interval(a, families=own),
        "difference": fields(stats.paired_difference(b, a, families=own)),
        "in any units": fields(stats.paired_difference(7 * b.mean(axis=1), 7 * a.mean(axis=1), families=own)),
        "over runs": fields(stats.difference_over_runs([(runs[1], runs[0])], families=[own])),
        "score over runs": (score.mean, score.error, score.low, score.high),
        "share": (share.value, share.low, share.high),
        "best": (best.mean, best.low, best.high, best.p),
        "crossing": [crossing.k or 0, crossing.estimate or 0],
    }


@pytest.mark.parametrize("gain", [0.0, 0.4])
def test_families_of_one_problem_give_what_no_families_give(gain):
    random = np.random.default_rng(1)
    for n in (2, 7, 24):
        a, b = tables(random, n, gain=gain)
        alone, singles = numbers(a, b, None), numbers(a, b, [f"p{i}" for i in range(n)])
        for name, values in alone.items():
            assert singles[name] == pytest.approx(values, nan_ok=True), name


@pytest.mark.parametrize("gain", [0.0, 0.4])
def test_families_of_one_size_whose_problems_are_alike_count_as_one_problem_each(gain):
    """CR2, its degrees, the two families more, the coins, and signs: five copies of a problem add nothing."""
    random = np.random.default_rng(2)
    for families_ in (6, 24):
        a, b = tables(random, families_, gain=gain)
        labels = np.repeat(np.arange(families_), 5)
        once = numbers(a, b, None)
        copied = numbers(np.repeat(a, 5, axis=0), np.repeat(b, 5, axis=0), [*labels])
        once["share"] = copied["share"]  # its tokens are not copied
        for name, values in once.items():
            assert copied[name] == pytest.approx(values, nan_ok=True), name
    hits, tokens = random.integers(0, 9, 12), random.integers(20, 90, 12)
    once = stats.token_share(hits, tokens)
    copied = stats.token_share(np.repeat(hits, 5), np.repeat(tokens, 5), [*np.repeat(np.arange(12), 5)])
    assert (copied.value, copied.low, copied.high) == pytest.approx((once.value, once.low, once.high))


def test_a_mean_over_three_families_by_hand():
    """Residuals by family 1/6, -13/24 and 3/8, enlarged by 3/2, 6/5 and 2; degrees 36 / 21.6."""
    error, df = mean_error(D, THREE)
    assert error == pytest.approx(np.sqrt(1 / 24 + 169 / 480 + 9 / 32) / 6)
    assert df == pytest.approx(5 / 3)
    groups = Families.of(THREE, 6)
    assert groups.effective == pytest.approx(36 / 14)
    assert by_family(D, THREE).tolist() == pytest.approx([0.375, -0.125, 0.625])  # half of 0.75, -0.25 and 1.25
    assert by_family(D, THREE, D.mean()).mean() == by_family(D, THREE).mean() == pytest.approx(D.mean())
    found = stats.mean_difference([D], 4, families=[THREE])
    half = scipy_stats.t.ppf(0.975, 5 / 3) * found.error
    assert (found.low, found.high) == (max(-1, D.mean() - half), min(1, D.mean() + half))
    assert (found.n, found.families, found.over) == (6, 3, "3 families")
    assert stats.mean_difference([D], 4).over == "6 problems"
    units = stats.paired_difference(100 * D, np.zeros(6), families=THREE)  # which have neither floor nor ends
    assert units.error == pytest.approx(100 * error)
    half = 100 * error * scipy_stats.t.ppf(0.975, 5 / 3)
    assert (units.low, units.high) == pytest.approx((100 * D.mean() - half, 100 * D.mean() + half))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 5, 5), (1, 4, 2, 7, 1), (12, 1, 1, 1, 1)])
def test_the_error_is_cr2_and_its_degrees_are_bell_and_mccaffreys(sizes):
    """By matrices, as Pustejovsky and Tipton (2018) write them: A_g is the inverse root of (I - H)_gg."""
    n, labels = sum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    y = np.random.default_rng(n).normal(size=n)
    x = np.ones((n, 1))
    residual = np.eye(n) - x @ x.T / n
    parts = []
    for g in range(len(sizes)):
        rows = labels == g
        root = linalg.inv(np.real(linalg.sqrtm(residual[np.ix_(rows, rows)])))
        parts.append((x.T / n)[:, rows] @ root @ residual[rows])
    v = np.vstack(parts)  # the estimated variance is the sum of squares of v y
    gram = v @ v.T
    error, df = mean_error(y, [*labels])
    assert error == pytest.approx(np.linalg.norm(v @ y))
    assert df == pytest.approx(np.trace(gram) ** 2 / np.trace(gram @ gram))


def test_where_few_families_differ_two_more_count_by_hand():
    """Six problems in families of 2, 1 and 3; of a problem's four samples one is the least that is seen."""
    nothing = difference_error([np.zeros(6)], 4, [THREE])
    assert nothing == pytest.approx((np.sqrt(2) / 5, 5 / 3))
    one = np.array([0, 0, 0, 0.25, 0, 0])
    m = 1 / 24
    within = m**2 + (m / 2) ** 2 + (0.125 - 1.5 * m) ** 2  # half of each family's residuals, 2 m, m and 0.25 - 3 m
    assert difference_error([one], 4, [THREE])[0] == pytest.approx(np.sqrt(within + 2 / 4) / 5)
    against = np.array([0.25, -0.25, 0, 0, 0, 0])  # cancels in its family, which differs all the same
    assert difference_error([against], 4, [THREE])[0] == pytest.approx(np.sqrt(2 / 4) / 5)
    large = np.array([0.5, -0.5, 0.25, 0.5, -0.5, 0.25] * 5)  # within families all is even: not less than of problems
    labels = [*np.repeat(np.arange(10), 3)]
    assert difference_error([large], 4, [labels])[0] == difference_error([large], 4)[0]


def test_a_label_never_shortens_an_interval():
    random = np.random.default_rng(3)
    for _ in range(60):
        n = int(random.integers(4, 30))
        a, b = tables(random, n, gain=float(random.choice([0, 0.3])))
        own = [*random.integers(0, max(2, n // 3), n)]
        if len(set(own)) < 2:
            continue
        for before, after in (
            (stats.score_interval(a), stats.score_interval(a, families=own)),
            *([(d.low, d.high) for d in (stats.paired_difference(b, a), stats.paired_difference(b, a, families=own))],),
        ):
            assert after[0] <= before[0] + 1e-12
            assert after[1] >= before[1] - 1e-12


def test_a_score_whose_families_are_all_even_is_as_uncertain_as_its_problems():
    correct = np.tile([[1] * 8, [0] * 8], (10, 1))
    own = [*np.repeat(np.arange(10), 2)]  # one problem right and one wrong: their spread over families is 0
    assert stats.standard_error(correct, own) == 0
    assert stats.score_interval(correct, families=own) == stats.score_interval(correct)


def test_the_best_of_several_is_of_residuals_of_families():
    random = np.random.default_rng(8)
    a, b = tables(random, 24, gain=0.4)
    c, _ = tables(random, 24, gain=0.4)
    own = [*np.repeat(np.arange(7), (9, 1, 2, 5, 1, 3, 3))]
    found = stats.best_difference([b, c], [a], families=own)
    rows = [(one - a).mean(axis=1) for one in (b, c)]
    level = simultaneous_level([by_family(d, own, d.mean()) for d in rows])
    assert level != simultaneous_level([by_family(d, own) for d in rows])
    ends = [stats.combined(d.mean(), [difference_error([d], 8, [own])], level)[:2] for d in rows]
    assert (found.low, found.high) == pytest.approx(tuple(np.clip(np.max(ends, axis=0), -1, 1)))


def test_the_score_of_a_training_that_solves_nothing_is_over_families():
    nothing = np.zeros((6, 4))
    found = stats.score_over_runs([{0: nothing}], families=[THREE])
    assert (found.low, found.high) == stats.score_interval(nothing, families=THREE)
    assert found.high > stats.score_interval(nothing)[1]


def test_signs_are_flipped_of_whole_families():
    values = np.array([0.25, 0.5, 0.5, -0.25, 0.75, 0.5, 0.25, 0.5, 0.0, 0.25])
    own = [0, 0, 1, 1, 1, 2, 3, 3, 3, 4]
    flipped = [
        abs(sum(signs[family] * value for family, value in zip(own, values, strict=True)))
        for signs in product((-1, 1), repeat=5)
    ]
    p = np.mean(np.array(flipped) >= abs(values.sum()) - 1e-12)
    assert p == 2 / 32
    assert sign_flips(by_family(values, own)) == (p, False)
    found = stats.mean_difference([values], 4, families=[own])
    assert found.p >= p
    assert found.low <= 0  # five families do not reach 5 %, ten problems do
    assert stats.mean_difference([values], 4).low > 0
    far = stats.paired_difference(np.ones(10) + values / 1000, np.zeros(10), families=own)  # t alone is sure of it
    assert far.p == p
    assert far.low == 0


def test_p_of_several_benchmarks_flips_the_families_of_each():
    """Each benchmark counts once, however many families it has: weights of 5 / (2 * 3) and 5 / (2 * 2)."""
    first, other = np.array([0.5, 0.25, 0.25, 0.5]), np.array([0.75, 0.25])
    labels = ["a", "a", "b", "c"]
    totals = np.array([0.75, 0.25, 0.5]) / 4, other / 2  # whose sum is the mean of each benchmark
    patterns = [
        abs(sum(s * t for s, t in zip(signs, np.concatenate(totals), strict=True)))
        for signs in product((-1, 1), repeat=5)
    ]
    p = np.mean(np.array(patterns) >= sum(map(np.sum, totals)) - 1e-12)
    found = stats.mean_difference([first, other], 4, families=[labels, None])
    assert found.mean == pytest.approx((first.mean() + other.mean()) / 2)
    assert (found.n, found.families) == (6, 5)
    errors = [mean_error(first, labels), mean_error(other)]
    assert found.error == pytest.approx(
        max(np.hypot(errors[0][0], errors[1][0]) / 2, difference_error([first, other], 4)[0])
    )
    columns = [np.repeat(d[:, None], 4, axis=1) for d in (first, other)]
    over = stats.difference_over_runs([({0: x}, {0: 0 * x}) for x in columns], families=[labels, None])
    assert (over.n, over.families) == (6, 5)
    assert fields(over) == pytest.approx(fields(found))
    assert p == 2 / 32
    assert min(found.p, over.p) >= p


def test_the_interval_of_a_score_counts_families_by_hand():
    """Twelve problems, each wholly right or wrong, in families of 2, 4 and 6."""
    own = [*np.repeat([0, 1, 2], (2, 4, 6))]
    correct = np.repeat([1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0], 3).reshape(12, 3)
    low, high = stats.score_interval(correct, families=own)
    m, units = 7 / 12, 144 / 56
    error, df = mean_error(correct, own)
    coin = m * (1 - m)
    variance = (units * error**2 + 2 * coin / units) / (units + 2)
    trials = np.clip(coin / variance, df, 36)
    z = scipy_stats.t.ppf(0.975, df)
    centre, shrink = (m + z * z / (2 * trials)), 1 + z * z / trials
    half = z * np.sqrt(coin / trials + z * z / (4 * trials**2))
    assert (low, high) == pytest.approx(((centre - half) / shrink, (centre + half) / shrink))
    nothing = stats.score_interval(np.zeros((12, 3)), families=own)  # as many trials as families of one size
    assert nothing == pytest.approx((0, z * z / (units + z * z)))
    scores = stats.Scores("a", "t", tuple(range(12)), correct * 1.0, families=tuple(own))
    assert (scores.interval, scores.standard_error) == ((low, high), error)
    points = stats.Scores("a", "t", tuple(range(12)), 9.0 * correct[:, 0], families=tuple(own))
    assert points.interval == pytest.approx((9 * m - 9 * error * z, 9 * m + 9 * error * z))


def test_a_share_of_tokens_leaves_out_each_family_by_hand():
    hits, tokens, own = [3, 4, 0, 9, 5, 2], [30, 50, 40, 60, 20, 100], THREE
    sums, lengths = np.array([7, 0, 16]), np.array([80, 40, 180])
    share = 23 / 300
    without = (23 - sums) / (300 - lengths)
    variance = 2 * without.var()
    half = scipy_stats.t.ppf(0.975, 5 / 3) * np.sqrt(max(variance, share * (1 - share) / 300)) / (share * (1 - share))
    odds = np.log(share / (1 - share))
    found = stats.token_share(hits, tokens, own)
    assert (found.low, found.high) == pytest.approx(tuple(1 / (1 + np.exp(-odds + s * half)) for s in (1, -1)))
    none = stats.token_share([0] * 6, tokens, own)
    t = scipy_stats.t.ppf(0.975, 5 / 3)
    assert none.high == pytest.approx(t * t / (5 / 3 + 1 + t * t))


def test_one_family_says_nothing_of_others():
    own = ["a"] * 6
    d = stats.paired_difference(np.ones((6, 2)), np.zeros((6, 2)), families=own)
    assert np.isnan([d.low, d.high]).all()
    assert d.p == 1
    assert np.isnan(stats.score_interval(np.eye(6), families=own)).all()
    assert np.isnan(stats.standard_error(np.eye(6), own))
    assert stats.token_share([1] * 6, [9] * 6, own).low is None


def test_labels_that_do_not_fit_are_one_sentence():
    with refuses("2", "3"):
        stats.paired_difference(np.ones(3), np.zeros(3), families=["a", "b"])
    one, other, silent = (
        stats.Scores(name, "t", (0, 1, 2), np.eye(3), families=own)
        for name, own in (("a", ("x", "x", "y")), ("b", ("x", "y", "y")), ("c", None))
    )
    with refuses("family"):
        one.minus(other)
    assert silent.minus(one).families == one.minus(silent).families == 2
    assert silent.minus(silent).families == 0


@pytest.mark.parametrize(("sizes", "shared"), [("5 each", 1.0), ("1 to 12", 0.5)])
def test_intervals_over_families_cover_what_intervals_over_problems_do_not(sizes, shared):
    """As `python -m benchmarks.intervals --only related`, 200 benchmarks of 60 problems: 4 standard errors below 95."""
    random, before, after = np.random.default_rng(5), 0, 0
    for _ in range(200):
        own = families(60, sizes, random)
        p = random.beta(2, 2, 60) * 0.6 + 0.2
        a, b = pair_of(p, np.clip(p + 0.15 * shared_by(own, shared, random), 0, 1), 8, 0.8, random)
        plain, clustered = stats.paired_difference(b, a), stats.paired_difference(b, a, families=[*own])
        before += plain.low <= 0 <= plain.high
        after += clustered.low <= 0 <= clustered.high
    assert before < 168
    assert after > 178


# One training against one


def training(label, by_seed, **more):
    values = np.array([x.mean() for x in by_seed.values()])
    return stats.RunScores(label, "t", tuple(by_seed), values, runs=by_seed, **more)


def test_one_training_against_one_is_of_these_two_models_unless_others_show_how_seeds_vary():
    random = np.random.default_rng(6)
    x, y, z = ({0: (random.random((40, 8)) < share) * 1.0} for share in (0.5, 0.4, 0.3))
    alone = training("a", x).minus(training("b", y))
    of_problems = stats.paired_difference(x[0], y[0])
    assert fields(alone) == pytest.approx(fields(of_problems))
    assert (alone.seeds, alone.over) == (False, "40 problems, of these two models")
    others = [
        training("o", {i: np.full((2, 1), v) for i, v in enumerate(row)}) for row in ((0.4, 0.5, 0.45), (0.2, 0.3))
    ]
    spread = stats.seed_spread([*others, training("single", x)])
    assert spread is not None
    s, df = spread
    assert (s, df) == (pytest.approx(np.sqrt((0.005 + 0.005) / 3)), 3)
    assert stats.seed_spread([training("single", x)]) is None
    known = training("a", x, seed_spread=(s, df)).minus(training("b", y, seed_spread=(s, df)))
    t = scipy_stats.t.ppf(0.975, [39, 3])
    half = np.hypot(t[0] * of_problems.error, t[1] * np.sqrt(2) * s)
    assert (known.low, known.high) == pytest.approx((known.mean - half, known.mean + half))
    assert known.seeds
    assert known.p > alone.p
    base = training("a", x, seed_spread=(s, df)).minus(training("base", z))  # which has no seeds: s, not sqrt(2) s
    half = np.hypot(t[0] * stats.paired_difference(x[0], z[0]).error, t[1] * s)
    assert base.high == pytest.approx(base.mean + half)
    several = {0: x[0], 1: y[0]}
    own = training("c", several, seed_spread=(9.0, df)).minus(training("d", {0: z[0], 1: z[0]}, seed_spread=(9.0, df)))
    assert own.high - own.low < 2  # seeds of one's own count, not those of others
    assert own.seeds
    pairs = [
        (training("a", x, seed_spread=(s, df)), training("b", y, seed_spread=(s, df))),
        (training("a", x, seed_spread=(3 * s, 1.0)), training("b", y, seed_spread=(3 * s, 1.0))),
    ]
    both = stats.mean_difference_over_runs(pairs)
    half = np.hypot(t[0] * 0, scipy_stats.t.ppf(0.975, 1) * np.sqrt(2) * 2 * s)
    assert both.high - both.mean >= min(half, 1 - both.mean) - 1e-12
    pairs[1] = training("a", x), training("b", y)  # of this benchmark nothing shows it
    assert stats.mean_difference_over_runs(pairs).seeds is False


# A ratio with a tail near empty


def test_a_ratio_to_a_share_near_empty_has_a_lower_bound_alone():
    tokens = np.full(30, 500)
    less = np.zeros(30)
    less[:5] = 1
    found = stats.share_ratio((np.full(30, 10), tokens), (less, tokens))
    assert found.high is None
    assert found.interval(1, unit=1) == f"≥ {found.low:.1f}"
    assert found.text(1, unit=1) == f"{found.value:.1f} ≥ {found.low:.1f}"
    half = 0.5 * 305 / 35  # of what a problem with a hit has
    a, b = 300 + half, 5 + half
    without = np.log((a - 10) / (b - less))
    variance = 29 * without.var() + 1 / 30.5 + 1 / 5.5
    assert found.low == pytest.approx(a / b / np.exp(scipy_stats.t.ppf(0.975, 29) * np.sqrt(variance)))
    assert found.value == pytest.approx(300.5 / 5.5)
    less[5] = 1
    assert stats.share_ratio((np.full(30, 10), tokens), (less, tokens)).high is not None
    few = np.zeros(30)
    few[:3] = 4
    assert stats.share_ratio((few, tokens), (np.zeros(30), tokens)).low == 0  # three problems tell nothing
    few[3] = 4
    assert (stats.share_ratio((few, tokens), (np.zeros(30), tokens)).low or 0) > 0


def test_what_problems_that_show_nothing_leave_open():
    assert stats.unseen(30) == pytest.approx(0.1157, abs=1e-4)
    assert (1 - stats.unseen(30)) ** 30 == pytest.approx(0.025)
    assert stats.score_interval(np.zeros((30, 8)))[1] > stats.unseen(30)  # the interval of a score covers it
    assert stats.paired_difference(np.zeros((30, 8)), np.zeros((30, 8))).high < stats.unseen(30)  # of a difference not


def test_bands_of_a_curve_hold_together_as_families_move():
    """Within a family the two places differ by as much as they agree between: over families one band is enough."""
    of_family, within = np.random.default_rng(0).normal(0, 0.1, 20), np.tile([0.3, -0.3], 20)
    curve = np.stack([np.repeat(of_family, 2) + within, np.repeat(of_family, 2) - within])
    curve += 0.1075 - curve.mean()
    labels = np.repeat(np.arange(20), 2).tolist()
    assert stats.reached([0.1, 0.2], curve, samples=8, families=labels).high == 0.1
    assert stats.reached([0.1, 0.2], curve, samples=8).high == 1.0

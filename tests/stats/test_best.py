"""The best of several against the best of others, crossings, majorities: against brute force and simulation."""

from itertools import combinations

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.stats import choice
from tests.facts import refuses


def drawn(chances, rng, samples=4):
    """Samples of 0 and 1 of settings whose chances are (settings, problems)."""
    return [(rng.random((chance.size, samples)) < chance[:, None]).astype(float) for chance in chances]


def test_one_against_one_is_the_paired_difference():
    a, b = drawn([np.full(40, 0.8), np.full(40, 0.3)], np.random.default_rng(0))
    found, plain = stats.best_difference([a], [b]), stats.paired_difference(a, b)
    assert (found.mean, found.low, found.high, found.p) == pytest.approx((plain.mean, plain.low, plain.high, plain.p))
    turned = stats.best_difference([b], [a])
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-plain.mean, -plain.high, -plain.low))
    assert turned.p == pytest.approx(plain.p)


def test_the_bounds_are_of_the_best_of_each_side():
    rng = np.random.default_rng(1)
    ones, others = (drawn([np.full(60, p) for p in side], rng) for side in ([0.2, 0.9, 0.5], [0.1, 0.4]))
    found = stats.best_difference(ones, others)
    assert (found.one, found.other, found.contrasts) == (1, 1, 6)
    assert found.mean == pytest.approx(ones[1].mean() - others[1].mean())
    alone = stats.paired_difference(ones[1], others[1])
    assert found.low < alone.low < alone.high < found.high
    assert found.p == pytest.approx(3 * max(stats.paired_difference(ones[1], other).p for other in others))


def test_equal_contrasts_cost_nothing_and_no_level_is_above_bonferronis():
    d = np.random.default_rng(2).standard_normal(100)
    assert stats.best_difference([d[:, None] / 10], [np.zeros((100, 1))] * 5).contrasts == 5
    from rlvr_dir.stats.best import simultaneous_level

    assert simultaneous_level([d] * 8) == pytest.approx(0.95, abs=0.006)
    apart = simultaneous_level(np.random.default_rng(3).standard_normal((8, 100)))
    assert 0.985 < apart <= 1 - 0.05 / 8
    assert simultaneous_level(np.zeros((4, 9))) == 1 - 0.05 / 4
    with refuses("ones"):
        stats.best_difference([np.zeros((3, 2))], [np.zeros((4, 2))])


def test_the_interval_holds_the_truth_and_claims_are_rare_though_the_best_was_picked():
    """Four and four settings of equal truth, where the plain interval of the two that were picked would fail."""
    rng = np.random.default_rng(4)
    held, plain, claims = 0, 0, 0
    for _ in range(200):
        chance = rng.beta(1, 1, 40)
        ones, others = drawn([chance] * 4, rng, 2), drawn([np.clip(chance - 0.2, 0, 1)] + [chance] * 1, rng, 2)
        found = stats.best_difference(ones, others)
        held += found.low <= 0 <= found.high
        claims += found.p < 0.05
        alone = stats.paired_difference(ones[found.one], others[found.other])
        plain += alone.low <= 0 <= alone.high
    assert held >= 190  # 95 %
    assert claims <= 10
    assert plain < held


def test_each_is_held_to_those_that_it_meets_alone():
    """With a mask the lead of one is over the best that it meets, and every contrast has its own number of samples."""
    rng = np.random.default_rng(8)
    ones, others = (drawn([np.full(60, p) for p in side], rng) for side in ([0.6, 0.9], [0.1, 0.8]))
    found = stats.best_difference(ones, others, meets=[[True, False], [True, True]])
    assert (found.one, found.other, found.contrasts) == (0, 0, 3)
    assert found.mean == pytest.approx(ones[0].mean() - others[0].mean())
    below = stats.best_difference(others, ones, meets=[[True, False], [False, True]])
    singles = [stats.paired_difference(*each) for each in ((others[0], ones[0]), (others[1], ones[1]))]
    assert below.mean == pytest.approx(max(each.mean for each in singles))
    assert below.p == pytest.approx(max(each.p for each in singles))  # every one is below its own
    with refuses("meets"):
        stats.best_difference(ones, others, meets=[[True, True], [False, False]])
    # a majority beside them, one number a problem, leaves the bounds of the others as they are
    alone = stats.best_difference(ones[:1], others[:1])
    vote = np.zeros((60, 1))
    both = stats.best_difference(ones[:1], [others[0], vote])
    assert both.low == pytest.approx(alone.low, abs=0.02)


def brute_crossing(above, below):
    """The first k at which more subsets of k samples hold a right one, counted one by one."""
    n = min(above.shape[1], below.shape[1])
    for k in range(1, n + 1):
        one, other = (
            np.mean([np.mean([row[list(s)].any() for s in combinations(range(row.size), k)]) for row in x])
            for x in (above, below)
        )
        if one > other + 1e-9:
            return k
    return None


@pytest.mark.parametrize("seed", range(8))
def test_a_crossing_is_where_brute_force_finds_it(seed):
    rng = np.random.default_rng(seed)
    above, below = rng.random((6, 6)) < 0.25, rng.random((6, 7)) < rng.choice([0.0, 0.5], 6)[:, None]
    found = stats.crossing(above, below)
    assert found.estimate == brute_crossing(above, below)
    assert found.n == 6
    assert found.k is None or found.estimate <= found.k


def test_a_crossing_beyond_the_samples_is_none():
    never = stats.crossing(np.zeros((5, 8)), np.eye(5, 8))
    assert (never.k, never.estimate, never.n) == (None, None, 8)
    always = stats.crossing(np.ones((5, 8)), np.eye(5, 8))
    assert (always.k, always.estimate) == (1, 1)
    with refuses("above"):
        stats.crossing(np.zeros((5, 8)), np.zeros((4, 8)))


@pytest.mark.parametrize(("problems", "samples", "a"), [(30, 32, 0.5), (120, 8, 1.0), (30, 32, 0.1)])
def test_of_a_model_and_itself_a_crossing_is_seldom_named(problems, samples, a):
    """At any k: 73 % of such pairs had one while no bound was asked."""
    rng, named, estimated = np.random.default_rng(7), 0, 0
    for _ in range(200):
        chance = rng.beta(a, 1, problems)[:, None]
        found = stats.crossing(*(rng.random((problems, samples)) < chance for _ in range(2)))
        named, estimated = named + (found.k is not None), estimated + (found.estimate is not None)
    assert named <= 0.05 * 200 + 6  # two standard errors
    assert estimated > 100


def test_a_crossing_is_named_where_there_is_one_and_not_before_it():
    """Base solves each problem at 0.1, RL four of ten at 0.7 and the others never: the truth is a k that is known."""
    ks = np.arange(1, 33)
    truth = int(ks[(1 - 0.9**ks) > 0.4 * (1 - 0.3**ks)][0])
    rng, named = np.random.default_rng(5), []
    for _ in range(100):
        base, rl = rng.random((50, 32)) < 0.1, rng.random((50, 32)) < 0.7 * (rng.random(50) < 0.4)[:, None]
        named.append(stats.crossing(base, rl).k)
    assert None not in named
    assert sum(k < truth for k in named) <= 5 + 4
    assert np.median(named) <= 2 * truth


def test_majorities_by_problem_are_the_mean_over_all_subsets():
    rng = np.random.default_rng(6)
    votes = rng.integers(-1, 3, (5, 6))
    right = votes == 1
    for k in (1, 3, 6):
        found = stats.maj_at_k_per_problem(votes, right, k, draws=20_000)
        for row, ok, value in zip(votes, right, found, strict=True):
            exact = []
            for subset in combinations(range(6), k):
                s = list(subset)
                answers = [None if vote < 0 else vote for vote in row[s]]
                exact.append(stats.maj_at_k([answers], [ok[s]]))
            assert value == pytest.approx(np.mean(exact), abs=0.015)


def test_of_validations_that_differ_by_luck_alone_the_best_is_worth_nothing_elsewhere():
    """Twenty checkpoints as good as each other: the best seems 3 points better, and on other problems it is not."""
    random = np.random.default_rng(0)
    found = [choice(random.binomial(32, 0.5, (20, 30)) / 32, splits=200) for _ in range(60)]
    assert np.mean([one.best for one in found]) > 0.525
    assert np.mean([one.elsewhere for one in found]) == pytest.approx(0.5, abs=0.006)
    assert np.mean([one.last_mean for one in found]) == pytest.approx(0.5, abs=0.006)


def test_a_checkpoint_that_is_better_is_found_by_either_half():
    scores = np.zeros((6, 10))
    scores[3] = 1.0
    found = choice(scores)
    assert (found.best, found.at, found.elsewhere, found.last, found.last_mean) == (1.0, 3, 1.0, 0.0, 0.2)
    assert (found.averaged, found.validations) == (5, 6)


def test_one_problem_has_no_other_half_and_a_vector_is_refused():
    assert np.isnan(choice([[0.0], [1.0]]).elsewhere)
    with refuses("2"):
        choice([0.0, 1.0])

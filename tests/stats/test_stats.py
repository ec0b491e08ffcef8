"""Statistics against fixtures worked out by hand, closed forms and scipy."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness import stats
from harness.errors import UserError

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
    with pytest.raises(UserError, match=f"k={k}"):
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


def test_different_problems_are_refused():
    with pytest.raises(UserError, match="same problems"):
        stats.paired_difference(X, Y[:4])

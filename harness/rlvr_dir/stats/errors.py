"""Compute two error bars that answer two questions, and a confidence interval.

- *Over problems* (`standard_error`): would another set of such problems have this score?
- *Sampling only* (`sampling_error`): would another run on the same problems have it?

The naive sqrt(m(1-m)/(n k)) answers neither, because it treats the samples of a problem as independent.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.families import Families, Labels

COINS = 2  # problems that are all right or all wrong, added to the estimate of the spread over problems


def finite(name: str, values: ArrayLike) -> np.ndarray:
    """Return values as a float array.

    Raises:
        UserError: A value is NaN or infinite.
    """
    x = np.asarray(values, dtype=float)
    if not np.isfinite(x).all():
        raise UserError(f"{name} contains NaN or infinity", argument=name, accepted="finite numbers")
    return x


def standard_error(values: ArrayLike, families: Labels | None = None) -> float:
    """Return the standard error of the mean over problems, from `mean_error`."""
    return mean_error(values, families)[0]


def mean_error(values: ArrayLike, families: Labels | None = None) -> tuple[float, float]:
    """Return the standard error over problems, sd(p_i, ddof=1) / sqrt(n), and its degrees of freedom, n - 1.

    `values` is a (problems, samples) matrix with p_i the mean of problem i, or already one number per problem. This is
    the clustered error with problems as clusters. With `families`, a label per problem, these are the clusters
    (`Families.error`, `Families.degrees`). The error is NaN for a single cluster.

    Raises:
        UserError: A value is not finite, or the number of labels in `families` is not that of the problems.
    """
    x = finite("values", values)
    p = x.mean(axis=1) if x.ndim == 2 else x
    if families is not None:
        groups = Families.of(families, p.size)
        return groups.error(p), groups.degrees
    return float(p.std(ddof=1) / np.sqrt(p.size)) if p.size > 1 else float("nan"), p.size - 1


def sampling_error(values: ArrayLike) -> float:
    """Return the sampling-only standard error of a mean, (problems, samples) -> (), for these same problems.

    It is sqrt(sum_i var_i / K) / n; for Avg@K (values 0 and 1) that is sqrt(sum_i p_i (1 - p_i) / (K - 1)) / n. It is
    NaN for one sample per problem, which has no spread.

    Raises:
        UserError: `values` is not a (problems, samples) matrix.
    """
    x = finite("values", values)
    if x.ndim != 2:
        raise UserError(f"values has shape {x.shape}", argument="values", accepted="an array of (problems, samples)")
    n, samples = x.shape
    return float(np.sqrt(x.var(axis=1, ddof=1).sum() / samples) / n) if samples > 1 else float("nan")


def t_interval(mean: float, error: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return mean -/+ t_{(1+level)/2, n-1} error, the confidence interval of a mean over n problems.

    It is NaN for n = 1 and for an error of 0. Equal numbers do not show how far others would be from them, and numbers
    of unknown unit (points, seconds, characters) have no other bound.
    """
    from scipy.special import stdtrit  # importing scipy.stats would take a second longer

    if n < 2 or error == 0:
        return float("nan"), float("nan")
    half = float(stdtrit(n - 1, (1 + level) / 2)) * error
    return mean - half, mean + half


def combined(mean: float, parts: Sequence[tuple[float, float]], level: float = 0.95) -> tuple[float, float, float]:
    """Return the interval and the two-sided p of a mean whose error has independent parts: (error, degrees) each.

    Half the interval is sqrt(sum_i (t_i error_i)^2), with t_i from the part's own degrees of freedom (MOVER; Zou and
    Donner, 2008), so that each part is weighted by its own precision. p is 1 minus the level at which the interval ends
    at 0. With one part these are the t interval and the t test. The result is NaN if an error is NaN, or if all are 0.

    >>> [round(each, 4) for each in combined(0.3, [(0.1, 9), (0.1, 2)])]
    [-0.1861, 0.7861, 0.13]
    """
    from scipy.special import stdtr, stdtrit

    errors, degrees = np.array([error for error, _ in parts]), np.array([df for _, df in parts])
    nan = float("nan")
    if not np.isfinite(errors).all():
        return nan, nan, nan
    if not errors.any():
        return nan, nan, float(mean == 0)

    def half(missed: float) -> float:
        return float(np.sqrt(np.square(stdtrit(degrees, missed / 2) * errors).sum()))

    width, least = half(1 - level), 1e-12
    if len(parts) == 1:
        p = 2 * stdtr(degrees[0], -abs(mean) / errors[0])
    elif half(least) <= abs(mean):
        p = least
    else:
        from scipy import optimize

        p = optimize.root_scalar(lambda missed: half(missed) - abs(mean), bracket=(least, 1.0)).root
    return mean - width, mean + width, float(p)


def score_interval(correct: ArrayLike, level: float = 0.95, families: Labels | None = None) -> tuple[float, float]:
    """Return the confidence interval of Avg@K over problems: Wilson's score interval of an effective number of trials.

    `correct` is (problems, samples) of 0 and 1. With m the mean and s its standard error, m (1 - m) / s^2 independent
    trials would be as uncertain as these samples, which are clustered by problem. That number is limited to between n -
    1 and n K. If few problems are solved at least once, s is hardly known. So COINS more problems that are all right or
    all wrong are added to s^2: s^2 = (n standard_error^2 + COINS m (1 - m) / n) / (n + COINS). If everything is right
    or wrong there are n trials, because then the correlation of a problem's samples is unknown. The quantile is
    Student's with n - 1 degrees of freedom. Unlike the t interval it stays within 0 and 1, is never empty, and has good
    coverage near 0 and 1 (docs/statistics.md has the simulation). It follows Korn and Graubard (1998) and Dean and
    Pagano (2015). It is NaN for one problem.

    With `families`, s and its degrees of freedom are those of families, the added problems are COINS families, n in
    their formula is `Families.effective`, and the degrees of freedom replace n - 1. Labels never make the interval
    shorter: it contains the one without them.

    Raises:
        UserError: `correct` is not a (problems, samples) matrix of numbers from 0 to 1.
    """
    from scipy.special import stdtrit

    x = finite("correct", correct)
    if x.ndim != 2 or not x.size or x.min() < 0 or x.max() > 1:
        raise UserError(
            f"correct has shape {x.shape}, or numbers outside 0 to 1",
            argument="correct",
            accepted="an array of (problems, samples) with numbers from 0 to 1",
        )
    n, samples = x.shape
    error, df = mean_error(x, families)
    if df == 0:
        return float("nan"), float("nan")
    units = n if families is None else Families.of(families, n).effective
    mean = float(x.mean())
    coin = mean * (1 - mean)  # the variance of a problem that is all right or all wrong
    variance = (units * error**2 + COINS * coin / units) / (units + COINS)
    trials = float(np.clip(coin / variance, df, n * samples)) if coin else float(units)
    z = float(stdtrit(df, (1 + level) / 2))
    shrink = 1 + z * z / trials
    centre = (mean + z * z / (2 * trials)) / shrink
    half = z * np.sqrt(mean * (1 - mean) / trials + z * z / (4 * trials * trials)) / shrink
    low, high = max(0.0, float(centre - half)), min(1.0, float(centre + half))
    least, most = (low, high) if families is None else score_interval(x, level)
    return min(low, least), max(high, most)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of independent estimates, (standard error, degrees of freedom) each.

    By Welch and Satterthwaite this is (sum_i s_i^2)^2 / sum_i (s_i^4 / df_i). If all errors are 0 it is the smallest
    df.

    >>> satterthwaite([(1.0, 9), (1.0, 9)])
    18.0
    """
    top = sum(error**2 for error, _ in parts) ** 2
    bottom = sum(error**4 / df for error, df in parts if df)
    return top / bottom if bottom else float(min(df for _, df in parts))

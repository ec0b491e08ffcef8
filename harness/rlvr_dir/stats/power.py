"""Compute how many problems and samples are needed to detect a given gain.

A paired difference d_i has variance `between` (the gain differs from problem to problem) + `within` / k (each problem's
accuracy is measured on k samples). More samples reduce only the second part, so past some k only more problems help.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError, mention
from rlvr_dir.stats.passk import _matrix


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold the variance components of a paired difference of accuracies (fractions, not percent)."""

    between: float  # of the true gain over problems
    within: float  # of one sample of each of the two, without the noise that they share: k samples leave within / k


def paired_spread(a: ArrayLike, b: ArrayLike) -> Spread:
    """Estimate both components from two (problems, samples) matrices of the same problems.

    If both have the same number of samples, sample j of one is paired with sample j of the other. Within is then the
    mean over problems of the variance of a_ij - b_ij, p_a (1 - p_a) + p_b (1 - p_b) - 2 cov, so that shared noise is
    not counted. Decodings with the same seed share noise (correlation 0.81 between an extrapolation and its control).
    The estimate is also right for samples that share nothing. With different numbers of samples the covariance is
    unknown and left out. Between is the variance of d_i minus the part that sampling explains, and at least 0.

    Raises:
        UserError: The numbers of problems differ, or there is only one problem or one sample.
    """
    x, y = _matrix(a), _matrix(b)
    if len(x) != len(y) or len(x) < 2 or min(x.shape[1], y.shape[1]) < 2:
        raise UserError(
            f"a has shape {x.shape} and b {y.shape}", accepted="the same problems, 2 or more, and 2 samples"
        )
    difference = x.mean(axis=1) - y.mean(axis=1)
    if x.shape == y.shape:
        within = (x - y).var(axis=1, ddof=1).mean()
        noise = within / x.shape[1]
    else:
        within_a, within_b = x.var(axis=1, ddof=1).mean(), y.var(axis=1, ddof=1).mean()
        within, noise = within_a + within_b, within_a / x.shape[1] + within_b / y.shape[1]
    return Spread(between=max(0.0, float(difference.var(ddof=1) - noise)), within=float(within))


def power(gain: float, spread: Spread, problems: int, samples: int, level: float = 0.05) -> float:
    """Return the probability that a two-sided paired t test at `level` detects a true `gain` (as a fraction).

    Raises:
        UserError: The gain is 0, or there are fewer than 2 problems or 1 sample.
    """
    from scipy import stats

    _check(gain, problems, samples)
    error = np.sqrt((spread.between + spread.within / samples) / problems)
    if error == 0:
        return 1.0
    shift, df = abs(gain) / error, problems - 1
    edge = stats.t.ppf(1 - level / 2, df)
    if shift > 30:  # scipy's non-central t fails here, and only its denominator still matters
        return float(stats.chi2.cdf(df * (shift / edge) ** 2, df))
    wrong_sign = np.nan_to_num(stats.nct.cdf(-edge, df, shift))  # scipy gives NaN where it is below 1e-14
    return float(stats.nct.sf(edge, df, shift) + wrong_sign)


def problems_needed(gain: float, spread: Spread, samples: int, *, chance: float = 0.8, level: float = 0.05) -> int:
    """Return the least number of problems with which `power` reaches `chance`.

    Raises:
        UserError: The gain is 0, there is no sample, or `chance` is not between 0 and 1.
    """
    _check(gain, 2, samples)
    if not 0 < chance < 1:
        raise UserError(argument="chance", value=chance, accepted="a number between 0 and 1")
    high = 2
    while power(gain, spread, high, samples, level) < chance:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(gain, spread, max(2, middle), samples, level) >= chance else (middle, high)
    return max(2, high)


def detectable_gain(spread: Spread, problems: int, samples: int, *, chance: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest true gain, as a fraction, that is detected with probability `chance`.

    Raises:
        UserError: There are fewer than 2 problems or 1 sample.
    """
    from scipy import optimize

    _check(1.0, problems, samples)
    scale = float(np.sqrt((spread.between + spread.within / samples) / problems))
    if scale == 0:
        return 0.0
    high = scale
    while power(high, spread, problems, samples, level) < chance:
        high *= 2
    low = 1e-6 * scale
    root = optimize.root_scalar(
        lambda g: power(g, spread, problems, samples, level) - chance, bracket=(low, high), method="brentq"
    )
    return float(root.root)


def _check(gain: float, problems: int, samples: int) -> None:
    if not gain:
        raise UserError("is not allowed: nothing can be detected where there is nothing", argument="gain", value=0)
    if problems < 2 or samples < 1:
        raise UserError(
            f", {mention('samples', samples)} is not allowed",
            argument="problems",
            value=problems,
            accepted="2 problems or more, 1 sample or more",
        )

"""Two error bars that answer two questions, and a confidence interval.

- *Over problems* (`standard_error`): would another set of such problems give this score?
- *Sampling only* (`sampling_error`): would another run on these very problems give it?

The naive sqrt(m(1-m)/(n k)) answers neither: it takes the samples of a problem for independent evidence.
"""

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import UserError


def standard_error(values: ArrayLike) -> float:
    """Return the standard error over problems: sd(p_i, ddof=1) / sqrt(n), with p_i the mean of problem i.

    `values` is a (problems, samples) matrix or already one number a problem. This is the clustered error with the
    problem as cluster. NaN for a single problem: one problem says nothing about others.
    """
    x = np.asarray(values, dtype=float)
    p = x.mean(axis=1) if x.ndim == 2 else x
    return float(p.std(ddof=1) / np.sqrt(p.size)) if p.size > 1 else float("nan")


def sampling_error(correct: ArrayLike) -> float:
    """Return the sampling-only standard error of Avg@K, (problems, samples) -> (): the benchmark is held fixed.

    It is sqrt(sum_i p_i (1 - p_i) / (K - 1)) / n.

    NaN for one sample a problem: nothing can be said of the spread of its samples then.

    Raises:
        UserError: `correct` is no (problems, samples) matrix.
    """
    x = np.asarray(correct, dtype=float)
    if x.ndim != 2:
        raise UserError(f"correct has shape {x.shape}; accepted: (problems, samples)")
    n, samples = x.shape
    p = x.mean(axis=1)
    return float(np.sqrt((p * (1 - p)).sum() / (samples - 1)) / n) if samples > 1 else float("nan")


def t_interval(mean: float, error: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return mean -/+ t_{(1+level)/2, n-1} error, the confidence interval of a mean over n problems; NaN for n = 1."""
    from scipy import stats

    if n < 2:
        return float("nan"), float("nan")
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
    return mean - half, mean + half

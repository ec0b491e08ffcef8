"""Intervals by resampling problems: no normal approximation, and the same for Avg, Pass@k and paired differences."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import UserError

RESAMPLES = 10_000


def bootstrap_interval(
    per_problem: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    statistic: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[float, float]:
    """The percentile interval of a statistic over problems, problems drawn with replacement.

    The samples of a problem stay together (the problem is the cluster), so `per_problem` is one number a problem: its
    mean, its Pass@k, or its paired difference.

    Args:
        per_problem: (problems,) numbers.
        level: of confidence.
        resamples: bootstrap samples.
        seed: of the resampling; equal seeds give equal intervals.
        statistic: (resamples, problems) -> (resamples,); default the mean.

    Returns:
        (low, high); NaN for a single problem.

    Raises:
        UserError: no problems, or a level outside (0, 1).
    """
    x = np.asarray(per_problem, dtype=float)
    if x.ndim != 1 or not x.size:
        raise UserError(f"per_problem has shape {x.shape}; accepted: one number a problem, at least one")
    if not 0 < level < 1:
        raise UserError(f"level={level} is refused; accepted: a number between 0 and 1")
    if x.size == 1:
        return float("nan"), float("nan")
    chosen = np.random.default_rng(seed).integers(0, x.size, size=(resamples, x.size))
    drawn = x[chosen]  # (resamples, problems)
    values = drawn.mean(axis=1) if statistic is None else statistic(drawn)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

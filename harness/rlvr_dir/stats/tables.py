"""What a whole table needs: p values corrected for many comparisons, and an average over benchmarks with its error."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError


def holm(p_values: ArrayLike) -> np.ndarray:
    """Adjust p values by Holm's step-down method: the i-th smallest of m times (m - i + 1), made monotone, at most 1.

    Comparing the adjusted values with 0.05 keeps the chance of any false claim in the table at 5 %. Shape: (m,), in
    the order given.

    Raises:
        UserError: `p_values` is not a list of numbers between 0 and 1.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise UserError("p_values contains other values", argument="p_values", accepted="numbers from 0 to 1")
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def mean_interval(scores: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the interval of the unweighted mean of scores, each with its own interval: (score, low, high), one a
    benchmark.

    Each side is the root of the summed squares of the benchmarks' own distances, over their number (MOVER; Zou and
    Donner, 2008). So a benchmark where everything is right or wrong, whose standard error is 0, counts with what its
    interval says, and the ends stay where scores can be. NaN where one has no interval.

    >>> mean_interval([(0.5, 0.4, 0.6), (1.0, 0.8, 1.0)])
    (0.6381966011250105, 0.8)
    """
    if not scores:
        raise UserError("scores is empty", accepted="one (score, low, high) a benchmark")
    mean, low, high = np.asarray(scores, dtype=float).T
    below, above = (float(np.sqrt((side**2).sum()) / mean.size) for side in (mean - low, high - mean))
    return float(mean.mean()) - below, float(mean.mean()) + above

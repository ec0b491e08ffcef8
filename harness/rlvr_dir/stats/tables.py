"""Correct the p values of a table for many comparisons, and average scores over benchmarks with an error."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError


def holm(p_values: ArrayLike) -> np.ndarray:
    """Adjust p values by Holm's step-down method: the i-th smallest of m times (m - i + 1), made monotone, at most 1.

    Comparing the adjusted values with 0.05 limits the probability of any false claim in the table to 5 %. Shape: (m,),
    in the order given.

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
    """Return the interval of the unweighted mean of scores, from one (score, low, high) per benchmark.

    Each side is the root of the summed squares of the benchmarks' own distances, divided by their number (MOVER; Zou
    and Donner, 2008). So a benchmark with only right or only wrong responses, whose standard error is 0, contributes
    its own interval, and the ends stay within the range of scores. The result is NaN if a benchmark has no interval.

    >>> mean_interval([(0.5, 0.4, 0.6), (1.0, 0.8, 1.0)])
    (0.6381966011250105, 0.8)
    """
    if not scores:
        raise UserError("scores is empty", accepted="one (score, low, high) a benchmark")
    mean, low, high = np.asarray(scores, dtype=float).T
    below, above = (float(np.sqrt((side**2).sum()) / mean.size) for side in (mean - low, high - mean))
    return float(mean.mean()) - below, float(mean.mean()) + above

"""With how many samples one model's Pass@k is first above another's, that is below it with a single sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import UserError
from harness.stats.passk import pass_at_k_per_problem

RESAMPLES = 2000
_NONE = 1 << 40  # stands for no crossing when k are put in order


@dataclass(frozen=True, slots=True)
class Crossing:
    """`k`, the first at which Pass@k of `above` is greater than that of `below`; None where that is beyond `n`.

    `low` and `high` are its 95 % interval over problems, None again beyond `n`. `share` is the share of resampled
    benchmarks with a crossing within `n`, the samples that both have.
    """

    k: int | None
    low: int | None
    high: int | None
    share: float
    n: int


def crossing(
    above: ArrayLike, below: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Crossing:
    """Return the first k* at which the model `above` solves more problems in k samples than the model `below`.

    Both are (problems, samples) of 0 and 1 on the same problems; Pass@k is the unbiased estimate for every k up to the
    smaller number of samples. k* = 1 says that `above` is ahead with one sample already. The interval is the percentile
    bootstrap's over problems; a resampled benchmark without a crossing counts as one beyond n.

    Raises:
        UserError: the numbers of problems differ, or what `pass_at_k` refuses.

    >>> crossing([[1, 0], [0, 1]], [[1, 1], [0, 0]]).k
    2
    """
    one, other = np.asarray(above), np.asarray(below)
    if one.ndim != 2 or other.ndim != 2 or one.shape[0] != other.shape[0]:
        raise UserError(f"above has shape {one.shape} and below {other.shape}; accepted: (problems, samples), the same")
    n, problems = min(one.shape[1], other.shape[1]), one.shape[0]
    ks = range(1, n + 1)
    gap = np.array([pass_at_k_per_problem(one, k) - pass_at_k_per_problem(other, k) for k in ks]).T  # (problems, n)
    weights = np.random.default_rng(seed).multinomial(problems, np.full(problems, 1 / problems), resamples) / problems
    drawn = _first(weights @ gap)
    low, high = (
        _known(k) for k in np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], method="closest_observation")
    )
    return Crossing(_known(_first(gap.mean(axis=0)[None])[0]), low, high, float((drawn < _NONE).mean()), n)


def _first(gaps: np.ndarray) -> np.ndarray:
    """Return the first k at which a row is above zero, rounding aside, or `_NONE`: (rows, n) -> (rows,)."""
    up = gaps > 1e-12
    return np.where(up.any(axis=1), up.argmax(axis=1) + 1, _NONE)


def _known(k: float) -> int | None:
    return int(k) if k < _NONE else None

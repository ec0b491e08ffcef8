"""Compute the score of a training by how its checkpoint is chosen: the last one, or the one that scores best."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.errors import finite

LAST, SPLITS = 5, 2000


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold the scores of a training that was validated `validations` times, as fractions.

    `best` is the largest of all, at the validation `at`. `elsewhere` is the score of a checkpoint on other problems
    than those by which it was chosen. So `best - elsewhere` measures the optimism of choosing on the test set.
    """

    last: float
    last_mean: float  # of the last `averaged` validations
    averaged: int
    best: float
    at: int
    elsewhere: float
    validations: int


def choice(scores: ArrayLike, last: int = LAST, splits: int = SPLITS, seed: int = 0) -> Choice:
    """Compare the ways to choose among validations of one training. `scores` is (validations, problems), in order.

    For `elsewhere`, the problems are split into random halves, the validation that is best on one half is scored on the
    other, and the result is averaged over `splits` splits. The earliest of equally good validations is the best. It is
    NaN for one problem.

    Raises:
        UserError: A score is not finite, or `scores` is not such a matrix.

    >>> chosen = choice([[0, 0], [1, 0], [0, 1]], last=2)
    >>> chosen.best, chosen.last_mean, chosen.elsewhere
    (0.5, 0.5, 0.0)
    """
    x = finite("scores", scores)
    if x.ndim != 2 or 0 in x.shape:
        raise UserError(f"scores has shape {x.shape}", accepted="(validations, problems), neither of them 0")
    means, elsewhere = x.mean(axis=1), float("nan")
    if (problems := x.shape[1]) > 1:
        order = np.random.default_rng(seed).random((splits, problems)).argsort(axis=1)
        half = (order < problems // 2).astype(float)  # (splits, problems)
        best = (x @ half.T / half.sum(axis=1)).argmax(axis=0)  # (splits,)
        others = 1 - half
        elsewhere = float(((x[best] * others).sum(axis=1) / others.sum(axis=1)).mean())
    at = int(means.argmax())
    tail = means[-last:]
    return Choice(float(means[-1]), float(tail.mean()), tail.size, float(means[at]), at, elsewhere, len(means))

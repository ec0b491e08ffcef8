"""Find the number of samples k from which one model's Pass@k exceeds that of another, better at a single sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.best import simultaneous_level
from rlvr_dir.stats.errors import combined
from rlvr_dir.stats.families import Labels, by_family
from rlvr_dir.stats.paired import difference_error
from rlvr_dir.stats.passk import pass_at_k_per_problem


@dataclass(frozen=True, slots=True)
class Crossing:
    """Store where Pass@k of one model exceeds that of another, for k up to `n`, the number of samples that both have.

    `k` is the first at which the lower bound of the difference is above 0; these bounds hold jointly for all k.
    `estimate` is the first k at which the difference itself is above 0, which happens by chance more often than not.
    Each is None if there is no such k up to `n`.
    """

    k: int | None
    estimate: int | None
    n: int


def crossing(above: ArrayLike, below: ArrayLike, level: float = 0.95, families: Labels | None = None) -> Crossing:
    """Return the first k* at which the model `above` solves more problems in k samples than the model `below`.

    Both are (problems, samples) of 0 and 1 on the same problems. Pass@k is the unbiased estimate for every k up to the
    smaller number of samples. k* = 1 means that `above` is ahead with a single sample. The lower bounds come from t
    intervals over problems (`difference_error`), at the level at which all of them hold jointly with probability
    `level` (`simultaneous_level`). So if two models are equally good at every k, no k is returned with probability
    `level`. With `families`, a label per problem, bounds and bootstrap use these.

    Raises:
        UserError: The numbers of problems differ, or `pass_at_k` does not accept the matrices.

    >>> crossing([[1, 0], [0, 1]], [[1, 1], [0, 0]])
    Crossing(k=None, estimate=2, n=2)
    """
    first, other = np.asarray(above), np.asarray(below)
    if first.ndim != 2 or other.ndim != 2 or first.shape[0] != other.shape[0]:
        raise UserError(
            f"above has shape {first.shape} and below {other.shape}", accepted="(problems, samples), the same"
        )
    n = min(first.shape[1], other.shape[1])
    gaps = np.array([pass_at_k_per_problem(first, k) - pass_at_k_per_problem(other, k) for k in range(1, n + 1)])
    units = [by_family(gap, families, float(gap.mean())) for gap in gaps]
    level_of_one = simultaneous_level(units, 2 * level - 1)  # two-sided level, so that the lower bounds have `level`
    low = [combined(float(gap.mean()), [difference_error([gap], n, [families])], level_of_one)[0] for gap in gaps]
    return Crossing(_first(np.array(low)), _first(gaps.mean(axis=1)), n)


def _first(values: np.ndarray) -> int | None:
    """Return the first k whose value is above zero, up to rounding; None if there is none."""
    up = np.flatnonzero(values > 1e-12)
    return int(up[0]) + 1 if up.size else None

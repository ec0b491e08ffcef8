"""Compare the best of several decodings with the best of several others, both selected on the same problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.errors import combined, finite
from rlvr_dir.stats.families import Labels, by_family
from rlvr_dir.stats.paired import difference_error, sign_flip_p

DRAWS = 4000


@dataclass(frozen=True, slots=True)
class BestDifference:
    """Hold the best of `ones` minus the best of `others`, as fractions, with its interval (`low`, `high`) and `p`.

    `one` and `other` are the places of the best ones on these data; `contrasts` is the number of differences.
    """

    mean: float
    low: float
    high: float
    p: float
    one: int
    other: int
    contrasts: int


def best_difference(
    ones: Sequence[ArrayLike],
    others: Sequence[ArrayLike],
    level: float = 0.95,
    comparisons: int = 1,
    meets: ArrayLike | None = None,
    families: Labels | None = None,
) -> BestDifference:
    """Return max_i (E(ones_i) - max_j E(others_j)), over the j that i is compared with: how far the best one is ahead.

    Each matrix is (problems, samples) of numbers from 0 to 1. The intervals of all differences d_ij hold jointly with
    probability `level` (`simultaneous_level`), each with its own number of samples. Then max_i min_j of their lower
    bounds, and of their upper bounds, bound the true difference. This accounts for the selection, whichever ones are
    best. The mean is that of the ones that are best on these data. It is biased upwards if several are equally good.

    `p` tests the direction of the mean. The hypothesis that one i is above every j it is compared with has the greatest
    sign-flip p of its differences; the least of these over i is multiplied by the number of i (Bonferroni). The
    hypothesis that every i is below one of its j has the least p of each i, multiplied by the number of its j; the
    greatest over i is used. `comparisons` is the number of such comparisons in one table.

    Args:
        meets: (ones, others) bool, which of them are compared; by default all.
        families: A label per problem. Bootstrap, intervals and signs then use whole families.

    Raises:
        UserError: A side is empty, one is compared with none, or the numbers of problems differ.
    """
    first, second = ([finite("values", table).mean(axis=1) for table in side] for side in (ones, others))
    if not first or not second or len({means.shape for means in (*first, *second)}) != 1:
        raise UserError(
            "ones and others do not fit together",
            argument="ones",
            accepted="at least one matrix each, all of the same problems",
        )
    met = np.ones((len(first), len(second)), bool) if meets is None else np.asarray(meets, bool)
    if met.shape != (len(first), len(second)) or not met.any(axis=1).all():
        raise UserError(
            f"meets has shape {met.shape}, or compares one of the ones with nothing",
            argument="meets",
            accepted=f"booleans of shape ({len(first)}, {len(second)}), at least one true in each row",
        )
    d = np.array([[a - b for b in second] for a in first])  # (ones, others, problems)
    per_lead = simultaneous_level([by_family(row, families, float(row.mean())) for row in d[met]], level)
    low, high = np.full(met.shape, np.inf), np.full(met.shape, np.inf)
    for i, j in zip(*np.nonzero(met), strict=True):
        samples = min(np.shape(ones[i])[-1], np.shape(others[j])[-1])
        error = difference_error([d[i, j]], samples, [families])
        low[i, j], high[i, j] = combined(float(d[i, j].mean()), [error], per_lead)[:2]
    leads = np.where(met, d.mean(axis=2), np.inf)
    winner = int(leads.min(axis=1).argmax())
    other = int(leads[winner].argmin())
    mean = float(leads[winner, other])
    d = np.array([[by_family(row, families) for row in rows] for rows in d])  # the numbers whose signs are flipped
    if mean > 0:
        p = len(first) * min(_least_certain(d[i, met[i]], comparisons) for i in range(len(first)))
    else:
        below = [
            [_least_certain(-d[i, j, None], comparisons) for j in np.flatnonzero(met[i])] for i in range(len(first))
        ]
        p = max(len(row) * min(row) for row in below)
    least, most = (float(np.clip(bounds.min(axis=1).max(), -1, 1)) for bounds in (low, high))
    return BestDifference(mean, least, most, min(1.0, p), winner, other, int(met.sum()))


def simultaneous_level(differences: ArrayLike, level: float = 0.95, draws: int = DRAWS, seed: int = 0) -> float:
    """Return the level that each of several intervals needs so that all of them hold jointly with probability `level`.

    `differences` is (contrasts, problems). The distribution of the greatest |t| of all contrasts is estimated by a
    Gaussian multiplier bootstrap over problems (Chernozhukov, Chetverikov and Kato, 2013), so correlated contrasts cost
    little. The result is at most Bonferroni's level, and at least `level`.
    """
    from scipy.stats import norm

    d = finite("differences", differences)
    contrasts, problems = d.shape
    spread = d.std(axis=1, ddof=1) if problems > 1 else np.zeros(contrasts)
    if not (spread > 0).any():
        return 1 - (1 - level) / contrasts
    z = (d - d.mean(axis=1, keepdims=True))[spread > 0] / (spread[spread > 0, None] * np.sqrt(problems - 1))
    greatest = np.abs(np.random.default_rng(seed).standard_normal((draws, problems)) @ z.T).max(axis=1)
    missed = 2 * float(norm.sf(np.quantile(greatest, level)))
    return 1 - float(np.clip(missed, (1 - level) / contrasts, 1 - level))


def _least_certain(rows: np.ndarray, comparisons: int) -> float:
    """Return the greatest p of several differences; 1 if one of them is not above zero."""
    if (rows.mean(axis=1) <= 0).any():
        return 1.0
    return max(sign_flip_p(row, comparisons=comparisons) for row in rows)

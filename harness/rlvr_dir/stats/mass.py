"""Compute shares of a total (of divergence, of energy) that some tokens carry, and parts of a gain, with intervals.

The tokens of one problem are not independent, and a sum of divergence has no number of trials. So all intervals in this
module come from leaving out each problem in turn. `python -m benchmarks.mass` measures their coverage.
"""

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.stats.estimate import Estimate
from rlvr_dir.stats.families import Families, Labels
from rlvr_dir.stats.paired import difference_error, mean_difference
from rlvr_dir.stats.shares import log_odds_interval, of_problems, t_quantile, variance_without_each

ROUNDING = 1e-24  # variance of equal shares, by rounding


def mass_share(part: ArrayLike, whole: ArrayLike) -> Estimate:
    """Return the sum of `part` over that of `whole`, each (problems,), with an interval over problems.

    It is a ratio of two means. Its log odds have a t interval, with the variance from leaving out each of the n
    problems with a positive whole. Unlike `token_share`, its variance has no lower bound from independent tokens. The
    result is empty if the whole is 0. A share of 0 or 1 has no interval, nor has one from a single problem.

    >>> mass_share([1, 2, 3], [4, 4, 4]).text(1)
    '50.0 [7.7, 92.3]'
    """
    part, whole = of_problems(part, whole)
    if not whole.sum():
        return Estimate(None)
    value = float(part.sum() / whole.sum())
    if whole.size < 2 or not 0 < value < 1:
        return Estimate(value)
    variance = variance_without_each((part.sum() - part) / (whole.sum() - whole))
    return log_odds_interval(value, variance, whole.size)


def least_share(values: ArrayLike, problems: ArrayLike, share: float) -> Estimate:
    """Return the smallest share of tokens that contains a `share` of the total: those with the largest values.

    With t the value of the last token that is needed, a token x contributes [x >= t] - (x [x >= t] - share x) / t (the
    part of the last token counts as a part). The mean of these is the share, and leaving out each problem gives its
    variance. The result is empty if all values are 0.

    Args:
        values: (tokens,) numbers from 0 on.
        problems: (tokens,) a number from 0 on for each token's problem.
        share: The share of the total, between 0 and 1.

    >>> least_share([8, 1, 1, 6, 0, 0], [0, 0, 0, 1, 1, 1], 0.5).number(1)
    '16.7'
    """
    x, index = np.asarray(values, dtype=float), np.asarray(problems, dtype=int)
    if not x.sum():
        return Estimate(None)
    ordered = np.sort(x)[::-1]
    mass = np.cumsum(ordered)
    last = ordered[np.searchsorted(mass, share * mass[-1])]
    needed = x >= last
    terms = needed - (x * needed - share * x) / last
    return mass_share(np.bincount(index, terms), np.bincount(index))


def gain_parts(
    base: tuple[ArrayLike, ArrayLike], rl: tuple[ArrayLike, ArrayLike], families: Labels | None = None
) -> tuple[Estimate, Estimate]:
    """Split a gain into more answers, and a larger share of right ones among the answers. The two add up to the gain.

    With a the share of responses that contain an answer and q the share of right ones among these, Avg is a q. The gain
    is (a1 - a0) (q0 + q1) / 2 + (q1 - q0) (a0 + a1) / 2, in which either part is evaluated at the mean of the other
    (Kitagawa, 1955). If a side has no answer, its q is set to the other's. The t intervals come from leaving out each
    problem. There are none if all problems are equal.

    Args:
        base, rl: (answered, right), (problems,) shares of samples each, of the same problems.
        families: A label per problem; then each family is left out instead.

    >>> more, better = gain_parts(([0.5, 0.5], [0.4, 0.4]), ([1.0, 1.0], [0.8, 0.8]))
    >>> round(more.value, 3), better.value
    (0.4, 0.0)
    """
    sides = np.array([base, rl], dtype=float)  # (base and RL, answered and right, problems)
    units = Families.of(range(sides.shape[2]) if families is None else families, sides.shape[2])
    total, of_unit = sides.sum(axis=2), np.apply_along_axis(units.sums, 2, sides)  # of_unit: (2, 2, units)
    others = units.sizes.sum() - units.sizes
    without = [_parts((total - of_unit[:, :, i]) / n) for i, n in enumerate(others)] if others.size > 1 else []
    estimates = []
    for at, value in enumerate(_parts(sides.mean(axis=2))):
        variance = variance_without_each(np.array([parts[at] for parts in without])) if without else 0.0
        half = t_quantile(units.degrees + 1) * float(np.sqrt(variance)) if variance > ROUNDING else float("nan")
        estimates.append(Estimate(value, value - half, value + half))
    return estimates[0], estimates[1]


def _parts(means: np.ndarray) -> tuple[float, float]:
    """Return both parts of the gain from the mean shares (base and RL, answered and right)."""
    (a0, right0), (a1, right1) = means.tolist()
    q0, q1 = right0 / a0 if a0 else None, right1 / a1 if a1 else None
    q0, q1 = (q1 if q0 is None else q0) or 0.0, (q0 if q1 is None else q1) or 0.0
    return (a1 - a0) * (q0 + q1) / 2, (q1 - q0) * (a0 + a1) / 2


def share_of_gain(
    values: ArrayLike, base: ArrayLike, rl: ArrayLike, samples: int, families: Labels | None = None
) -> Estimate:
    """Return how much of the gain from `base` to `rl` some `values` reach, (problems,) each: 0 is base, 1 RL.

    Each is a share of `samples` samples by problem. The result is a ratio of two mean differences. It has a t interval
    of its linear terms, with the error from `difference_error`, which is not 0 if few problems differ. The result is
    empty unless the gain's own interval (`mean_difference`) is above 0, because otherwise the divisor could be
    anything. With `families`, a label per problem, errors and degrees of freedom use these.
    """
    over, gain = np.subtract(values, base), np.subtract(rl, base)
    mean = float(gain.mean())
    if not mean:
        return Estimate(None)
    value = float(over.mean()) / mean
    if not mean_difference([gain], samples, families=[families]).low > 0:
        return Estimate(None)
    error, df = difference_error([over - value * gain], samples, [families])
    half = t_quantile(df + 1) * error / mean
    return Estimate(value, value - half, value + half)

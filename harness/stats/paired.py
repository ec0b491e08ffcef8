"""The difference of two configurations, paired by problem: most of the spread between problems cancels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import UserError
from harness.stats.errors import standard_error, t_interval

EXACT_UP_TO = 20  # problems whose difference is not zero: 2^20 sign patterns
FLIPS = 10_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """`mean` of a - b over problems, its standard `error`, the t interval (`low`, `high`), and the sign-flip `p`."""

    mean: float
    error: float
    low: float
    high: float
    p: float
    n: int


def paired_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> PairedDifference:
    """Compare two configurations on the same problems, in the same order.

    With d_i = mean(a_i) - mean(b_i): mean d, error sd(d, ddof=1)/sqrt(n), interval by t with n-1 degrees of freedom,
    p by `sign_flip_p`. `a` and `b` are (problems, samples) matrices or one number a problem; their numbers of samples
    may differ.

    Raises:
        UserError: `a` and `b` differ in their number of problems, or have none.
    """
    pa, pb = (x.mean(axis=1) if x.ndim == 2 else x for x in (np.asarray(a, float), np.asarray(b, float)))
    if pa.shape != pb.shape or pa.ndim != 1 or not pa.size:
        raise UserError(f"a has {pa.shape} and b has {pb.shape} problems; a paired difference needs the same problems")
    d = pa - pb
    mean, error = float(d.mean()), standard_error(d)
    low, high = t_interval(mean, error, d.size, level)
    return PairedDifference(mean, error, low, high, sign_flip_p(d), d.size)


def sign_flip_p(differences: ArrayLike, seed: int = 0) -> float:
    """Return the two-sided p: how often random signs give a mean at least as far from 0 as the one observed.

    Exact (all sign patterns) for up to 20 non-zero differences; else 10,000 patterns from a fixed seed and
    (count + 1) / (patterns + 1), which is never 0. Zeros carry no sign and do not matter to either.
    """
    d = np.asarray(differences, dtype=float)
    size = np.abs(d[d != 0])
    observed = abs(d.sum()) - 1e-12 * (1 + size.sum())  # ties count, and rounding must not break them
    if not size.size:
        return 1.0
    if size.size <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in size:  # all signed sums, (2^i,) after i steps
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(FLIPS, size.size))
    return float(((np.abs(signs @ size) >= observed).sum() + 1) / (FLIPS + 1))

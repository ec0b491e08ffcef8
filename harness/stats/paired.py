"""The difference of two configurations, paired by problem: most of the spread between problems cancels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import UserError
from harness.stats.errors import finite, standard_error, t_interval

EXACT_UP_TO = 20  # problems whose difference is not zero: 2^20 sign patterns
FLIPS = 10_000
FEW = 6  # with fewer problems that differ no sign-flip p is below 0.05, and the t interval is far too short


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """`mean` of a - b over problems, its standard `error`, the t interval (`low`, `high`), and the sign-flip `p`."""

    mean: float
    error: float
    low: float
    high: float
    p: float
    n: int


def paired_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95, family: int = 1) -> PairedDifference:
    """Compare two configurations on the same problems, in the same order.

    With d_i = mean(a_i) - mean(b_i): mean d, error sd(d, ddof=1)/sqrt(n), interval by `difference_interval`, p by
    `sign_flip_p` for a table of `family` comparisons. `a` and `b` are (problems, samples) matrices, whose numbers of
    samples may differ, or one number a unit, whatever its units and scale; those have the t interval.

    Raises:
        UserError: `a` and `b` differ in their number of problems, have none, or hold a number that is not finite.
    """
    x, y = finite("a", a), finite("b", b)
    pa, pb = (each.mean(axis=1) if each.ndim == 2 else each for each in (x, y))
    if pa.shape != pb.shape or pa.ndim != 1 or not pa.size:
        raise UserError(f"a has {pa.shape} and b has {pb.shape} problems; a paired difference needs the same problems")
    d = pa - pb
    mean, error = float(d.mean()), standard_error(d)
    shares = x.ndim == y.ndim == 2 and min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) <= 1
    low, high = difference_interval(d, level) if shares else t_interval(mean, error, d.size, level)
    return PairedDifference(mean, error, low, high, sign_flip_p(d, family=family), d.size)


def difference_interval(differences: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean of differences of shares, one a problem, each within -1 and 1; NaN for one problem.

    It is the t interval with n - 1 degrees of freedom. Where fewer than 6 problems differ that would be far too short,
    or of no length; there two problems are added, which differ by +1 and -1 (after Bonett and Price, 2012). It ends at
    -1 and 1, where a mean of such differences does.
    """
    d = finite("differences", differences)
    many = np.count_nonzero(d) >= FEW
    mean = float(d.mean() if many else np.append(d, (1.0, -1.0)).mean())
    low, high = t_interval(mean, difference_error(d), d.size, level)
    return max(low, -1.0), min(high, 1.0)


def difference_error(differences: ArrayLike) -> float:
    """Return the standard error of a mean of differences, as `difference_interval` has it."""
    d = finite("differences", differences)
    if np.count_nonzero(d) >= FEW or d.size < 2:
        return standard_error(d)
    more = np.append(d, (1.0, -1.0))
    return float(more.std() / np.sqrt(more.size))


def sign_flip_p(differences: ArrayLike, seed: int = 0, family: int = 1) -> float:
    """Return the two-sided p: how often random signs give a mean at least as far from 0 as the one observed.

    Exact (all sign patterns) for up to 20 non-zero differences; else 10,000 patterns from a fixed seed and
    (count + 1) / (patterns + 1), which is never 0. In a `family` of more than 250 tests there are 40 patterns for each
    test, so that Holm's correction of the smallest possible p stays below 0.025. Zeros carry no sign and do not matter.

    Raises:
        UserError: a difference is not finite.
    """
    d = finite("differences", differences)
    size = np.abs(d[d != 0])
    observed = abs(d.sum()) - 1e-12 * (1 + size.sum())  # ties count, and rounding must not break them
    if not size.size:
        return 1.0
    if size.size <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in size:  # all signed sums, (2^i,) after i steps
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    flips, random, beyond = max(FLIPS, 40 * family), np.random.default_rng(seed), 0
    for _ in range(0, flips, FLIPS):  # in lots, so that memory stays the same
        beyond += int((np.abs(random.choice((-1.0, 1.0), size=(FLIPS, size.size)) @ size) >= observed).sum())
    patterns = -(-flips // FLIPS) * FLIPS
    return float((beyond + 1) / (patterns + 1))

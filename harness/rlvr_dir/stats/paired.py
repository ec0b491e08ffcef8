"""Compute the difference of two decodings, paired by problem, which cancels most of the spread between problems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.errors import combined, finite, mean_error, satterthwaite
from rlvr_dir.stats.families import Labels, by_family, count_families

EXACT_UP_TO = 20  # problems with a non-zero difference: 2^20 sign patterns
FLIPS = 10_000
UNKNOWN = (float("nan"), float("nan"))


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Hold the `mean` of a - b, its standard `error`, the interval (`low`, `high`) over problems, and `p`, for `n`
    problems.

    `sampling` is the interval for the same problems and other samples; NaN if it is not known. `at_most` means that p
    is the least value that this number of random sign patterns can return, so the true p may be smaller. `families` is
    the number of families of problems, 0 if none are given. `seeds` is True if interval and p also cover other seeds of
    a training, False if they are for these models only, and None for decodings, which are not trained.
    """

    mean: float
    error: float
    low: float
    high: float
    p: float
    n: int
    sampling: tuple[float, float] = UNKNOWN
    at_most: bool = False
    families: int = 0
    seeds: bool | None = None

    @property
    def over(self) -> str:
        """Describe what the interval and p cover."""
        units = f"{self.families} families" if self.families else f"{self.n} problems"
        return units + {None: "", True: " and seeds", False: ", of these two models"}[self.seeds]


def paired_difference(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, comparisons: int = 1, families: Labels | None = None
) -> PairedDifference:
    """Compare two decodings on the same problems, in the same order.

    `a` and `b` are (problems, samples) matrices of numbers from 0 to 1, with possibly different numbers of samples: see
    `mean_difference` and `sampling_interval`. They may also contain numbers of any unit and scale, as (problems,) or
    (problems, samples); those have the t interval. p and interval agree in either case (`with_signs`). With `families`,
    a label per problem, everything but `sampling` is over these. `comparisons` is the number of comparisons in the
    table.

    Raises:
        UserError: `a` and `b` have different numbers of problems, or none, or contain a number that is not finite; or
            the number of labels in `families` is not that of the problems.
    """
    x, y = finite("a", a), finite("b", b)
    pa, pb = (table.mean(axis=1) if table.ndim == 2 else table for table in (x, y))
    if pa.shape != pb.shape or pa.ndim != 1 or not pa.size:
        raise UserError(
            f"a has {pa.shape} and b has {pb.shape} problems", argument="a", accepted="the same problems in a and b"
        )
    if x.ndim == y.ndim == 2 and min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) <= 1:
        difference = mean_difference([pa - pb], min(x.shape[1], y.shape[1]), level, comparisons, [families])
        return replace(difference, sampling=sampling_interval(x, y, level))
    d = pa - pb
    error, df = mean_error(d, families)
    low, high, p = combined(float(d.mean()), [(error, df)], level)
    difference = PairedDifference(float(d.mean()), error, low, high, p, d.size, families=count_families(families))
    return with_signs(difference, by_family(d, families), level, comparisons)


def mean_difference(
    benchmarks: Sequence[ArrayLike],
    samples: int,
    level: float = 0.95,
    comparisons: int = 1,
    families: Sequence[Labels | None] | None = None,
) -> PairedDifference:
    """Return the mean over benchmarks of differences of shares, (problems,) each, with its interval over problems.

    The interval is mean -/+ t s with s from `difference_error`, clipped to -1 and 1. p is the larger of the t test's
    and `sign_flip_p`. If the latter does not reject "no difference", the interval is extended to contain 0. So p is
    below 1 - `level` exactly if the interval excludes 0. All are NaN for one problem. `families` has the labels of each
    benchmark, None for one whose problems are independent.
    """
    by_benchmark = [finite("differences", d) for d in benchmarks]
    pooled, labels = in_one(by_benchmark), families or [None] * len(by_benchmark)
    error, df = difference_error(by_benchmark, samples, labels)
    mean = float(pooled.mean())
    low, high, p = combined(mean, [(error, df)], level)
    difference = PairedDifference(
        mean, error, max(low, -1.0), min(high, 1.0), p, pooled.size, families=families_of(by_benchmark, labels)
    )
    return with_signs(difference, in_one([*map(by_family, by_benchmark, labels)]), level, comparisons)


def families_of(benchmarks: Sequence[np.ndarray], families: Sequence[Labels | None]) -> int:
    """Return the number of families of all benchmarks, in which an independent problem is its own; 0 without labels."""
    counts = [count_families(labels) or len(d) for d, labels in zip(benchmarks, families, strict=True)]
    return sum(counts) if any(labels is not None for labels in families) else 0


def in_one(benchmarks: Sequence[np.ndarray]) -> np.ndarray:
    """Join differences, weighted so that the mean over all problems is the mean over benchmarks."""
    n = sum(benchmark.size for benchmark in benchmarks)
    return np.concatenate([benchmark * (n / (len(benchmarks) * benchmark.size)) for benchmark in benchmarks])


def with_signs(
    difference: PairedDifference, differences: np.ndarray, level: float, comparisons: int = 1
) -> PairedDifference:
    """Return a difference whose interval and p agree with the sign-flip test of its problems."""
    p, least = sign_flips(differences, comparisons=comparisons)
    if p >= 1 - level:
        difference = replace(difference, low=min(difference.low, 0.0), high=max(difference.high, 0.0))
    return replace(difference, p=float(np.fmax(difference.p, p)), at_most=least and not difference.p > p)


def difference_error(
    benchmarks: Sequence[np.ndarray], samples: int, families: Sequence[Labels | None] | None = None
) -> tuple[float, float]:
    """Return the standard error of a mean over benchmarks of mean differences of shares, and its degrees of freedom.

    It is that of the t test (for several benchmarks Welch's and Satterthwaite's). If few problems differ, this error is
    far too small, or 0. So the larger of it and `two_more` is returned. docs/statistics.md shows the coverage. With
    `families`, the labels of each benchmark, both are over families, and a label never makes the error smaller.
    """
    labels = families or [None] * len(benchmarks)
    errors = [mean_error(benchmark, own) for benchmark, own in zip(benchmarks, labels, strict=True)]
    plain = float(np.sqrt(np.square([error for error, _ in errors]).sum()) / len(benchmarks))
    parts = [plain, two_more(benchmarks, sum(int(np.count_nonzero(d)) for d in benchmarks), samples)]
    if any(own is not None for own in labels):
        pairs = [*zip(benchmarks, labels, strict=True)]
        residuals = [by_family(d, own, float(d.mean())) for d, own in pairs]
        differing = sum(int(np.count_nonzero(by_family(np.abs(d), own))) for d, own in pairs)
        parts += [two_more(residuals, differing, samples), difference_error(benchmarks, samples)[0]]
    return float(np.max(parts)), satterthwaite(errors)


def two_more(benchmarks: Sequence[np.ndarray], differing: int, samples: int) -> float:
    """Return the standard error after adding two problems, one s above and one s below the mean.

    s is the largest of one sample, 1 / (1 + m), where m is the number of problems that differ, and the mean itself. So
    the interval is continuous in the number of problems, and with m = 0 it is that of Bonett and Price (2012). For
    `residuals` of families the two are families.
    """
    pooled = in_one(benchmarks)
    within = sum(
        np.square(part - part.mean()).sum() for part in np.split(pooled, np.cumsum([len(d) for d in benchmarks])[:-1])
    )
    s = max(1 / samples, 1 / (1 + differing), abs(float(pooled.mean())))
    return float(np.sqrt(within + 2 * s**2) / (pooled.size + 2))


def sampling_interval(a: np.ndarray, b: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of the difference for the same problems, from (problems, samples) of 0 and 1 each.

    Some of the responses that differ improved and some got worse. Both counts have exact Poisson bounds (Garwood,
    1936), which are combined into an interval of the difference (MOVER). It is NaN if samples cannot be paired, or are
    not 0 and 1.
    """
    from scipy.special import gammaincinv  # of half a chi-squared quantile

    if a.shape != b.shape or not np.isin(a, (0.0, 1.0)).all() or not np.isin(b, (0.0, 1.0)).all():
        return UNKNOWN
    up, down = int((a > b).sum()), int((a < b).sum())
    miss = (1 - level) / 2
    low = [gammaincinv(count, miss) if count else 0.0 for count in (up, down)]
    high = [gammaincinv(count + 1, 1 - miss) for count in (up, down)]
    below, above = np.hypot(up - low[0], high[1] - down), np.hypot(high[0] - up, down - low[1])
    return max(-1.0, float(up - down - below) / a.size), min(1.0, float(up - down + above) / a.size)


def sign_flip_p(differences: ArrayLike, seed: int = 0, comparisons: int = 1) -> float:
    """Return the two-sided p of `sign_flips`."""
    return sign_flips(differences, seed, comparisons)[0]


def sign_flips(differences: ArrayLike, seed: int = 0, comparisons: int = 1) -> tuple[float, bool]:
    """Return the two-sided p: how often random signs give a mean at least as far from 0 as the observed one.

    The second value is whether p is the least possible one, because none of the random patterns is as far from 0.

    All sign patterns are used for up to 20 non-zero differences. Otherwise 10,000 patterns from a fixed seed are drawn,
    and p is (count + 1) / (patterns + 1), which is never 0. If there are more than 250 `comparisons`, 40
    patterns are drawn for each of them, so that Holm's correction of the smallest possible p stays below 0.025. Zeros
    have no sign and do not matter.

    Raises:
        UserError: A difference is not finite.
    """
    d = finite("differences", differences)
    size = np.abs(d[d != 0])
    observed = abs(d.sum()) - 1e-12 * (1 + size.sum())  # ties count, and rounding must not break them
    if not size.size:
        return 1.0, False
    if size.size <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in size:  # all signed sums, (2^i,) after i steps
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean()), False
    flips, random, beyond = max(FLIPS, 40 * comparisons), np.random.default_rng(seed), 0
    for _ in range(0, flips, FLIPS):  # in batches, so that the memory stays the same
        beyond += int((np.abs(random.choice((-1.0, 1.0), size=(FLIPS, size.size)) @ size) >= observed).sum())
    patterns = -(-flips // FLIPS) * FLIPS
    return float((beyond + 1) / (patterns + 1)), not beyond

"""Error bars over the seeds of trainings."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.stats.errors import combined, finite, satterthwaite, score_interval, standard_error
from rlvr_dir.stats.paired import PairedDifference, difference_error, in_one, with_signs
from rlvr_dir.stats.tables import mean_interval

Runs = Mapping[Any, ArrayLike]  # of one benchmark, by seed of the training: (problems, samples)


def score_over_runs(benchmarks: Sequence[Runs], level: float = 0.95) -> PairedDifference:
    """Return a score as a mean over trainings and benchmarks, its interval for other problems and seeds; `p` is void.

    It is at least `score_interval`, of several benchmarks the `mean_interval` of theirs, which hold near 0 and 1; of
    one training it is that one.
    """
    tables = [_table(runs, list(runs)) for runs in benchmarks]
    seeds = [np.mean([x.mean(axis=0) for x in tables], axis=0)] if len({x.shape[1] for x in tables}) == 1 else []
    parts = [(standard_error(seed), seed.size - 1) for seed in seeds if seed.size > 1]
    interval = _crossed([x.mean(axis=1) for x in tables], parts, level)
    every = [np.hstack([finite("runs", x) for x in runs.values()]) for runs in benchmarks]
    least, most = mean_interval([(float(x.mean()), *score_interval(x, level)) for x in every])
    if all(x.shape[1] == 1 for x in tables):
        return replace(interval, low=least, high=most)
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return replace(interval, low=float(np.fmin(low, least)), high=float(np.fmax(high, most)))


def difference_over_runs(benchmarks: Sequence[tuple[Runs, Runs]], level: float = 0.95) -> PairedDifference:
    """Subtract what other trainings scored on the same problems, as a mean over benchmarks.

    Interval and p are for other problems and other seeds of the training, and the only ones that trainings have:
    reports, summaries and `compare` call this. Paired by problem, and by seed where both have the same seeds; else all
    seeds count on either side, and where one side has a single seed, the other's tell how much seeds differ. A base,
    which was sampled once, is the same of every seed; its samples count once. The error has a part over problems
    (`difference_error`) and one over seeds, put together by `combined`, each with its own degrees of freedom; the noise
    of the samples counts in both. p is at least the sign-flip test's over problems. A seed on each side says nothing of
    others: then interval and p are over problems alone.
    """
    paired = paired_seeds(benchmarks)
    by_problem, by_seed, samples = [], [], []
    for pair in benchmarks:
        first, other = (_table(runs, paired or list(runs)) for runs in pair)
        by_problem.append(first.mean(axis=1) - other.mean(axis=1))
        by_seed.append([(first - other).mean(axis=0)] if paired else [first.mean(axis=0), other.mean(axis=0)])
        samples += [_samples([*runs.values()]) for runs in pair]
    alike = all(len({table.size for table in side}) == 1 for side in zip(*by_seed, strict=True))
    seeds = [np.mean(side, axis=0) for side in zip(*by_seed, strict=True)] if alike else []
    parts = [(standard_error(seed), seed.size - 1) for seed in seeds if seed.size > 1]
    if len(seeds) == 2 and len(parts) == 1:  # the single seed of one side differs from others as those of the other do
        parts.append((parts[0][0] * sqrt(parts[0][1] + 1), parts[0][1]))
    difference = _crossed(by_problem, parts, level, min(samples))
    difference = replace(difference, low=max(difference.low, -1.0), high=min(difference.high, 1.0))
    return with_signs(difference, in_one(by_problem), level)


def paired_seeds(benchmarks: Sequence[tuple[Runs, Runs]]) -> list[Hashable]:
    """Return the seeds by which `difference_over_runs` pairs: those of both sides, where these have the same ones."""
    first = list(benchmarks[0][0])
    return first if all(set(runs) == set(first) for pair in benchmarks for runs in pair) else []


def _crossed(
    problems: Sequence[np.ndarray], seeds: Sequence[tuple[float, int]], level: float, samples: int | None = None
) -> PairedDifference:
    """Return a mean over `problems`, means over seeds, (problems,) each, with its error over these and over seeds.

    `seeds` are errors with their degrees of freedom: one of a score and of a difference that is paired by seed, two of
    the difference of trainings with seeds of their own. `samples` is that of a difference of shares.
    """
    mean = float(np.mean([problem.mean() for problem in problems]))
    if samples is None:
        errors = [(standard_error(problem), problem.size - 1) for problem in problems]
        over_problems = float(np.sqrt(sum(e**2 for e, _ in errors))) / len(problems), satterthwaite(errors)
    else:
        over_problems = difference_error(problems, samples)
    parts = [over_problems, *seeds]
    low, high, p = combined(mean, parts, level)
    error = float(np.sqrt(sum(part**2 for part, _ in parts)))
    return PairedDifference(mean, error, low, high, p, sum(problem.size for problem in problems))


def _samples(runs: Sequence[ArrayLike]) -> int:
    """Return the samples of all runs; those of a base, which are the same of every seed, count once."""
    first, *others = map(np.asarray, runs)
    once = all(np.array_equal(first, other) for other in others)
    return first.shape[1] if once else sum(np.shape(run)[1] for run in runs)


def _table(runs: Runs, seeds: Sequence[Hashable]) -> np.ndarray:
    """Return the means over samples, (problems, seeds)."""
    return np.stack([finite("runs", runs[seed]).mean(axis=1) for seed in seeds], axis=1)

"""Compute error bars over the seeds of trainings."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.stats.errors import combined, finite, mean_error, satterthwaite, score_interval, standard_error
from rlvr_dir.stats.families import Labels, by_family
from rlvr_dir.stats.paired import PairedDifference, difference_error, families_of, in_one, with_signs
from rlvr_dir.stats.tables import mean_interval

Runs = Mapping[Any, ArrayLike]  # scores of one benchmark by the seed of the training: (problems, samples)


def score_over_runs(
    benchmarks: Sequence[Runs], level: float = 0.95, families: Sequence[Labels | None] | None = None
) -> PairedDifference:
    """Return a score as a mean over trainings and benchmarks, with its interval for other problems and seeds.

    `p` is not defined. The interval is at least as wide as `score_interval`, or for several benchmarks as the
    `mean_interval` of theirs, which are accurate near 0 and 1. For one training it is exactly that. `families` has the
    labels of each benchmark.
    """
    labels = families or [None] * len(benchmarks)
    tables = [_table(runs, list(runs)) for runs in benchmarks]
    seeds = [np.mean([x.mean(axis=0) for x in tables], axis=0)] if len({x.shape[1] for x in tables}) == 1 else []
    parts = [(standard_error(seed), seed.size - 1) for seed in seeds if seed.size > 1]
    interval = _crossed([x.mean(axis=1) for x in tables], parts, level, labels)
    every = [np.hstack([finite("runs", x) for x in runs.values()]) for runs in benchmarks]
    scores = [(float(x.mean()), *score_interval(x, level, own)) for x, own in zip(every, labels, strict=True)]
    least, most = mean_interval(scores)
    if all(x.shape[1] == 1 for x in tables):
        return replace(interval, low=least, high=most)
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return replace(interval, low=float(np.fmin(low, least)), high=float(np.fmax(high, most)))


def difference_over_runs(
    benchmarks: Sequence[tuple[Runs, Runs]],
    level: float = 0.95,
    families: Sequence[Labels | None] | None = None,
    other_seeds: tuple[float, float] | None = None,
) -> PairedDifference:
    """Subtract the scores of other trainings on the same problems, as a mean over benchmarks.

    This is the only function for intervals and p over other problems and other seeds of a training; reports, summaries
    and `compare` use it. Scores are paired by problem, and by seed if both sides have the same seeds. Otherwise all
    seeds of both sides are used, and if one side has a single seed, the variation between seeds is taken from the other
    side. A base was sampled once and is the same for every seed, so its samples count once. The error has a part over
    problems (`difference_error`) and one over seeds, which `combined` adds, each with its own degrees of freedom. The
    sampling noise is part of both. p is at least that of the sign-flip test over problems. `families` has the labels of
    each benchmark.

    With one seed on each side, the data say nothing about other seeds: the result is the gain plus the difference
    between these two seeds. Then `other_seeds` may be the error that other trainings show, with its degrees of freedom
    (`borrowed_error` of `trainings.py`). Without it, interval and p are over problems only, for these two models
    (`seeds` is False).
    """
    labels = families or [None] * len(benchmarks)
    paired = paired_seeds(benchmarks)
    by_problem, by_seed, samples = [], [], []
    for pair in benchmarks:
        first, other = (_table(runs, paired or list(runs)) for runs in pair)
        by_problem.append(first.mean(axis=1) - other.mean(axis=1))
        by_seed.append([(first - other).mean(axis=0)] if paired else [first.mean(axis=0), other.mean(axis=0)])
        samples += [_samples([*runs.values()]) for runs in pair]
    alike = all(len({table.size for table in side}) == 1 for side in zip(*by_seed, strict=True))
    seeds = [np.mean(side, axis=0) for side in zip(*by_seed, strict=True)] if alike else []
    parts: list[tuple[float, float]] = [(standard_error(seed), seed.size - 1) for seed in seeds if seed.size > 1]
    if len(seeds) == 2 and len(parts) == 1:  # the single seed of one side differs from others as those of the other do
        parts.append((parts[0][0] * sqrt(parts[0][1] + 1), parts[0][1]))
    if not parts and other_seeds is not None:
        parts = [other_seeds]
    difference = _crossed(by_problem, parts, level, labels, min(samples))
    difference = replace(difference, low=max(difference.low, -1.0), high=min(difference.high, 1.0), seeds=bool(parts))
    return with_signs(difference, in_one([*map(by_family, by_problem, labels)]), level)


def paired_seeds(benchmarks: Sequence[tuple[Runs, Runs]]) -> list[Hashable]:
    """Return the seeds by which `difference_over_runs` pairs: those of both sides, if these have the same ones."""
    first = list(benchmarks[0][0])
    return first if all(set(runs) == set(first) for pair in benchmarks for runs in pair) else []


def _crossed(
    problems: Sequence[np.ndarray],
    seeds: Sequence[tuple[float, float]],
    level: float,
    families: Sequence[Labels | None],
    samples: int | None = None,
) -> PairedDifference:
    """Return a mean over `problems`, means over seeds, (problems,) each, with its error over problems and over seeds.

    `seeds` are errors with their degrees of freedom: one for a score or for a difference that is paired by seed, two
    for the difference of trainings with different seeds. `samples` is given for a difference of shares.
    """
    mean = float(np.mean([problem.mean() for problem in problems]))
    if samples is None:
        errors = [mean_error(problem, own) for problem, own in zip(problems, families, strict=True)]
        over_problems = float(np.sqrt(sum(e**2 for e, _ in errors))) / len(problems), satterthwaite(errors)
    else:
        over_problems = difference_error(problems, samples, families)
    parts = [over_problems, *seeds]
    low, high, p = combined(mean, parts, level)
    error = float(np.sqrt(sum(part**2 for part, _ in parts)))
    n = sum(problem.size for problem in problems)
    return PairedDifference(mean, error, low, high, p, n, families=families_of(problems, families))


def _samples(runs: Sequence[ArrayLike]) -> int:
    """Return the samples of all runs. Those of a base, which are the same for every seed, count once."""
    first, *others = map(np.asarray, runs)
    once = all(np.array_equal(first, other) for other in others)
    return first.shape[1] if once else sum(np.shape(run)[1] for run in runs)


def _table(runs: Runs, seeds: Sequence[Hashable]) -> np.ndarray:
    """Return the means over samples, (problems, seeds)."""
    return np.stack([finite("runs", runs[seed]).mean(axis=1) for seed in seeds], axis=1)

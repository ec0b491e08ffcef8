"""Error bars over seeds: of runs whose samples share noise within a seed, as the authors' do, and of trainings."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.errors import finite, satterthwaite, score_interval, standard_error, t_interval
from harness.stats.paired import PairedDifference, difference_interval, sign_flip_p
from harness.stats.tables import mean_interval


def clustered_errors(values: ArrayLike, per_seed: int) -> dict[str, float]:
    """Return standard errors of the mean of a (problems, samples) matrix whose columns are seed 0's, seed 1's, ...

    - `over_problems`: another benchmark like this one;
    - `over_seeds`: another set of seeds on these problems (NaN for one seed);
    - `over_both`: two-way clustering (Cameron, Gelbach and Miller 2011), V = V_problem + V_seed - V_problem-and-seed,
      each V the sum of squared cluster residuals over N^2, times G/(G-1) for G clusters; never below the larger of
      the first two, which the difference can fall under when there are few clusters.

    >>> errors = clustered_errors([[1, 1, 0, 0], [1, 1, 0, 0]], per_seed=2)
    >>> errors["over_problems"], errors["over_seeds"]
    (0.0, 0.5)
    """
    x = np.asarray(values, dtype=float)
    problems, samples = x.shape
    if samples % per_seed:
        raise ValueError(f"{samples} samples are not whole seeds of {per_seed}")
    cells = (x - x.mean()).reshape(problems, samples // per_seed, per_seed).sum(axis=2)  # (problems, seeds)

    def variance(residuals: np.ndarray) -> float:
        groups = residuals.size
        return float((residuals**2).sum() / x.size**2 * groups / (groups - 1)) if groups > 1 else float("nan")

    of_problem, of_seed, of_cell = variance(cells.sum(axis=1)), variance(cells.sum(axis=0)), variance(cells)
    both = np.fmax(of_problem + of_seed - of_cell, np.fmax(of_problem, of_seed))
    return {
        "over_problems": float(np.sqrt(of_problem)),
        "over_seeds": float(np.sqrt(of_seed)),
        "over_both": float(np.sqrt(both)),
    }


def crossed_mean(
    by_problem: Iterable[ArrayLike], by_seed: Iterable[ArrayLike] = (), level: float = 0.95
) -> PairedDifference:
    """Return a mean over problems and over seeds of trainings, with its interval for other problems and other seeds.

    Of several benchmarks it is their unweighted mean. Its variance is the sum of those over the problems of each and
    over the seeds, so that the noise of the samples counts in both; interval and p are by t with Welch's and
    Satterthwaite's degrees of freedom. NaN for one problem.

    Args:
        by_problem: for each benchmark (problems,), means over seeds.
        by_seed: each (seeds,), means over problems and benchmarks: one for a score and for a difference that is paired
            by seed, two for the difference of trainings with seeds of their own. One seed says nothing of others, and
            is left out.

    Raises:
        UserError: a value is not finite.

    >>> one = crossed_mean([[0.2, 0.4, 0.6, 0.8]], [[0.4, 0.6]])
    >>> round(one.mean, 2), round(one.error, 3)
    (0.5, 0.163)
    """
    from scipy import stats

    problems = [finite("by_problem", each) for each in by_problem]
    seeds = [each for values in by_seed if (each := finite("by_seed", values)).size > 1]
    mean = float(np.mean([each.mean() for each in problems]))
    parts = [(standard_error(each) / len(problems), each.size - 1) for each in problems]
    parts += [(standard_error(each), each.size - 1) for each in seeds]
    error, n = float(np.sqrt(sum(part**2 for part, _ in parts))), sum(each.size for each in problems)
    if not np.isfinite(error):
        return PairedDifference(mean, error, error, error, error, n)
    degrees = satterthwaite(parts)
    low, high = t_interval(mean, error, degrees + 1, level)
    p = float(2 * stats.t.sf(abs(mean) / error, degrees)) if error else float(mean == 0)
    return PairedDifference(mean, error, low, high, p, n)


Runs = Mapping[Any, ArrayLike]  # of one benchmark, by seed of the training: (problems, samples) of 0 and 1


def score_over_runs(benchmarks: Sequence[Runs], level: float = 0.95) -> PairedDifference:
    """Return Avg@K as a mean over trainings and benchmarks, its interval for other problems and seeds; `p` is void.

    It is at least `score_interval`, of several benchmarks the `mean_interval` of theirs, which hold near 0 and 1; of
    one training it is that one.
    """
    tables = [_table(runs, list(runs)) for runs in benchmarks]
    seeds = [np.mean([x.mean(axis=0) for x in tables], axis=0)] if len({x.shape[1] for x in tables}) == 1 else []
    found = crossed_mean([x.mean(axis=1) for x in tables], seeds, level)
    low, high = max(0.0, found.low), min(1.0, found.high)
    every = [np.hstack([finite("runs", x) for x in runs.values()]) for runs in benchmarks]
    least, most = mean_interval([(float(x.mean()), *score_interval(x, level)) for x in every])
    alone = all(x.shape[1] == 1 for x in tables)
    low, high = (least, most) if alone else (float(np.fmin(low, least)), float(np.fmax(high, most)))
    return replace(found, low=low, high=high)


def difference_over_runs(benchmarks: Sequence[tuple[Runs, Runs]], level: float = 0.95) -> PairedDifference:
    """Subtract what other trainings scored on the same problems, as a mean over benchmarks; the interval as above.

    Paired by problem, and by seed where the two share any: then the other seeds are left out. Of one benchmark the
    interval is at least `difference_interval` and p at least `sign_flip_p`, which hold where few problems differ.
    """
    shared = [seed for seed in benchmarks[0][0] if all(seed in runs for pair in benchmarks for runs in pair)]
    by_problem, by_seed = [], []
    for pair in benchmarks:
        one, other = (_table(runs, shared or list(runs)) for runs in pair)
        by_problem.append(one.mean(axis=1) - other.mean(axis=1))
        by_seed.append([(one - other).mean(axis=0)] if shared else [one.mean(axis=0), other.mean(axis=0)])
    alike = all(len({each.size for each in side}) == 1 for side in zip(*by_seed, strict=True))
    seeds = [np.mean(side, axis=0) for side in zip(*by_seed, strict=True)] if alike else []
    found = crossed_mean(by_problem, seeds, level)
    if len(by_problem) > 1:
        return found
    low, high = difference_interval(by_problem[0], level)
    p = max(found.p, sign_flip_p(by_problem[0]))
    return replace(found, low=min(low, found.low), high=max(high, found.high), p=p)


def _table(runs: Runs, seeds: Sequence[Hashable]) -> np.ndarray:
    """Return the shares of right samples, (problems, seeds)."""
    return np.stack([finite("runs", runs[seed]).mean(axis=1) for seed in seeds], axis=1)


def difference_over_seeds(
    trained: ArrayLike, base: float, base_error: float, base_df: int, level: float = 0.95
) -> PairedDifference:
    """Compare the scores of a training's seeds with the one score of its base, all on the same problems.

    The base was sampled once, so that its sampling error is in the difference of every seed: the standard error is
    sqrt(sd(trained)^2 / seeds + base_error^2), the interval and p by t with Welch's and Satterthwaite's degrees of
    freedom. They are for other seeds and other samples on these very problems, not for other problems. p is at least
    `sign_flip_p` of the seeds, which by itself takes base's error for a gain: all seeds share it.

    Args:
        trained: (seeds,) scores as fractions.
        base_error: `sampling_error` of the base's score; NaN, as of one sample a problem, gives no interval and no p;
            neither does one seed.
        base_df: its degrees of freedom, problems x (samples - 1).
    """
    from scipy import stats

    d = finite("trained", trained) - base
    mean, error = float(d.mean()), float(np.hypot(standard_error(d), base_error))
    if not np.isfinite(error):
        nan = float("nan")
        return PairedDifference(mean, nan, nan, nan, nan, d.size)
    df = satterthwaite([(standard_error(d), d.size - 1), (base_error, base_df)])
    low, high = t_interval(mean, error, df + 1, level)
    p = float(2 * stats.t.sf(abs(mean) / error, df)) if error else float(mean == 0)
    return PairedDifference(mean, error, low, high, max(p, sign_flip_p(d)), d.size)

"""Families of paired comparisons, where alone Holm's correction is applied, and means over several of them."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from harness.errors import UserError
from harness.stats.errors import satterthwaite, score_interval, standard_error, t_interval
from harness.stats.paired import PairedDifference, difference_error, difference_interval, paired_difference, sign_flip_p
from harness.stats.tables import holm, mean_over_benchmarks


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One side of a comparison: what one setting scored on one benchmark.

    `values` has a row for each of `units`, which are problems or seeds of a training: (units, samples), or (units,).
    `seeds` are those of the noise, where `values` holds samples.
    """

    label: str
    task: str
    units: tuple[Hashable, ...]
    values: np.ndarray
    seeds: tuple[int, ...] = ()

    @property
    def benchmark(self) -> str:
        """Return the benchmark as tables have it."""
        return self.task

    @property
    def samples(self) -> int:
        """Return the number of samples a unit."""
        return self.values.shape[1] if self.values.ndim == 2 else 1

    @property
    def avg(self) -> float:
        """Return the mean over units, as a fraction."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Return the standard error of `avg` over units; NaN for one of them."""
        return standard_error(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `avg` over units: `score_interval` of samples, else by t; NaN for one unit."""
        if self.values.ndim == 2:
            return score_interval(self.values)
        return t_interval(self.avg, self.standard_error, len(self.units))


S = TypeVar("S", bound=Scores)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Generic[S]):
    """`result` minus `reference` on the same units of one benchmark; `holm_p` is corrected over its family."""

    result: S
    reference: S
    difference: PairedDifference
    holm_p: float

    @property
    def task(self) -> str:
        """Return the benchmark."""
        return self.result.task

    def facts(self) -> dict[str, Any]:
        """Return what is compared with what, and the numbers, as plain values; what one unit does not tell is None."""
        d = self.difference
        return {
            "task": self.task,
            "label": self.result.label,
            "minus": self.reference.label,
            "mean": d.mean,
            "low": None if np.isnan(d.low) else d.low,
            "high": None if np.isnan(d.high) else d.high,
            "p": d.p,
            "holm_p": self.holm_p,
            "units": d.n,
            "samples": [self.result.samples, self.reference.samples],
            "seeds": [list(self.result.seeds), list(self.reference.seeds)],
        }


def family(pairs: Iterable[tuple[S, S]]) -> list[Comparison[S]]:
    """Compare the first of each pair with the second, and correct the p values over all pairs by Holm's method.

    Whatever is printed in one table, or picked from, belongs into one family.

    Raises:
        UserError: the two of a pair are of different benchmarks, problems or seeds.
    """
    rows, pairs = [], list(pairs)
    for result, reference in pairs:
        if (result.task, result.units) != (reference.task, reference.units):
            raise UserError(
                f"{result.label} on {result.task} and {reference.label} on {reference.task} differ in their problems; "
                "a paired difference needs the same"
            )
        difference = paired_difference(result.values, reference.values, family=len(pairs))
        rows.append(Comparison(result, reference, difference, 1.0))
    corrected = holm([row.difference.p for row in rows])
    return [replace(row, holm_p=float(p)) for row, p in zip(rows, corrected, strict=True)]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A mean difference over settings and benchmarks, its t interval over problems, and its sign-flip `p`.

    `settings` says how many settings were averaged on each benchmark.
    """

    mean: float
    low: float
    high: float
    p: float
    settings: dict[str, int]


def pooled(rows: Sequence[Comparison[S]]) -> Pooled | None:
    """Average differences over all settings, each benchmark counting once: none is picked, so nothing is selected for.

    Within a benchmark the differences of a problem are averaged over settings first; the standard error is over
    problems, and benchmarks are independent: the degrees of freedom are Welch's and Satterthwaite's. Of one benchmark
    the interval is `difference_interval`. None without rows.

    Raises:
        UserError: the rows of a benchmark differ in their problems.
    """
    by_task, weighted, settings = [], [], {}
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        if any(row.result.units != mine[0].result.units for row in mine):
            raise UserError(
                f"comparisons on {task} differ in their problems; their mean would be of no set of problems"
            )
        each = np.mean([_by_unit(row.result) - _by_unit(row.reference) for row in mine], axis=0)
        by_task.append(each)
        weighted.append(each / each.size)
        settings[task] = len(mine)
    if not by_task:
        return None
    errors = [difference_error(each) for each in by_task]
    mean, error = mean_over_benchmarks([(float(e.mean()), s) for e, s in zip(by_task, errors, strict=True)])
    one = np.concatenate(weighted)
    if len(by_task) == 1:
        low, high = difference_interval(by_task[0])
    else:
        degrees = satterthwaite([(s, each.size - 1) for s, each in zip(errors, by_task, strict=True)])
        low, high = t_interval(mean, error, degrees + 1)
    return Pooled(mean, low, high, sign_flip_p(one), settings)


def _by_unit(scores: Scores) -> np.ndarray:
    return scores.values.mean(axis=1) if scores.values.ndim == 2 else scores.values

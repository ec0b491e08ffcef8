"""Define sets of paired comparisons. Holm's correction is applied only here, over one set."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.stats.clusters import difference_over_runs, score_over_runs
from rlvr_dir.stats.errors import mean_error, score_interval, t_interval
from rlvr_dir.stats.estimate import p_value
from rlvr_dir.stats.families import common_families
from rlvr_dir.stats.paired import UNKNOWN, PairedDifference, paired_difference
from rlvr_dir.stats.tables import holm


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold one side of a comparison: the scores of one setting on one benchmark.

    `values` has a row for each of `units`, which are problems or seeds of a training: (units, samples), or (units,).
    `seeds` are the sampling seeds if `values` contains samples. `families` has the family of each problem if the
    benchmark defines them.
    """

    label: str
    task: str
    units: tuple[Hashable, ...]
    values: np.ndarray
    seeds: tuple[int, ...] = ()
    families: tuple[Hashable, ...] | None = None

    @property
    def benchmark(self) -> str:
        """Return the benchmark's name as in tables."""
        return self.task

    @property
    def samples(self) -> int:
        """Return the number of samples per unit."""
        return self.values.shape[1] if self.values.ndim == 2 else 1

    @property
    def avg(self) -> float:
        """Return the mean over units, as a fraction."""
        return float(self.values.mean())

    @property
    def by_unit(self) -> np.ndarray:
        """Return the mean of each unit."""
        return self.values.mean(axis=1) if self.values.ndim == 2 else self.values

    @property
    def standard_error(self) -> float:
        """Return the standard error of `avg` over units; NaN for a single unit."""
        return mean_error(self.values, self.families)[0]

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `avg` over units: `score_interval` if these are samples, otherwise by t; NaN for
        one unit."""
        if self.values.ndim == 2:
            return score_interval(self.values, families=self.families)
        error, df = mean_error(self.values, self.families)
        return t_interval(self.avg, error, df + 1)

    def minus(self, other: "Scores", comparisons: int = 1) -> PairedDifference:
        """Return the difference from another setting on the same units, in a table of `comparisons` comparisons.

        Raises:
            UserError: The units or their families differ.
        """
        if (self.task, self.units) != (other.task, other.units):
            raise UserError(
                f"{self.label} on {self.task} and {other.label} on {other.task} have different problems",
                accepted="the same problems in both, for a paired difference",
            )
        families = common_families([self.families, other.families])
        return paired_difference(self.values, other.values, comparisons=comparisons, families=families)


@dataclass(frozen=True, slots=True, eq=False)
class RunScores(Scores):
    """Hold the scores of one method's trainings on one benchmark: `units` are their seeds, `values` a score for each.

    `runs` has the scores of each seed by problem, (problems, samples), if they were kept; otherwise there is no
    interval. `families` are those of the problems. `seed_spread` is how much a seed changes such a score, as measured
    on other trainings (`trainings.seed_spread`). It is None for a base, which has no seeds, and if no training measures
    it.
    """

    runs: Mapping[Hashable, np.ndarray] = field(default_factory=dict)
    seed_spread: tuple[float, float] | None = None

    @property
    def benchmark(self) -> str:
        """Return the task's name, with the part of its problems that was used, if not all."""
        return self.task

    @property
    def by_unit(self) -> np.ndarray:
        """Return the mean over seeds of each problem, if these were kept."""
        return np.mean([x.mean(axis=1) for x in self.runs.values()], axis=0) if self.runs else self.values

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `avg` over problems and seeds, by `score_over_runs`."""
        if not self.runs:
            return UNKNOWN
        score = score_over_runs([self.runs], families=[self.families])
        return score.low, score.high

    def minus(self, other: Scores, comparisons: int = 1) -> PairedDifference:
        """Return the difference from other trainings, or from a base, by `difference_over_runs`."""
        other_runs = other.runs if isinstance(other, RunScores) else {}
        if self.runs and other_runs and len({len(x) for x in (*self.runs.values(), *other_runs.values())}) == 1:
            families = [common_families([self.families, other.families])]
            return difference_over_runs(
                [(self.runs, other_runs)], families=families, other_seeds=borrowed_error([(self, other)])
            )
        nan = float("nan")
        return PairedDifference(self.avg - other.avg, nan, nan, nan, nan, 0)


def borrowed_error(pairs: Sequence[tuple[Scores, Scores]]) -> tuple[float, float] | None:
    """Return the error over seeds of a mean over benchmarks of differences of single trainings, from other trainings.

    It is the root of the summed squares of both sides' `seed_spread`: sqrt(2) s for two trainings, s for a training and
    its base. A seed is assumed to have the same effect on every benchmark, and the fewest degrees of freedom are used.
    The result is None if a benchmark has no training with several seeds.
    """
    by_pair = [[spread for side in pair if (spread := getattr(side, "seed_spread", None))] for pair in pairs]
    if not by_pair or not all(by_pair):
        return None
    errors = [np.sqrt(sum(s**2 for s, _ in spreads)) for spreads in by_pair]
    return float(np.mean(errors)), min(df for spreads in by_pair for _, df in spreads)


S = TypeVar("S", bound=Scores)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Generic[S]):
    """Store `result` minus `reference` on the same units of one benchmark; `holm_p` is corrected over the whole set."""

    result: S
    reference: S
    difference: PairedDifference
    holm_p: float

    @property
    def task(self) -> str:
        """Return the benchmark."""
        return self.result.task

    @property
    def nothing_differs(self) -> bool:
        """Return whether all units scored the same on both sides."""
        return self.difference.n > 1 and np.array_equal(self.result.by_unit, self.reference.by_unit)

    @property
    def p_text(self) -> str:
        """Return p as text; empty if it is not known."""
        return p_value(self.difference.p, self.difference.at_most)

    @property
    def holm_text(self) -> str:
        """Return the corrected p as text; if p is a bound, so is this."""
        return p_value(self.holm_p, self.difference.at_most)

    def to_dict(self) -> dict[str, Any]:
        """Return what is compared and the numbers as plain values. Numbers that a single unit cannot determine are
        None."""
        d = self.difference
        return {
            "task": self.task,
            "label": self.result.label,
            "minus": self.reference.label,
            "mean": d.mean,
            "low": _finite(d.low),
            "high": _finite(d.high),
            "sampling": None if np.isnan(d.sampling[0]) else list(d.sampling),
            "p": _finite(d.p),
            "holm_p": _finite(self.holm_p),
            "units": d.n,
            **({"families": d.families} if d.families else {}),
            "samples": [self.result.samples, self.reference.samples],
            "seeds": [list(self.result.seeds), list(self.reference.seeds)],
        }


def corrected(pairs: Iterable[tuple[S, S]]) -> list[Comparison[S]]:
    """Compare the first of each pair with the second, and correct the p values over all pairs by Holm's method.

    All comparisons that are printed in one table, or from which one is selected, belong in one call.

    Raises:
        UserError: The two of a pair have different benchmarks, problems or seeds.
    """
    rows = list(pairs)
    differences = [result.minus(reference, len(rows)) for result, reference in rows]
    corrected = holm([1.0 if np.isnan(d.p) else d.p for d in differences])
    corrected = [float("nan") if np.isnan(d.p) else float(p) for d, p in zip(differences, corrected, strict=True)]
    return [Comparison(*row, d, p) for row, d, p in zip(rows, differences, corrected, strict=True)]


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else value

"""Families of paired comparisons, where alone Holm's correction is applied."""

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
    """One side of a comparison: what one setting scored on one benchmark.

    `values` has a row for each of `units`, which are problems or seeds of a training: (units, samples), or (units,).
    `seeds` are those of the noise, where `values` holds samples. `families` has the family of each problem, where the
    benchmark names them.
    """

    label: str
    task: str
    units: tuple[Hashable, ...]
    values: np.ndarray
    seeds: tuple[int, ...] = ()
    families: tuple[Hashable, ...] | None = None

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
    def by_unit(self) -> np.ndarray:
        """Return the mean of each unit."""
        return self.values.mean(axis=1) if self.values.ndim == 2 else self.values

    @property
    def standard_error(self) -> float:
        """Return the standard error of `avg` over units; NaN for one of them."""
        return mean_error(self.values, self.families)[0]

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `avg` over units: `score_interval` of samples, else by t; NaN for one unit."""
        if self.values.ndim == 2:
            return score_interval(self.values, families=self.families)
        error, df = mean_error(self.values, self.families)
        return t_interval(self.avg, error, df + 1)

    def minus(self, other: "Scores", family: int = 1) -> PairedDifference:
        """Return the difference to another setting's on the same units, in a table of `family` comparisons.

        Raises:
            UserError: the units differ, or are of other families.
        """
        if (self.task, self.units) != (other.task, other.units):
            raise UserError(
                f"{self.label} on {self.task} and {other.label} on {other.task} have different problems",
                accepted="the same problems in both, for a paired difference",
            )
        families = common_families([self.families, other.families])
        return paired_difference(self.values, other.values, family=family, families=families)


@dataclass(frozen=True, slots=True, eq=False)
class RunScores(Scores):
    """What trainings of one method scored on one benchmark: `units` are their seeds, `values` a score for each.

    `runs` has the scores of each seed by problem, (problems, samples), where they were kept; else there is no interval.
    `families` are those of the problems. `seed_spread` is by how much a seed changes such a score, as other trainings
    show it (`trainings.seed_spread`); None of a base, which has no seeds, and where nothing shows it.
    """

    runs: Mapping[Hashable, np.ndarray] = field(default_factory=dict)
    seed_spread: tuple[float, float] | None = None

    @property
    def benchmark(self) -> str:
        """Return the task, as a setting of decodings says where only some of its problems were asked."""
        return self.task

    @property
    def by_unit(self) -> np.ndarray:
        """Return the mean of each problem over seeds, where it was kept."""
        return np.mean([x.mean(axis=1) for x in self.runs.values()], axis=0) if self.runs else self.values

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `avg` over problems and seeds: `score_over_runs`."""
        if not self.runs:
            return UNKNOWN
        score = score_over_runs([self.runs], families=[self.families])
        return score.low, score.high

    def minus(self, other: Scores, family: int = 1) -> PairedDifference:
        """Return the difference to other trainings', or to a base's: `difference_over_runs`."""
        other_runs = other.runs if isinstance(other, RunScores) else {}
        if self.runs and other_runs and len({len(x) for x in (*self.runs.values(), *other_runs.values())}) == 1:
            families = [common_families([self.families, other.families])]
            return difference_over_runs(
                [(self.runs, other_runs)], families=families, other_seeds=borrowed_error([(self, other)])
            )
        nan = float("nan")
        return PairedDifference(self.avg - other.avg, nan, nan, nan, nan, 0)


def borrowed_error(pairs: Sequence[tuple[Scores, Scores]]) -> tuple[float, float] | None:
    """Return the error over seeds of a mean over benchmarks of differences of single trainings, as others show it.

    The root of the summed squares of both sides' `seed_spread`: sqrt(2) s of two trainings, s of one and its base. A
    seed is taken to do the same on every benchmark, and the fewest degrees of freedom count. None where a benchmark has
    no training of several seeds.
    """
    by_pair = [[spread for side in pair if (spread := getattr(side, "seed_spread", None))] for pair in pairs]
    if not by_pair or not all(by_pair):
        return None
    errors = [np.sqrt(sum(s**2 for s, _ in spreads)) for spreads in by_pair]
    return float(np.mean(errors)), min(df for spreads in by_pair for _, df in spreads)


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

    @property
    def nothing_differs(self) -> bool:
        """Return whether every unit scored the same on both sides."""
        return self.difference.n > 1 and np.array_equal(self.result.by_unit, self.reference.by_unit)

    @property
    def p_text(self) -> str:
        """Return p as it is printed; empty where it is not known."""
        return p_value(self.difference.p, self.difference.at_most)

    @property
    def holm_text(self) -> str:
        """Return the corrected p as it is printed; of a p that is a bound it is a bound, too."""
        return p_value(self.holm_p, self.difference.at_most)

    def facts(self) -> dict[str, Any]:
        """Return what is compared with what, and the numbers, as plain values; what one unit does not tell is None."""
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


def family(pairs: Iterable[tuple[S, S]]) -> list[Comparison[S]]:
    """Compare the first of each pair with the second, and correct the p values over all pairs by Holm's method.

    Whatever is printed in one table, or picked from, belongs into one family.

    Raises:
        UserError: the two of a pair are of different benchmarks, problems or seeds.
    """
    rows = list(pairs)
    differences = [result.minus(reference, len(rows)) for result, reference in rows]
    corrected = holm([1.0 if np.isnan(d.p) else d.p for d in differences])
    corrected = [float("nan") if np.isnan(d.p) else float(p) for d, p in zip(differences, corrected, strict=True)]
    return [Comparison(*row, d, p) for row, d, p in zip(rows, differences, corrected, strict=True)]


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else value

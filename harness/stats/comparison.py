"""Families of paired comparisons: the one place where Holm's correction is applied."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from harness.errors import UserError
from harness.stats.paired import PairedDifference, paired_difference
from harness.stats.tables import holm


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What one setting scored on one benchmark.

    `values` has a row for each of `units`, which are problems or seeds of a training: (units, samples), or (units,).
    `seeds` are those of the noise, where `values` holds samples.
    """

    label: str
    task: str
    units: tuple[Hashable, ...]
    values: np.ndarray
    seeds: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Return the number of samples a unit."""
        return self.values.shape[1] if self.values.ndim == 2 else 1

    @property
    def avg(self) -> float:
        """Return the mean over units, as a fraction."""
        return float(self.values.mean())


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
    rows = []
    for result, reference in pairs:
        if (result.task, result.units) != (reference.task, reference.units):
            raise UserError(
                f"{result.label} on {result.task} and {reference.label} on {reference.task} differ in their problems; "
                "a paired difference needs the same"
            )
        rows.append(Comparison(result, reference, paired_difference(result.values, reference.values), 1.0))
    corrected = holm([row.difference.p for row in rows])
    return [replace(row, holm_p=float(p)) for row, p in zip(rows, corrected, strict=True)]

"""Compute the scores of a training on its benchmarks: mean over seeds, gain over its base, difference from others."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from rlvr_dir.stats.clusters import difference_over_runs, score_over_runs
from rlvr_dir.stats.comparison import RunScores, borrowed_error
from rlvr_dir.stats.families import common_families
from rlvr_dir.stats.paired import PairedDifference

R = TypeVar("R", bound=RunScores)


@dataclass(frozen=True, eq=False)
class TrainingScores(Generic[R]):
    """Hold the scores of the seeds of one training, by benchmark, with those of the base that they were trained from.

    The base was sampled once, so its scores are the same for every seed. Summaries, sweeps and reports take means,
    pairs and differences from here. The pairs of one printed table belong in one call of `corrected`.

        scores.mean().low, mean_difference_over_runs(scores.beside_base()).mean, corrected(scores.beside(dapo))
    """

    runs: Mapping[str, R] = field(default_factory=dict)
    base: Mapping[str, RunScores] = field(default_factory=dict)

    def only(self, benchmarks: Collection[str]) -> "TrainingScores[R]":
        """Return the scores on some benchmarks."""
        return TrainingScores(
            {name: scores for name, scores in self.runs.items() if name in benchmarks},
            {name: scores for name, scores in self.base.items() if name in benchmarks},
        )

    def mean(self) -> PairedDifference:
        """Return the mean over seeds and benchmarks, with its interval for other problems and seeds. `p` is not
        defined."""
        every = self.runs.values()
        return score_over_runs([scores.runs for scores in every], families=[scores.families for scores in every])

    def beside_base(self) -> list[tuple[RunScores, RunScores]]:
        """Pair the scores with the base's, on the benchmarks that both have."""
        return [(scores, self.base[name]) for name, scores in self.runs.items() if name in self.base]

    def beside(self, other: "TrainingScores[R]") -> list[tuple[RunScores, RunScores]]:
        """Pair the scores with another training's, on the benchmarks that both have."""
        return [(scores, other.runs[name]) for name, scores in self.runs.items() if name in other.runs]


def mean_difference_over_runs(pairs: Sequence[tuple[RunScores, RunScores]]) -> PairedDifference:
    """Return the mean over benchmarks of the differences of the pairs, for other problems and seeds."""
    return difference_over_runs(
        [(result.runs, other.runs) for result, other in pairs],
        families=[common_families([result.families, other.families]) for result, other in pairs],
        other_seeds=borrowed_error(pairs),
    )


def seed_spread(trainings: Iterable[RunScores]) -> tuple[float, float] | None:
    """Return how much a seed changes the score of a training, with its degrees of freedom.

    It is the pooled standard deviation within trainings of several seeds on one benchmark. None if there are none.
    """
    several = [scores.values for scores in trainings if scores.values.size > 1]
    df = float(sum(values.size - 1 for values in several))
    squares = float(sum(np.square(values - values.mean()).sum() for values in several))
    return (float(np.sqrt(squares / df)), df) if df else None

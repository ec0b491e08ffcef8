"""What a sweep and its objective, which does the points, hand to each other: places, outcomes, confirmations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rlvr_dir import stats
from rlvr_dir.sweep.points import Point
from rlvr_dir.tracking import tracking_place


@dataclass(frozen=True)
class Places:
    """Where a sweep's files, the rollouts, the trainings and the MLflow runs go; `tracking` None logs nothing."""

    out: Path
    records: Path
    tracking: Path | str | None

    @classmethod
    def under(cls, out: Path, *, records: Path | None = None, track: bool = True) -> "Places":
        """Return the usual places in one folder; MLflow's is RLVR_DIR_TRACKING_URI where that is set."""
        return cls(out, records or out / "records", tracking_place(out, track=track))

    @property
    def trainings(self) -> Path:
        """Return the folder of trainings, which all sweeps under `out` share."""
        return self.out / "trainings"


@dataclass(frozen=True)
class Outcome:
    """What came of a point: its results and its metrics by name.

    `files` are those of the results in the sweep's folder, `seeds` the metrics of each seed of a training.
    """

    point: Point
    results: Sequence[Any]
    metrics: dict[str, float]
    files: tuple[str, ...] = ()
    seeds: dict[str, dict[str, float]] = field(default_factory=dict)


class Outcomes(Protocol):
    """Receives what came of each point, or why it failed."""

    def complete(self, outcome: Outcome) -> None:
        """Keep a point that is complete."""

    def fail(self, point: Point, reason: str) -> None:
        """Keep that a point failed."""


@dataclass(frozen=True)
class Confirmation:
    """The winner and a control on one benchmark, done again; `problems` says whether it was chosen on them."""

    winner: stats.Scores
    control: stats.Scores
    problems: str

"""What all trials of a sweep share, and what each kind of sweep does with them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from optuna.trial import FrozenTrial

from harness.report.sweep import SweepSummary
from harness.spec.search import Search
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point
from harness.sweep.track import SweepRun
from harness.sweep.trials import Asked, Trials
from harness.tracking import tracking_place

S = TypeVar("S", bound=Search)


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
class SweepContext(Generic[S]):
    """Objects shared by all trials of a sweep.

    `store` is what is never done twice: the folder of records, or of trainings. `on_complete` is told the point and the
    results of each trial that has been completed here.
    """

    spec: S
    trials: Trials
    folder: SweepFolder
    store: Path
    say: Callable[[str], None]
    on_complete: Callable[[Point, Sequence[Any]], None]
    progress: bool = True


class TrialRunner(ABC):
    """Plans what is to be tried and runs claimed trials; a context manager that ends what it has started."""

    at_once: int  # points that are claimed and run together

    @abstractmethod
    def plan(self, pair: str) -> None:
        """Enqueue what is known to be wanted of a pair: references, listed points, and points that were lost."""

    @abstractmethod
    def run(self, pair: str, batch: Sequence[Asked]) -> None:
        """Complete, prune or fail claimed trials of one pair."""

    @abstractmethod
    def close(self) -> None:
        """End what has been started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Estimate(Protocol):
    """What a sweep will cost."""

    @property
    def refusal(self) -> str | None:
        """Say why this machine cannot do what is missing, and what could; None where it can."""
        ...

    def text(self, *, points: bool) -> str:
        """Return it as a person reads it; `points` lists them one by one."""
        ...


@dataclass(frozen=True)
class SweepKind(Generic[S]):
    """What is particular to sweeps of decodings, or of trainings."""

    check: Callable[[S], None]  # refuses what cannot be run here, before anything loads
    store: Callable[[Places], Path]  # the folder of what is never done twice
    estimate: Callable[[S, Places, float | None], Estimate]  # what it will cost, at so many tokens a second
    runner: Callable[[SweepContext[S]], TrialRunner]
    # of a complete trial; None where one is missing
    results: Callable[[S, SweepFolder, FrozenTrial], Sequence[Any] | None]
    describe: Callable[[Point, Sequence[Any]], list[str]]  # what has just been completed, and its scores
    # with its 95 % interval, in one line; empty while there is none
    best_so_far: Callable[[S, Trials, SweepFolder], str]
    summarise: Callable[[S, Trials, SweepFolder], SweepSummary]  # of everything that is complete
    track: Callable[[S, Path | str | None], SweepRun]  # the sweep's run in MLflow
    confirm: Callable[..., str]  # re-evaluates the best point with fresh seeds: `harness.sweep.confirm.confirm`

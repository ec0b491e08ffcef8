"""A sweep that is run: its points, what is done of them, and what each kind of sweep does to complete one."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from harness.report.sweep import SweepSummary
from harness.spec.search import Search
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point, key, listed_points
from harness.sweep.study import Study
from harness.sweep.track import SweepRun
from harness.sweep.trials import Trial, Trials
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


class Estimate(Protocol):
    """What a sweep will cost."""

    @property
    def refusal(self) -> str | None:
        """Say why this machine cannot do what is missing, and what could; None where it can."""
        ...

    def text(self, *, points: bool) -> str:
        """Return it as a person reads it; `points` lists them one by one."""
        ...


class Sweep(ABC, Generic[S]):
    """A sweep of some kind. What is done of a point is held by records or trainings: doing it again costs nothing."""

    run_of: type[SweepRun] = SweepRun  # how it is logged to MLflow

    def __init__(self, spec: S, places: Places, say: Callable[[str], None] = print, *, progress: bool = False) -> None:
        self.spec, self.places, self.say, self.progress = spec, places, say, progress
        self.folder = SweepFolder.of(spec, places.out)
        self.study: Study | None = None
        self.on_complete: Callable[[Point, Sequence[Any]], None] = lambda point, results: None
        self.failures: Counter[str] = Counter()  # by point, in this process

    @cached_property
    def trials(self) -> Trials:
        """What is done, read when it is first asked for; raises DamagedError."""
        return Trials(self.spec, self.folder)

    # What a kind of sweep says ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def store(self) -> Path:
        """The folder of what is never done twice."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many points run together."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be run here, before anything loads; raises UserError."""

    @abstractmethod
    def estimate(self, speed: float | None = None) -> Estimate:
        """Estimate what is missing, at so many tokens a second."""

    @abstractmethod
    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return the references that belong to points, in the order in which they run."""

    @abstractmethod
    def run(self, points: Sequence[Point]) -> None:
        """Complete, prune or fail points and references of one pair; raises UserError."""

    @abstractmethod
    def results(self, trial: Trial) -> Sequence[Any] | None:
        """Return the results of a complete trial; None where a file of them is missing or damaged."""

    @abstractmethod
    def is_current(self, trial: Trial) -> bool:
        """Tell whether a complete trial's results are there, and of what is asked now; raises UserError."""

    @abstractmethod
    def describe(self, point: Point, results: Sequence[Any]) -> list[str]:
        """Say what a point is, and its scores."""

    @abstractmethod
    def best_so_far(self) -> str:
        """Say in a line which point is best, with its 95 % interval; empty where there is none."""

    @abstractmethod
    def summary(self) -> SweepSummary:
        """Return the summary of everything that is complete."""

    @abstractmethod
    def confirm(self, seeds: Sequence[int], tasks: Sequence[str] | None = None, *, limit: int | None = None) -> str:
        """Do the best point and its controls again with fresh seeds; return what is written of it."""

    def close(self) -> None:
        """End what has been started."""

    # What is left to do ----------------------------------------------------------------------------------------------

    def points(self) -> list[Point]:
        """Return the points that are known by now: those that are listed, or were proposed."""
        return listed_points(self.spec) or (self.study.proposed() if self.study is not None else [])

    def todo(self) -> list[Point]:
        """Return the references and points that are neither complete nor pruned, nor failed too often here."""
        points = self.points()
        wanted = {key(point): point for point in (*self.references(points), *points)}
        return [point for name, point in wanted.items() if not self._is_over(point) and not self._is_given_up(name)]

    def failed(self) -> list[Trial]:
        """Return the trials that failed and were not completed since."""
        return [trial for trial in self.trials if trial.state == "failed"]

    def _is_over(self, point: Point) -> bool:
        trial = self.trials.get(point)
        return trial is not None and trial.state != "failed"

    def _is_given_up(self, name: str) -> bool:
        return self.failures[name] > self.spec.retries

    # What has come out -----------------------------------------------------------------------------------------------

    def complete(
        self, point: Point, results: Sequence[Any], files: Sequence[str], metrics: dict[str, float], **about: Any
    ) -> None:
        """Keep a point that is complete, and tell whoever wants to know."""
        self._end(point, state="complete", results=tuple(files), metrics=metrics, about=about)
        self.on_complete(point, results)

    def prune(self, point: Point, **after: Any) -> None:
        """Keep that a point was ended early, and after what; it has no results and enters no table."""
        self._end(point, state="pruned", about={"after": after})

    def fail(self, point: Point, reason: str) -> None:
        """Keep that a point failed, and count it against its retries."""
        self.failures[key(point)] += 1
        self._end(point, state="failed", error=reason[:300])

    def _end(self, point: Point, **fields: Any) -> None:
        trial = Trial(point=point, number=self._number(point), **fields)
        if self.study is not None and not trial.is_reference:
            self.study.tell(trial)
        self.trials.write(trial)

    def _number(self, point: Point) -> int:
        proposed = None if self.study is None else self.study.number(point)
        if proposed is not None:
            return proposed
        every = self.points() if "reference" not in point else self.references(self.points())
        return next((n for n, each in enumerate(every) if key(each) == key(point)), 0)

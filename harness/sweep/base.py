"""A sweep: its file, its points, what is done of them, and what each kind of sweep does to complete one.

sweep = open_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from harness import stats
from harness.errors import UserError
from harness.report.sweep import CompleteTrial, SweepSummary
from harness.spec.search import Search
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point, key, listed_points
from harness.sweep.several import Cost
from harness.sweep.specs import KINDS, class_of
from harness.sweep.study import Study
from harness.sweep.track import SweepRun
from harness.sweep.trials import Trial, Trials
from harness.tracking import tracking_place

S = TypeVar("S", bound=Search)


def open_sweep(
    spec: Search, places: "Places", say: Callable[[str], None] = print, *, progress: bool = False
) -> "Sweep[Any]":
    """Return a sweep, whose models are not loaded yet."""
    return class_of(KINDS[spec.kind][1])(spec, places, say, progress=progress)


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
    def total(self) -> Cost:
        """Return what is left to do, at most."""
        ...

    def text(self, *, points: bool) -> str:
        """Return it as a person reads it; `points` lists them one by one."""
        ...


@dataclass(frozen=True)
class Again:
    """The winner and a control on one benchmark, done again; `problems` says whether it was chosen on them."""

    winner: stats.Scores
    control: stats.Scores
    problems: str


class Sweep(ABC, Generic[S]):
    """A sweep of some kind. What is done of a point is held by records or trainings: doing it again costs nothing."""

    def __init__(self, spec: S, places: Places, say: Callable[[str], None] = print, *, progress: bool = False) -> None:
        self.spec, self.places, self.say, self.progress = spec, places, say, progress
        self.folder = SweepFolder.of(spec, places.out)
        self.study: Study | None = None
        self.on_complete: Callable[[Point, Sequence[Any]], None] = lambda point, results: None
        self.failures: Counter[str] = Counter()  # by point, in this process
        self._known: tuple[dict[str, Point], dict[str, Point]] = {}, {}  # points, and their references, by key

    @cached_property
    def trials(self) -> Trials:
        """What is done, read when it is first asked for; raises DamagedError."""
        return Trials(self.spec, self.folder)

    # What a kind of sweep says

    @property
    @abstractmethod
    def store(self) -> Path:
        """The folder of what is never done twice."""

    @property
    @abstractmethod
    def seeds(self) -> Sequence[int]:
        """The seeds on which its points are compared."""

    @property
    def at_once(self) -> int:
        """How many points run together."""
        return 1

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be run here, before anything loads; raises UserError."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Estimate what is missing."""

    @abstractmethod
    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return the references that belong to points, in the order in which they run."""

    @abstractmethod
    def run(self, points: Sequence[Point]) -> None:
        """Complete or fail points and references of one pair; raises UserError."""

    @abstractmethod
    def results(self, trial: Trial) -> Sequence[Any] | None:
        """Return the results of a complete trial; None where a file of them is missing or damaged."""

    @abstractmethod
    def is_current(self, trial: Trial) -> bool:
        """Tell whether a complete trial's results are there, and of what is asked now; raises UserError."""

    @abstractmethod
    def entry(self, point: Point, results: Sequence[Any], number: int, metrics: dict[str, float]) -> CompleteTrial:
        """Return a point that is complete, with its label."""

    @abstractmethod
    def scores(self, entry: CompleteTrial) -> list[stats.Scores]:
        """Return what a point scored, a benchmark each."""

    @abstractmethod
    def summarise(self, entries: list[CompleteTrial], **told: Any) -> SweepSummary:
        """Return the summary of everything that is complete."""

    @abstractmethod
    def log(self, run: SweepRun, result: Any) -> None:
        """Log a result to MLflow under the sweep's run."""

    @abstractmethod
    def params(self) -> dict[str, str]:
        """Return what was asked, for people who look at the run."""

    @abstractmethod
    def again(
        self,
        best: CompleteTrial,
        made: Any,
        seeds: Sequence[int],
        tasks: Sequence[str] | None,
        limit: int | None,
        run: SweepRun,
    ) -> "Iterator[Again]":
        """Do the best point and its controls again with new seeds; yield each comparison to be made."""

    def close(self) -> None:
        """End what has been started."""

    # What can be said of it

    def describe(self, point: Point, results: Sequence[Any]) -> list[str]:
        """Say what a point is, and its scores."""
        entry = self.entry(point, results, 0, {})
        return [f"{entry.pair}: {entry.label}", *map(_told, self.scores(entry))]

    def best_so_far(self) -> str:
        """Say in a line which point is best, with its 95 % interval; empty where there is none."""
        if not (best := self.trials.best()) or not (results := self.results(best)):
            return ""
        entry = self.entry(best.point, results, 0, {})
        return f"best so far: {entry.label} {_told(self.scores(entry)[0])}"

    def summary(self) -> SweepSummary:
        """Return the summary of everything that is complete.

        Raises:
            UserError: results are missing.
        """
        entries = []
        for trial in self.trials.complete():
            if (results := self.results(trial)) is None:
                raise UserError(
                    f"results of trial {trial.number} are missing or damaged in {self.folder.path}; run the sweep "
                    "again, which makes them again from what is kept"
                )
            entries.append(self.entry(trial.point, results, trial.number, trial.metrics))
        best = [(trial.pair, trial.number) for pair in self.spec.pairs if (trial := self.trials.best(pair))]
        return self.summarise(
            entries,
            best=[entry for entry in entries if entry.point is not None and (entry.pair, entry.number) in best],
            states=self.trials.states(),
            failed=sum(trial.state == "failed" for trial in self.trials),
        )

    # What is left to do

    def points(self) -> list[Point]:
        """Return the points that are known by now: those that are listed, or were proposed."""
        return listed_points(self.spec) or (self.study.proposed() if self.study is not None else [])

    def todo(self) -> list[Point]:
        """Return the references and points that are not complete, and have not failed too often here."""
        points, references = self._wanted()
        wanted = {**references, **points}
        return [
            point
            for name, point in wanted.items()
            if ((trial := self.trials.get(point)) is None or trial.state == "failed")
            and self.failures[name] <= self.spec.retries
        ]

    def _wanted(self) -> tuple[dict[str, Point], dict[str, Point]]:
        """Return the points and the references by key; they are made again only where there are more points."""
        points = self.points()
        if len(points) != len(self._known[0]) or not points:
            references = self.references(points)
            self._known = {key(point): point for point in points}, {key(point): point for point in references}
        return self._known

    def failed(self) -> list[Trial]:
        """Return the trials that failed and were not completed since."""
        return [trial for trial in self.trials if trial.state == "failed"]

    # What has come out

    def complete(
        self, point: Point, results: Sequence[Any], files: Sequence[str], metrics: dict[str, float], **about: Any
    ) -> None:
        """Keep a point that is complete, and tell whoever wants to know; without its metric it has failed.

        A point that is drawn in another way may have fewer samples than the metric needs.
        """
        name = self.spec.metric.name
        if "sampling" not in point and not isfinite(metrics.get(name, nan)):
            self.fail(point, f"metric={name!r} has no finite value of {key(point)}")
            return
        self._end(point, state="complete", results=tuple(files), metrics=metrics, about=about)
        self.on_complete(point, results)

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
        points, references = self._wanted()
        names = [*(references if "reference" in point else points)]
        return names.index(key(point)) if key(point) in names else 0


def _told(scores: stats.Scores) -> str:
    return f"{scores.benchmark} {stats.Estimate(scores.avg, *scores.interval).text(1)}"

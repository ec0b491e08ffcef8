"""A sweep: its points, which of them are done, and what came of them.

sweep = open_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))
sweep.todo(), sweep.summary()

A point goes one way: from the list in the file, or from a search (`study.propose`), to the objective, which does it or
finds it in its store; its outcome is told to the study; the summary is made of the results of complete trials.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlvr_dir import stats
from rlvr_dir.config.search import Search
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import UserError
from rlvr_dir.report.sweep import SweepSummary
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Outcome, Places
from rlvr_dir.sweep.points import Point, key, listed_points
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.sweep.study import Study, Trial, has_metric

if TYPE_CHECKING:
    from rlvr_dir.sweep.decoding import DecodingObjective
    from rlvr_dir.sweep.training import TrainingObjective


class Sweep:
    """A sweep of decodings or of trainings. `objective` does its points, `study` lists what was tried.

    An objective keeps what it did in a store of its own, so that doing a point again costs nothing.
    """

    def __init__(
        self,
        spec: Any,
        places: Places,
        say: Callable[[str], None],
        objective: "DecodingObjective | TrainingObjective",
        *,
        worker: int = 0,
    ) -> None:
        self.spec, self.places, self.say, self.objective = spec, places, say, objective
        self.folder = SweepFolder.of(spec, places.out)
        self.study = Study(spec, self.folder, worker=worker)
        self.on_complete: Callable[[Outcome], None] = lambda outcome: None
        self.failures: Counter[str] = Counter()  # by point, in this process
        self._wanted: tuple[dict[str, Point], dict[str, Point]] = {}, {}  # points, and their references, by key

    # What is left to do

    def points(self) -> list[Point]:
        """Return the points that are known by now: those that are listed, or were proposed."""
        return listed_points(self.spec) or self.study.proposed()

    def todo(self) -> list[Point]:
        """Return the references and points that are not complete, and have not failed too often here."""
        points, references = self._points_and_references()
        return [
            point
            for name, point in {**references, **points}.items()
            if ((trial := self.study.get(point)) is None or trial.state == "failed")
            and self.failures[name] <= self.spec.retries
        ]

    def _points_and_references(self) -> tuple[dict[str, Point], dict[str, Point]]:
        """Return the points and the references by key; they are made again only where there are more points."""
        points = self.points()
        if len(points) != len(self._wanted[0]) or not points:
            references = self.objective.references(points)
            self._wanted = {key(point): point for point in points}, {key(point): point for point in references}
        return self._wanted

    # What came of a point

    def complete(self, outcome: Outcome) -> None:
        """Keep a point that is complete, and tell whoever wants to know; without its metric it has failed."""
        point, metrics = outcome.point, outcome.metrics
        if not has_metric(self.spec, point, metrics):
            self.fail(point, f"metric={self.spec.metric.name!r} has no finite value of {key(point)}")
            return
        facts: dict[str, Any] = {"metrics": metrics, "results": outcome.files, "seeds": outcome.seeds}
        self.study.tell(point, number=self._number(point), **facts)
        self.on_complete(outcome)

    def fail(self, point: Point, reason: str) -> None:
        """Keep that a point failed, and count it against its retries."""
        self.failures[key(point)] += 1
        self.study.tell(point, number=self._number(point), error=reason[:300])

    def invalidate(self, trial: Trial, reason: str) -> None:
        """Have a complete point be done again."""
        self.study.tell(trial.point, number=trial.number if trial.is_reference else None, error=reason)

    def _number(self, point: Point) -> int | None:
        """Return the place of a reference; that of a point is known to the study."""
        if "reference" not in point:
            return None
        names = [*self._points_and_references()[1]]
        return names.index(key(point)) if key(point) in names else 0

    # What can be said of it

    def describe(self, outcome: Outcome) -> list[str]:
        """Say what a point is, and its scores."""
        entry = self.objective.entry(outcome.point, outcome.results, 0, {})
        return [f"{entry.pair}: {entry.label}", *map(_score, entry.scores)]

    def best_so_far(self) -> str:
        """Say in a line which point is best, with its 95 % interval; empty where there is none."""
        if not (best := self.study.best()) or not (results := self.objective.results(best)):
            return ""
        entry = self.objective.entry(best.point, results, 0, {})
        return f"best so far: {entry.label} {_score(entry.scores[0])}"

    def summary(self) -> SweepSummary:
        """Return the summary of everything that is complete.

        Raises:
            UserError: results are missing.
        """
        entries = []
        for trial in self.study.complete():
            if (results := self.objective.results(trial)) is None:
                raise UserError(
                    f"results of trial {trial.number} are missing or damaged in {self.folder.path}; run the sweep "
                    "again, which makes them again from what is kept"
                )
            entries.append(self.objective.entry(trial.point, results, trial.number, trial.metrics))
        best = [(trial.pair, trial.number) for pair in self.spec.pairs if (trial := self.study.best(pair))]
        return self.objective.summary(
            entries,
            best=[entry for entry in entries if entry.point is not None and (entry.pair, entry.number) in best],
            states=self.study.states(),
            failed=len(self.study.failed()),
        )


def open_sweep(
    spec: Search, places: Places, say: Callable[[str], None] = print, *, progress: bool = False, worker: int = 0
) -> Sweep:
    """Return a sweep, whose models are not loaded yet; `worker` is the number of one of several processes."""
    if isinstance(spec, TrainingSweep):
        from rlvr_dir.sweep.training import TrainingObjective

        return Sweep(spec, places, say, TrainingObjective(spec, places, say), worker=worker)
    from rlvr_dir.sweep.decoding import DecodingObjective

    assert isinstance(spec, SweepSpec)
    return Sweep(spec, places, say, DecodingObjective(spec, places, say, progress=progress), worker=worker)


def _score(scores: stats.Scores) -> str:
    return f"{scores.benchmark} {stats.Estimate(scores.avg, *scores.interval).text(1)}"

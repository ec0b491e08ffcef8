"""Sweeps of trainings: one point after the other, each gone on with where it was interrupted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from harness.markdown import interval
from harness.report.sweep import CompleteTrial, TrainingSummary, unit_of
from harness.sweep.base import Sweep
from harness.sweep.metrics import check_metrics
from harness.sweep.points import Point
from harness.sweep.training.confirm import confirm
from harness.sweep.training.estimate import TrainingEstimate, estimate
from harness.sweep.training.spec import SHARED, TrainingSweep
from harness.sweep.training.summary import entry_of, summarise
from harness.sweep.training.track import TrainingSweepRun
from harness.sweep.training.trial import SeedResult, folder_of, metrics, seeds_of, train_seeds
from harness.sweep.trials import Trial
from harness.train.folder import TrainingFolder
from harness.train.run import TrainerError
from harness.train.spec import TrainSpec, check_machine
from harness.training import benchmarks, inputs


class _Pruned(Exception):
    """A point is clearly behind; `after` says when that was seen."""

    def __init__(self, **after: Any) -> None:
        super().__init__(str(after))
        self.after = after


class Trainings(Sweep[TrainingSweep]):
    """Trains one point after the other."""

    run_of = TrainingSweepRun

    @property
    def store(self) -> Path:
        """The folder of trainings."""
        return self.places.trainings

    @property
    def at_once(self) -> int:
        """One."""
        return 1

    def check(self) -> None:
        """Refuse metrics that a benchmark does not have, and what this machine cannot train; raises UserError."""
        plain = self.spec.plain_dapo
        tasks = benchmarks(plain, plain.validation.tasks)
        check_metrics(self.spec, tasks, 1, SHARED, means=True)  # no Pass@k but the one that is named
        check_machine(plain)

    def estimate(self, speed: float | None = None) -> TrainingEstimate:
        """Estimate from the trainings that are there."""
        return estimate(self.spec, self.places.out, speed=speed)

    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return plain DAPO, unless a point is just that."""
        among = any(self.spec.training(point).same == self.spec.plain_dapo.same for point in points)
        return [] if among else [{"pair": next(iter(self.spec.pairs)), "reference": {"method": "none"}}]

    def run(self, points: Sequence[Point]) -> None:
        """Train, or go on, and complete each point with its metrics and each seed's; or prune it.

        Raises:
            UserError: the machine cannot do it, or another process trains the same.
        """
        for point in points:
            training = self.spec.training(point)
            try:
                seeds = train_seeds(training, self.store, self.say, self._watch(point, training))
            except TrainerError as error:
                self.say(f"failed: {error}")
                self.fail(point, str(error))
            except _Pruned as pruned:
                self.prune(point, **pruned.after)
                self.say(f"pruned: {training.dapo.label}, {pruned}")
            else:
                by_seed = {str(each.seed): metrics(self.spec, each.scores) for each in seeds}
                first = next(iter(by_seed.values()))
                means = {name: fmean(values[name] for values in by_seed.values()) for name in first}
                files = [str(each.folder.done.relative_to(self.store)) for each in seeds]
                self.complete(point, seeds, files, means, seeds=by_seed)

    def _watch(self, point: Point, training: TrainSpec) -> Callable[[int, dict[str, Any]], None]:
        """Return what looks at each validation of a point, and raises `_Pruned`."""
        spec, steps, goal = self.spec, training.dapo.steps, self.spec.metric[0]

        def look(seed: int, record: dict[str, Any]) -> None:
            # What verl validates on the way has no lengths, and nothing is pruned by it.
            if not record.get("validation") or "reference" in point or training.backend != "trl":
                return
            step, value = record["step"], metrics(spec, record["validation"])[goal.name]
            if spec.pruner is None or step < spec.pruner.median.after or (seed, step) == (spec.seeds[-1], steps):
                return
            complete = self.trials.complete(references=False)
            others = [value for trial in complete for value in self._validations(trial, seed, step)]
            if len(others) < spec.pruner.median.startup:
                return
            if value < (middle := median(others)) if goal.goal == "maximize" else value > (middle := median(others)):
                raise _Pruned(seed=seed, step=step, value=value, median=middle)

        return look

    def _validations(self, trial: Trial, seed: int, step: int) -> Sequence[float]:
        """Return what a complete point had at that seed and step."""
        folder = TrainingFolder(folder_of(self.spec.training(trial.point), self.store)).seed(seed)
        found = [each for each in folder.records() if each.get("validation") and each["step"] == step]
        return [metrics(self.spec, each["validation"])[self.spec.metric[0].name] for each in found[-1:]]

    def results(self, trial: Trial) -> list[SeedResult] | None:
        """Return the seeds of a point."""
        return seeds_of(self.spec.training(trial.point), self.store)

    def is_current(self, trial: Trial) -> bool:
        """Tell whether all seeds are there.

        Raises:
            UserError: a file has other content now than when they were trained.
        """
        TrainingFolder(folder_of(self.spec.training(trial.point), self.store)).check(inputs(self.spec.plain_dapo))
        return self.results(trial) is not None

    def describe(self, point: Point, results: Sequence[SeedResult]) -> list[str]:
        """Say what a point is, and its scores."""
        entry = entry_of(point, results, 0, {})
        return [entry.label, *(_score(entry, task) for task in results[0].scores)]

    def best_so_far(self) -> str:
        """Say in a line which point is best."""
        if not (best := self.trials.best()) or (found := self.results(best[0])) is None:
            return ""
        entry = entry_of(best[0].point, found, 0, {})
        many = f"Pareto set of {len(best)}, first" if len(self.spec.metric) > 1 else "best so far"
        return f"{many}: {entry.label} {_score(entry, next(iter(found[0].scores)))}"

    def summary(self) -> TrainingSummary:
        """Return the summary of everything that is complete."""
        return summarise(self.spec, self.trials, self.folder)

    def confirm(self, seeds: Sequence[int], tasks: Sequence[str] | None = None, *, limit: int | None = None) -> str:
        """Train the best point and plain DAPO with fresh seeds."""
        return confirm(self, seeds, tasks, limit=limit)


def _score(entry: CompleteTrial, task: str) -> str:
    scores = entry.scores(task)
    unit, digits, _ = unit_of(scores)
    digits = 1 if unit == 100 else digits
    return f"{task} {unit * scores.avg:.{digits}f} {interval(*scores.interval, digits, unit=unit)}".rstrip()

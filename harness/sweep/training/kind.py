"""Sweeps of trainings: one trial after the other, each gone on with where it was interrupted."""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

from optuna.trial import FrozenTrial

from harness.markdown import interval
from harness.report.sweep import unit_of
from harness.report.sweep_training import CompleteTraining
from harness.sweep.context import Places, SweepContext, SweepKind, TrialRunner
from harness.sweep.folder import SweepFolder
from harness.sweep.metrics import check_metrics
from harness.sweep.points import Point, listed_points
from harness.sweep.training.confirm import confirm
from harness.sweep.training.estimate import TrainingEstimate, estimate
from harness.sweep.training.spec import SHARED, TrainingSweep
from harness.sweep.training.summary import entry_of, store_of, summarise
from harness.sweep.training.track import TrainingSweepRun
from harness.sweep.training.trial import SeedResult, folder_of, metrics, seeds_of, train_seeds
from harness.sweep.trials import Asked, Trials
from harness.train.backends import TrainerError
from harness.train.folder import TrainingFolder
from harness.train.spec import TrainSpec, check_machine
from harness.training import benchmarks, inputs


class _Pruned(Exception):
    """A point is clearly behind; `after` says when that was seen."""

    def __init__(self, **after: Any) -> None:
        super().__init__(str(after))
        self.after = after


class TrainingRunner(TrialRunner):
    """Trains one trial after the other."""

    at_once = 1

    def __init__(self, context: SweepContext[TrainingSweep]) -> None:
        self._context, self._spec = context, context.spec
        spec = self._spec
        self._listed = listed_points(spec)
        among = any(spec.training(point).same == spec.plain_dapo.same for point in self._listed)
        self._references = () if among else ({"pair": next(iter(spec.pairs)), "reference": {"method": "none"}},)

    def plan(self, pair: str) -> None:
        """Enqueue plain DAPO, unless a point is just that, the listed points, and points that were lost.

        Raises:
            UserError: a file has other content now than when a complete trial was trained.
        """
        trials = self._context.trials
        complete = (*trials.complete(trials.references), *trials.complete())
        now = inputs(self._spec.plain_dapo) if complete else {}  # a point changes none of them
        for trial in complete:
            TrainingFolder(folder_of(self._spec.training(trial.user_attrs["point"]), self._context.store)).check(now)
        lost = (point for point in trials.lost() if "reference" not in point)
        trials.ensure([*self._references, *self._listed, *lost])

    def close(self) -> None:
        """End nothing: a training ends by itself."""

    def run(self, pair: str, batch: Sequence[Asked]) -> None:
        """Train, or go on, and complete each trial with its metrics and each seed's; or prune it.

        Raises:
            UserError: the machine cannot do it, or another process trains the same.
        """
        for asked in batch:
            try:
                self._train(asked)
            except TrainerError as error:
                self._context.say(f"failed: {error}")
                self._context.trials.fail(asked, str(error), counted=True)

    def _train(self, asked: Asked) -> None:
        spec, trials, store = self._spec, self._context.trials, self._context.store
        training = spec.training(asked.point)
        try:
            seeds = train_seeds(training, store, self._context.say, self._watch(asked, training))
        except _Pruned as pruned:
            trials.prune(asked, **pruned.after)
            self._context.say(f"pruned: {training.dapo.label}, {pruned}")
            return
        by_seed = {str(each.seed): metrics(spec, each.scores) for each in seeds}
        means = {name: fmean(values[name] for values in by_seed.values()) for name in next(iter(by_seed.values()))}
        trials.finish(asked, [str(each.folder.done.relative_to(store)) for each in seeds], means, seeds=by_seed)
        self._context.on_complete(asked.point, seeds)

    def _watch(self, asked: Asked, training: TrainSpec) -> Callable[[int, dict[str, Any]], None]:
        """Return what looks at each validation of a point, and raises `_Pruned`."""
        spec, steps, goal = self._spec, training.dapo.steps, self._spec.metric[0]

        def look(seed: int, record: dict[str, Any]) -> None:
            # What verl validates on the way has no lengths, and nothing is pruned by it.
            if not record.get("validation") or asked.is_reference or training.backend != "trl":
                return
            step, value = record["step"], metrics(spec, record["validation"])[goal.name]
            asked.trial.report(value, spec.seeds.index(seed) * steps + step)
            if spec.pruner is None or step < spec.pruner.after or (seed, step) == (spec.seeds[-1], steps):
                return
            complete = self._context.trials.complete()
            others = [value for trial in complete for value in self._validations(trial, seed, step)]
            if len(others) < spec.pruner.startup:
                return
            if value < (middle := median(others)) if goal.goal == "maximize" else value > (middle := median(others)):
                raise _Pruned(seed=seed, step=step, value=value, median=middle)

        return look

    def _validations(self, trial: Any, seed: int, step: int) -> Sequence[float]:
        """Return what a complete point had at that seed and step."""
        training = self._spec.training(trial.user_attrs["point"])
        folder = TrainingFolder(folder_of(training, self._context.store)).seed(seed)
        found = [each for each in folder.records() if each.get("validation") and each["step"] == step]
        return [metrics(self._spec, each["validation"])[self._spec.metric[0].name] for each in found[-1:]]


def _check(spec: TrainingSweep) -> None:
    plain = spec.plain_dapo
    check_metrics(
        spec, benchmarks(plain, plain.validation.tasks), 1, SHARED, means=True
    )  # no Pass@k but the one that is named
    check_machine(spec.plain_dapo)


def _estimate(spec: TrainingSweep, places: Places, speed: float | None) -> TrainingEstimate:
    return estimate(spec, places.out, speed=speed)


def _results(spec: TrainingSweep, folder: SweepFolder, trial: FrozenTrial) -> list[SeedResult] | None:
    return seeds_of(spec.training(trial.user_attrs["point"]), store_of(folder))


def _describe(point: Point, results: Sequence[SeedResult]) -> list[str]:
    entry = entry_of(point, results, 0, {})
    return [entry.label, *(_score(entry, task) for task in results[0].scores)]


def _best_so_far(spec: TrainingSweep, trials: Trials, folder: SweepFolder) -> str:
    if not (best := trials.best()) or (found := _results(spec, folder, best[0])) is None:
        return ""
    entry = entry_of(best[0].user_attrs["point"], found, 0, {})
    many = f"Pareto set of {len(best)}, first" if len(spec.metric) > 1 else "best so far"
    return f"{many}: {entry.label} {_score(entry, next(iter(found[0].scores)))}"


def _score(entry: CompleteTraining, task: str) -> str:
    scores = entry.scores(task)
    unit, digits, _ = unit_of(scores)
    digits = 1 if unit == 100 else digits
    return f"{task} {unit * scores.avg:.{digits}f} {interval(*scores.interval, digits, unit=unit)}".rstrip()


TRAININGS = SweepKind(
    check=_check,
    store=lambda places: places.trainings,
    estimate=_estimate,
    runner=TrainingRunner,
    results=_results,
    describe=_describe,
    best_so_far=_best_so_far,
    summarise=summarise,
    track=TrainingSweepRun,
    confirm=confirm,
)

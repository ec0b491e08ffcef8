"""One trial of a sweep of trainings: all its seeds trained, or gone on with, and what their own files say of them."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from harness.sweep.bench import Bench
from harness.sweep.study import Asked
from harness.sweep.training.spec import TrainingSweep
from harness.train.folder import Folder as TrainingFolder
from harness.train.folder import SeedFolder
from harness.train.spec import TrainSpec

Scores = dict[str, dict[str, float]]  # by benchmark: avg, pass, tokens, ...


@dataclass(frozen=True, eq=False)
class SeedResult:
    """A finished seed of a training, as its files have it."""

    spec: TrainSpec
    seed: int
    folder: SeedFolder
    facts: dict[str, Any]

    @property
    def scores(self) -> Scores:
        """Of the trained model, by benchmark."""
        return self.facts["scores"]


class Pruned(Exception):
    """A point is clearly behind; `after` says when that was seen."""

    def __init__(self, **after: Any) -> None:
        super().__init__(str(after))
        self.after = after


def folder_of(spec: TrainSpec, store: Path) -> Path:
    """The folder of a training in a store: a name that can be read, and a digest of what was asked except the seeds.

    Only what differs from a default is in the digest, so that a new setting leaves the old trainings where they are.
    """
    asked = spec.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"})
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    return store / f"{spec.dapo.label.replace(' α', '-').replace(' ', '-')}-{digest}"


def seeds_of(spec: TrainSpec, store: Path) -> list[SeedResult] | None:
    """The results of all seeds of a training; None where one is not finished."""
    folder, found = TrainingFolder(folder_of(spec, store)), []
    for seed in spec.seeds:
        if (facts := folder.seed(seed).facts()) is None:
            return None
        found.append(SeedResult(spec, seed, folder.seed(seed), facts))
    return found


def train(bench: Bench, asked: Asked) -> None:
    """Finishes a claimed trial: COMPLETE with its metrics and each seed's, or PRUNED.

    Raises:
        UserError: the machine cannot do it, or another process trains the same.
    """
    spec: TrainingSweep = bench.spec
    training = spec.training(asked.point)
    try:
        seeds = train_seeds(training, bench.store, bench.say, _pruner(bench, asked, training))
    except Pruned as pruned:
        bench.book.prune(asked, **pruned.after)
        bench.say(f"pruned: {training.dapo.label}, {pruned}")
        return
    by_seed = {str(each.seed): metrics(spec, each.scores) for each in seeds}
    means = {name: fmean(values[name] for values in by_seed.values()) for name in spec.metrics}
    files = [str(each.folder.done.relative_to(bench.store)) for each in seeds]
    bench.book.finish(asked, files, means, seeds=by_seed)
    bench.on_finish(asked.point, seeds)


def train_seeds(
    training: TrainSpec,
    store: Path,
    say: Callable[[str], None],
    on_record: Callable[[int, dict[str, Any]], None] = lambda seed, record: None,
) -> list[SeedResult]:
    """Trains what is not trained yet of a training in the store; the results of its seeds."""
    from harness.training import run

    run(training, folder_of(training, store), bases=store / "bases", say=say, on_record=on_record)
    return seeds_of(training, store) or []


def metrics(spec: TrainingSweep, scores: Scores) -> dict[str, float]:
    """Every metric of a seed by its name in sweeps, shares as fractions: the unweighted mean over benchmarks."""
    names = dict(zip(spec.metrics, ("avg", "pass", "truncated", "tokens"), strict=True))
    return {name: fmean(score[field] for score in scores.values()) for name, field in names.items()}


def _pruner(bench: Bench, asked: Asked, training: TrainSpec) -> Callable[[int, dict[str, Any]], None]:
    """What looks at each validation of a point, and raises `Pruned`."""
    spec: TrainingSweep = bench.spec

    def look(seed: int, record: dict[str, Any]) -> None:
        if not record.get("validation") or asked.is_reference:
            return
        step, value = record["step"], metrics(spec, record["validation"])[spec.metrics[0]]
        steps = training.dapo.steps
        asked.trial.report(value, spec.seeds.index(seed) * steps + step)
        if spec.pruner is None or step < spec.pruner.after or (seed, step) == (spec.seeds[-1], steps):
            return
        others = [each for trial in bench.book.complete() for each in _validations(spec, bench, trial, seed, step)]
        if len(others) >= spec.pruner.startup and value < median(others):
            raise Pruned(seed=seed, step=step, value=value, median=median(others))

    return look


def _validations(spec: TrainingSweep, bench: Bench, trial: Any, seed: int, step: int) -> Sequence[float]:
    """What a complete point had at that seed and step."""
    folder = TrainingFolder(folder_of(spec.training(trial.user_attrs["point"]), bench.store)).seed(seed)
    found = [each for each in folder.records() if each.get("validation") and each["step"] == step]
    return [metrics(spec, each["validation"])[spec.metrics[0]] for each in found[-1:]]

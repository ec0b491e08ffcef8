"""The seeds of a training: trained, or gone on with, and what their own files say of them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.errors import UserError
from harness.sweep.training.spec import SHARED, TrainingSweep
from harness.train.folder import SeedFolder, TrainingFolder
from harness.train.run import ValidationScores
from harness.train.spec import TrainSpec


@dataclass(frozen=True, eq=False)
class SeedResult:
    """A finished seed of a training, as its files have it."""

    spec: TrainSpec
    seed: int
    folder: SeedFolder
    facts: dict[str, Any]

    @property
    def scores(self) -> ValidationScores:
        """Return the scores of the trained model, by benchmark."""
        return self.facts["scores"]


def folder_of(spec: TrainSpec, store: Path) -> Path:
    """Return the folder of a training in a store: a name to be read, and a digest of what was asked except the seeds.

    Only what differs from a default is in the digest, so that a new setting leaves the old trainings where they are.
    """
    asked = spec.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"})
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    return store / f"{spec.dapo.label.replace(' α', '-').replace(' ', '-')}-{digest}"


def seeds_of(spec: TrainSpec, store: Path) -> list[SeedResult] | None:
    """Return the results of all seeds of a training; None where one is not finished."""
    folder, found = TrainingFolder(folder_of(spec, store)), []
    for seed in spec.seeds:
        if (facts := folder.seed(seed).facts()) is None:
            return None
        found.append(SeedResult(spec, seed, folder.seed(seed), facts))
    return found


def train_seeds(
    training: TrainSpec,
    store: Path,
    say: Callable[[str], None],
    on_record: Callable[[int, dict[str, Any]], None] = lambda seed, record: None,
) -> list[SeedResult]:
    """Train what is not trained yet of a training in the store; the results of its seeds."""
    from harness.training import run

    run(training, folder_of(training, store), bases=store / "bases", say=say, on_record=on_record)
    return seeds_of(training, store) or []


def metrics(spec: TrainingSweep, scores: ValidationScores) -> dict[str, float]:
    """Return the metrics of a seed by their names in sweeps, which all benchmarks have: the unweighted mean over them.

    Ours are fractions, those of lm-eval's tasks in their own units.

    Raises:
        UserError: a task of lm-eval's has no number for each problem of a metric that the sweep goes by.
    """
    by_task: dict[str, dict[str, float]] = {}
    for subject, score in scores.items():
        own = score.get("metric")
        values = by_task.setdefault(subject.removesuffix(f" {own}"), {})
        values |= (
            {own: score["avg"]} if own else dict(zip(spec.metrics[:2], (score["avg"], score["pass"]), strict=True))
        )
        values |= dict(zip(SHARED, (score["truncated"], score["tokens"]), strict=True))
    asked = (*(metric.name for metric in spec.metric), *spec.constraints)
    for task, values in by_task.items():
        if lacking := [name for name in asked if name not in values]:
            raise UserError(
                f"metric={lacking[0]!r}: {task} has not a number for each problem; accepted: another metric"
            )
    names = [name for name in next(iter(by_task.values())) if all(name in values for values in by_task.values())]
    return {name: fmean(values[name] for values in by_task.values()) for name in names}

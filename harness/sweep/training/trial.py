"""The seeds of a training: trained, or gone on with, and what their own files say of them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.sweep.training.spec import TrainingSweep
from harness.train.backends import ValidationScores
from harness.train.folder import SeedFolder, TrainingFolder
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
    """Return every metric of a seed by its name in sweeps, shares as fractions: the unweighted mean over benchmarks."""
    names = dict(zip(spec.metrics, ("avg", "pass", "truncated", "tokens"), strict=True))
    return {name: fmean(score[field] for score in scores.values()) for name, field in names.items()}

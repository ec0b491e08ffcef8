"""Find the results of trainings in the folders that `rlvr-dir train` and sweeps of trainings write.

    for training in trainings_at(Path("runs/sweeps/tiny_reweight")):
        print(training.name, training.folder, training.seeds)

Only files are read; nothing here trains.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_dir.config import read_yaml
from rlvr_dir.config.stored import Count, Stored, Text, read_mapping
from rlvr_dir.errors import UserError
from rlvr_dir.results.result import EvalResult


@dataclass(frozen=True, slots=True)
class TrainingPlace:
    """Locate a training: its name (`low_prob α0.2`), its folder, and the selected seeds."""

    name: str
    folder: Path
    seeds: tuple[int, ...]

    @property
    def checkpoint(self) -> str:
        """Return which checkpoint is the trained model, as the training requested: `last`, a step, `best(TASK)`."""
        return str(_read_yaml(self.folder / "train.yaml").get("checkpoint", "last"))

    def results(self, seed: int) -> Path:
        """Return the folder of the results of a seed's last validation."""
        return self.folder / f"seed-{seed}" / "results"

    def log(self, seed: int) -> Path:
        """Return the log of a seed."""
        return self.folder / f"seed-{seed}" / "log.jsonl"


class EntryFile(Stored, frozen=True):
    """Store a training in the summary of a sweep."""

    label: Text
    folder: Text


class TrainingSweepFile(Stored, frozen=True):
    """Store what is read of the summary of a sweep of trainings."""

    seeds: tuple[Count, ...]
    entries: tuple[EntryFile, ...]


def trainings_at(place: Path) -> list[TrainingPlace]:
    """Return the training in this folder, or those of a sweep of trainings; empty if it is neither.

    Raises:
        UserError: It is a sweep of trainings without a summary, which is written at its end.
    """
    if (place / "train.yaml").is_file():
        name = str(read_json(place / "summary.json").get("label") or place.resolve().name)
        numbers = (folder.name.removeprefix("seed-") for folder in place.glob("seed-*"))
        return [TrainingPlace(name, place, tuple(sorted(int(number) for number in numbers if number.isdecimal())))]
    sweep = place.parent if place.name == "results" and not place.is_dir() else place
    if not (sweep / "sweep.yaml").is_file():
        return []
    summary = read_json(sweep / "summary.json")
    if not summary and _read_yaml(sweep / "sweep.yaml").get("kind") == "train":
        raise UserError(
            f"results: {str(sweep)!r} is a sweep of trainings without a summary yet", hint="Run it to its end"
        )
    if summary.get("kind") != "train":
        return []
    summary_file = TrainingSweepFile.from_plain(summary, sweep / "summary.json")
    store = sweep.resolve().parents[1] / "trainings"
    return [
        TrainingPlace(entry.label, store / Path(entry.folder).name, summary_file.seeds)
        for entry in summary_file.entries
    ]


def of_training(result: EvalResult) -> bool:
    """Return whether a result was read from the folder of its training."""
    return "training" in result.provenance


def called(result: EvalResult) -> str:
    """Return the name of the trained model of a result: its training's name, or the user's."""
    return str((result.provenance.get("training") or {"name": result.name})["name"])


def run_of(result: EvalResult) -> int | str:
    """Return which training of this name a result belongs to: its seed, if the path of the checkpoint contains it."""
    if training := result.provenance.get("training"):
        return int(training["seed"])
    rl = result.pair[1]
    seed = next((part for part in reversed(Path(rl).parts) if part.startswith("seed-")), "")
    return int(seed[5:]) if seed[5:].isdecimal() else rl


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one if there is none."""
    try:
        return read_mapping(file)
    except UserError:
        return {}


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        return read_yaml(file)
    except UserError:
        return {}

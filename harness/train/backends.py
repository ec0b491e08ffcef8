"""What a backend of training is given, what it does once the model is trained, and the choice of one.

    train(spec, Path("runs/train/x"), Source(base, problems), say=print)

What lies in rooms this one may not enter comes in as `Source`.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.files import make_folder
from harness.progress import phase
from harness.spec.decoding import Mode
from harness.train.card import write_card
from harness.train.folder import Inputs, SeedFolder, TrainingFolder, write_json

if TYPE_CHECKING:
    from harness.train.spec import TrainSpec

# By benchmark: avg, pass, tokens, ...; `right` counts the right samples of each problem. Of lm-eval's tasks by task and
# metric, which `metric` names: avg is its mean over problems, in its unit, `values` has each, and there is no pass.
ValidationScores = dict[str, dict[str, Any]]
# Of base, rl and mode; results are written into the folder, those of base beside those of RL. Without a folder RL is
# validated on the way, on the benchmarks that are watched.
Validate = Callable[[str, str, Mode, Path | None], ValidationScores]
Say = Callable[[str], None]
OnRecord = Callable[[int, dict[str, Any]], None]  # seed, a line of its log
OnProgress = Callable[[float, str], None]  # share done, what to show
OnSeed = Callable[[int, SeedFolder], None]  # seed, its finished folder

_BACKENDS = {"trl": "harness.train.run", "verl": "harness.train.verl.run"}


class TrainerError(Exception):
    """A trainer in a process of its own ended before it was done; one sentence, which says where its output is."""


@dataclass(frozen=True)
class Source:
    """Where a training starts: the base, the problems of a seed (rows of `prompt` and `answer`), and who validates.

    `watched` gives the problems of the benchmarks that are validated on the way, by name, for a trainer that draws them
    itself; their answers may be several. `inputs` identify the content of the files that all this is read from.
    """

    base: str
    problems: Callable[[int], list[dict[str, Any]]]
    validate: Validate | None = None
    inputs: Inputs = field(default_factory=dict)
    watched: Callable[[], dict[str, list[dict[str, Any]]]] = dict


def train(spec: "TrainSpec", out: Path, source: Source, **options: Any) -> dict[str, Any]:
    """Train by the spec's backend; everything else as `harness.train.run.run_training` has it."""
    with phase("starting"):
        backend = import_module(_BACKENDS[spec.backend])
    return backend.run_training(spec, out, source, **options)


def validate_base(spec: "TrainSpec", source: Source, folder: TrainingFolder, say: Say) -> None:
    """Validate the base, where that is asked for and not done."""
    if spec.validation.tasks and source.validate and not folder.base.is_file():
        say("validating the base")
        with phase("validating"):
            write_json(folder.base, source.validate(source.base, source.base, "base", None))


def conclude(
    spec: "TrainSpec",
    seed: int,
    folder: SeedFolder,
    source: Source,
    facts: Callable[[ValidationScores], dict[str, Any]],
    say: Say,
    keep: Callable[[dict[str, Any]], None],
) -> None:
    """Make a trained seed a finished one: validate it, write its pair and its card, and say that it is done."""
    scores: ValidationScores = {}
    if spec.validation.tasks and source.validate:
        say(f"seed {seed}: validating")
        make_folder(folder.results)
        with phase("validating"):
            scores = source.validate(source.base, str(folder.rl.resolve()), "rl", folder.results)
        last = {"step": folder.step(spec), "validation": scores}
        if last not in folder.records():
            keep(last)
    write_json(folder.pair, {"base": source.base, "rl": folder.rl.name})  # beside it, wherever the folder is moved
    found = {**facts(scores), "step": folder.step(spec)}
    write_card(folder.rl, found, folder.records())
    if not spec.keep_checkpoints:
        shutil.rmtree(folder.checkpoints)
    write_json(folder.done, found)

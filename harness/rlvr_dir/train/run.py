"""One training: every seed trained by its backend, validated and saved; a killed one resumes where it stopped.

    run_training(spec, Path("runs/train/x"), TrainingSource(base, problems), say=print)

The same call on the same folder finishes whatever was interrupted. What lies in rooms this one may not enter comes in
as `TrainingSource`; a backend is a class with `fit`.
"""

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rlvr_dir.checkpoints.weights import has_weights, rl_is_base, stored_tensors
from rlvr_dir.config.decoding import Mode
from rlvr_dir.files import make_folder
from rlvr_dir.progress import phase
from rlvr_dir.records.lock import Lock
from rlvr_dir.train.card import write_card
from rlvr_dir.train.folder import Inputs, SeedFolder, TrainingFolder, write_json
from rlvr_dir.train.forms import SummaryFile
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.spec import TrainSpec
from rlvr_dir.train.summary import taught_nothing, write_summary

# By benchmark: avg, pass, tokens, ...; `right` counts the right samples of each problem.
ValidationScores = dict[str, dict[str, Any]]
# Of base, rl and mode; results are written into the folder, those of base beside those of RL. Without a folder RL is
# validated on the way, on the benchmarks that are watched.
Validate = Callable[[str, str, Mode, Path | None], ValidationScores]
Say = Callable[[str], None]
OnRecord = Callable[[int, dict[str, Any]], None]  # seed, a line of its log
OnProgress = Callable[[float, str], None]  # share done, what to show
OnSeed = Callable[[int, SeedFolder], None]  # seed, its finished folder
Keep = Callable[[dict[str, Any]], None]  # writes a line of a seed's log, and tells of it


class TrainerError(Exception):
    """A trainer in a process of its own ended before it was done; one sentence, which says where its output is."""


@dataclass(frozen=True)
class TrainingSource:
    """Where a training starts: the base, the problems of a seed (rows of `prompt` and `answer`), and who validates.

    `watched` gives the problems of the benchmarks that are validated on the way, by name, for a trainer that draws them
    itself; their answers may be several. `inputs` identify the content of the files that all this is read from.
    """

    base: str
    problems: Callable[[int], list[dict[str, Any]]]
    validate: Validate | None = None
    inputs: Inputs = field(default_factory=dict)
    watched: Callable[[], dict[str, list[dict[str, Any]]]] = dict


class Backend(ABC):
    """Trains a base, one seed at a time. Made, it has checked all that can be known before anything loads."""

    spec: TrainSpec  # as it is trained here
    dapo: DapoSettings  # the same, as they fit the machine

    @abstractmethod
    def fit(self, seed: int, folder: SeedFolder, keep: Keep) -> None:
        """Train one seed, or go on with it, until its model is in `folder.rl`."""

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Return the `versions` that it runs, and on what `machine`."""

    def running(self) -> AbstractContextManager[None]:
        """Return what all seeds are trained within."""
        return nullcontext()


BACKENDS: dict[str, str] = {"trl": "rlvr_dir.train.trl:TrlBackend", "verl": "rlvr_dir.train.verl.run:VerlBackend"}


def run_training(
    spec: TrainSpec,
    out: Path,
    source: TrainingSource,
    *,
    against: Path | None = None,
    say: Say = print,
    on_record: OnRecord = lambda seed, record: None,
    on_seed: OnSeed = lambda seed, folder: None,
) -> SummaryFile:
    """Train what is not trained yet, write the summary over all seeds, and return it.

    Args:
        on_record: is called with each line of a log once it is written; what it raises ends the training, which can be
            gone on with.
        on_seed: is called with each of the spec's seeds that is finished, also of those that were before.

    Raises:
        UserError: the machine lacks something, the folder is another training's or in use, the data is too small, or
            nobody can say which of the base's files are its weights.
        TrainerError: a trainer in a process of its own crashed, hung or was killed.
    """
    if (folder_of_base := Path(source.base).expanduser()).is_dir() and has_weights(folder_of_base):
        stored_tensors(f"base={source.base!r}", folder_of_base)
    with phase("starting"):
        module, _, name = BACKENDS[spec.backend].partition(":")
        backend_class: Callable[..., Backend] = getattr(import_module(module), name)
    backend = backend_class(spec, out, source, say)
    make_folder(out)
    folder = TrainingFolder(out)
    lock = Lock(folder.lock, f"the training in {out}")
    try:
        settled = folder.create_or_verify(backend.spec, source.inputs)
        validated = source.validate if spec.validation.tasks else None
        with backend.running():
            if validated and not folder.base.is_file():
                say("validating the base")
                with phase("validating"):
                    write_json(folder.base, validated(source.base, source.base, "base", None))
            for seed in spec.seeds:
                seed_folder = folder.seed(seed)
                if seed_folder.facts():
                    say(f"seed {seed} is done")
                else:
                    _finish(backend, seed, seed_folder, source.base, validated, say, on_record)
                on_seed(seed, seed_folder)
        return write_summary(folder, settled, against)
    finally:
        lock.release()


def _finish(
    backend: Backend,
    seed: int,
    folder: SeedFolder,
    base: str,
    validated: Validate | None,
    say: Say,
    on_record: OnRecord,
) -> None:
    """Train a seed unless that is done, validate it, and write its pair, its card, and that it is done."""
    spec = backend.spec

    def keep(record: dict[str, Any]) -> None:
        folder.append(record)
        with phase("logging"):  # the first time MLflow's store is made
            on_record(seed, record)

    make_folder(folder.checkpoints)
    if not folder.rl.is_dir():
        backend.fit(seed, folder, keep)
    scores: ValidationScores = {}
    if validated:
        say(f"seed {seed}: validating")
        make_folder(folder.results)
        with phase("validating"):
            scores = validated(base, str(folder.rl.resolve()), "rl", folder.results)
        last = {"step": folder.step(spec), "validation": scores}
        if last not in folder.records():
            keep(last)
    write_json(folder.pair, {"base": base, "rl": folder.rl.name})  # beside it, wherever the folder is moved
    steps = [record for record in folder.records() if "validation" not in record]
    weighing = [record["reweighting_seconds"] for record in steps if "reweighting_seconds" in record]
    facts = {
        "base": base,
        "seed": seed,
        "step": folder.step(spec),
        "dapo": backend.dapo.replace(seed=seed).model_dump(),
        "training": spec.model_dump(mode="json", exclude={"dapo", "seeds"}),
        "scores": scores,
        "accuracy": [record["accuracy"] for record in steps],
        "length": [record["length"] for record in steps],
        "seconds": round(sum(record["seconds"] or 0.0 for record in steps), 1),
        "reweighting_seconds": round(sum(weighing), 3) if weighing else None,  # verl's happens inside its own work
        **backend.provenance(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(sys.argv),
    }
    untaught = [record for record in steps if record["groups"]["dropped"] and not record["groups"]["kept"]]
    if untaught:
        say(f"warning: seed {seed}: {taught_nothing(len(untaught), len(steps))}")
    if rl_is_base(base, folder.rl):
        say(f"warning: seed {seed}: RL's weights are base's: nothing was learned, and a pair of the two says nothing")
    write_card(folder.rl, facts, folder.records())
    if not spec.keep_checkpoints:
        shutil.rmtree(folder.checkpoints)
    write_json(folder.done, facts)

"""Train, validate and save every seed of a training with its backend, and resume a killed one where it stopped.

    run_training(spec, Path("runs/train/x"), TrainingSource(base, problems), say=print)

The same call on the same folder finishes what was interrupted. `TrainingSource` contains what comes from rooms that
this one does not import. A backend is a class with `fit`.
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
from rlvr_dir.train.schemas import SummaryFile
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.spec import TrainSpec
from rlvr_dir.train.summary import taught_nothing, write_summary

# # By benchmark: avg, pass, tokens, ...; `right` counts the right samples of each problem.
ValidationScores = dict[str, dict[str, Any]]
# # Arguments: base, rl and mode. Results are written into the folder, base's beside RL's. Without a folder, RL is
# validated during the training, on the benchmarks that are watched.
Validate = Callable[[str, str, Mode, Path | None], ValidationScores]
Say = Callable[[str], None]
OnRecord = Callable[[int, dict[str, Any]], None]  # # seed, a line of its log
OnProgress = Callable[[float, str], None]  # # fraction done, text to show
OnSeed = Callable[[int, SeedFolder], None]  # # seed, its finished folder
Keep = Callable[[dict[str, Any]], None]  # # writes a line of a seed's log and reports it


class TrainerError(Exception):
    """A trainer's process ended before the training was finished. The message says where its output is."""


@dataclass(frozen=True)
class TrainingSource:
    """Hold what a training needs: its base, the problems of a seed (rows of `prompt` and `answer`), and its validator.

    `watched` gives the problems of the benchmarks that are validated during the training, by name, for a trainer that
    generates responses to them itself. They may have several answers. `inputs` identify the content of the files that
    all this is read from.
    """

    base: str
    problems: Callable[[int], list[dict[str, Any]]]
    validate: Validate | None = None
    inputs: Inputs = field(default_factory=dict)
    watched: Callable[[], dict[str, list[dict[str, Any]]]] = dict


class Backend(ABC):
    """Train a base, one seed at a time. The constructor checks everything that can be checked before anything loads."""

    spec: TrainSpec  # # with the settings of this run
    dapo: DapoSettings  # # the same, as they fit the machine

    @abstractmethod
    def fit(self, seed: int, folder: SeedFolder, keep: Keep) -> None:
        """Train one seed, or resume it, until its model is in `folder.rl`."""

    @abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Return the `versions` of the libraries, and the `machine`."""

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which all seeds are trained."""
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
    """Train what is not trained yet, write the summary of all seeds, and return it.

    Args:
        on_record: It is called with each line of a log once it is written. An exception ends the training, which can be
            resumed.
        on_seed: It is called with each of the spec's seeds that is finished, including those finished before.

    Raises:
        UserError: The machine is unsuitable, the folder belongs to another training or is in use, there are too few
            problems, or it is not clear which of the base's files are its weights.
        TrainerError: A trainer's own process crashed, hung or was killed.
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
                if seed_folder.outcome():
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
    """Train a seed unless it is finished, validate it, and write its pair, its card and its outcome."""
    spec = backend.spec

    def keep(record: dict[str, Any]) -> None:
        folder.append(record)
        with phase("logging"):  # # the first call creates MLflow's store
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
    write_json(folder.pair, {"base": base, "rl": folder.rl.name})  # # relative, so the folder can be moved
    steps = [record for record in folder.records() if "validation" not in record]
    weighing = [record["reweighting_seconds"] for record in steps if "reweighting_seconds" in record]
    outcome = {
        "base": base,
        "seed": seed,
        "step": folder.step(spec),
        "dapo": backend.dapo.replace(seed=seed).model_dump(),
        "training": spec.model_dump(mode="json", exclude={"dapo", "seeds"}),
        "scores": scores,
        "accuracy": [record["accuracy"] for record in steps],
        "length": [record["length"] for record in steps],
        "seconds": round(sum(record["seconds"] or 0.0 for record in steps), 1),
        "reweighting_seconds": round(sum(weighing), 3) if weighing else None,  # # verl reweights inside its own steps
        **backend.provenance(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(sys.argv),
    }
    untaught = [record for record in steps if record["groups"]["dropped"] and not record["groups"]["kept"]]
    if untaught:
        say(f"warning: seed {seed}: {taught_nothing(len(untaught), len(steps))}")
    if rl_is_base(base, folder.rl):
        say(f"warning: seed {seed}: RL's weights equal base's, so nothing was learned, and nothing can be compared")
    write_card(folder.rl, outcome, folder.records())
    if not spec.keep_checkpoints:
        shutil.rmtree(folder.checkpoints)
    write_json(folder.done, outcome)

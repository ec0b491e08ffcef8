"""Read and write a training's folder: its settings, and the results of each seed. No file in it is ever half-written.

train.yaml               the training, with all settings; another training in this folder is an error
inputs.json              digests of the files it reads; changed files are an error
base.json                validation of the base
records/                 rollouts of validations, in the format of `rlvr-dir eval`
seed-0/log.jsonl         one line per step, and one line per validation
seed-0/checkpoints/      the last complete one; deleted when the seed is finished
seed-0/chosen/           models that may be the trained one, by step, if that is not the last; deleted as well
seed-0/checkpoint.json   the step of the trained model, if that is not the last
seed-0/rl/               the trained model, with its card
seed-0/pair.json         base and rl, for `rlvr-dir eval`
seed-0/done.json         outcome of the finished seed
summary.md, summary.json over the seeds
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlvr_dir.config import read_yaml
from rlvr_dir.config.stored import Stored, parse_json, read_json, read_mapping
from rlvr_dir.errors import UserError
from rlvr_dir.files import disk_error, make_folder, sync_folder, write_file
from rlvr_dir.train.schemas import CheckpointMark, ChosenStep, Input, LogLine, ScoreFile, SeedFile
from rlvr_dir.train.spec import TrainSpec, load_train, plain

MARK = "rlvr_dir.json"  # # written last: a checkpoint without it is incomplete


Inputs = Mapping[str, Input]  # # by the training's key that names it


class TrainingFolder:
    """Read and write the files of one training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.lock, self.base = path / "train.yaml", path / "lock", path / "base.json"
        self.read = path / "inputs.json"

    @property
    def inputs(self) -> Inputs:
        """Return the inputs with which the training was begun; empty if they are not known."""
        if not self.read.is_file():
            return {}
        return {name: Input.from_plain(row, self.read) for name, row in read_mapping(self.read).items()}

    @property
    def base_scores(self) -> dict[str, Any]:
        """Return the base's validation by benchmark; empty if there was none."""
        scores = read_mapping(self.base) if self.base.is_file() else {}
        for task, score in scores.items():
            ScoreFile.from_plain(score, f"{self.base}: {task}")
        return scores

    def check(self, inputs: Inputs) -> None:
        """Check that the content of the inputs has not changed since the training was begun.

        Raises:
            UserError: An input has changed; the error names the file and both digests.
        """
        for name, before in self.inputs.items():
            now = inputs.get(name, before)
            if now.digest != before.digest:
                raise UserError(
                    f"{name}: the content of {now.file} has changed since {self.path} was begun: it is {now.digest} "
                    f"and was {before.digest}",
                    hint="Undo the change, or choose another --out.",
                )

    def create_or_verify(self, spec: TrainSpec, inputs: Inputs) -> TrainSpec:
        """Write the training's settings, or compare them with the stored ones. Return it with all seeds, old and new.

        Raises:
            UserError: The folder belongs to another training, or was begun with other content of the inputs.
        """
        stored = self.stored()
        if stored is not None:
            if stored.same != spec.same:
                name, begun_with, asked_for = next(_differences(plain(stored.same), plain(spec.same)))
                raise UserError(
                    f"differs from the training in {self.path}",
                    argument=name,
                    value=asked_for,
                    accepted=repr(begun_with),
                    hint="Or choose another --out.",
                )
            self.check(inputs)
            spec = spec.model_copy(update={"seeds": tuple(dict.fromkeys([*stored.seeds, *spec.seeds]))})
        write_file(self.spec, yaml.safe_dump(plain(spec), sort_keys=False, allow_unicode=True).encode())
        write_json(self.read, {name: read.model_dump() for name, read in {**inputs, **self.inputs}.items()})
        return spec

    def stored(self) -> TrainSpec | None:
        """Read the training to which this folder belongs; None for a new folder."""
        return load_train(read_yaml(self.spec)) if self.spec.is_file() else None

    def seed(self, seed: int) -> "SeedFolder":
        """Return the part of one seed."""
        return SeedFolder(self.path / f"seed-{seed}")


class SeedFolder:
    """Read and write the files of one seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log, self.checkpoints, self.results = path / "log.jsonl", path / "checkpoints", path / "results"
        self.rl, self.pair, self.done = path / "rl", path / "pair.json", path / "done.json"
        self.chosen, self.choice = path / "chosen", path / "checkpoint.json"

    def outcome(self) -> dict[str, Any] | None:
        """Read `done.json`, the outcome of a finished seed; None before it is finished."""
        return read_checked(self.done, SeedFile) if self.done.is_file() else None

    def last_checkpoint(self) -> tuple[int, Path, list[Any]] | None:
        """Return step, folder and trainer state of the newest complete checkpoint; delete incomplete ones."""
        checkpoints = []
        for path in self.checkpoints.glob("checkpoint-*"):
            if (path / MARK).is_file():
                mark = CheckpointMark.from_file(path / MARK)
                checkpoints.append((mark.step, path, mark.state))
            else:
                shutil.rmtree(path)
        return max(checkpoints, default=None, key=lambda checkpoint: checkpoint[0])

    def complete(self, path: Path, step: int, state: list[Any], *, keep: bool) -> None:
        """Mark a checkpoint as complete once all of it is on the disk. Then delete older ones, unless `keep` is
        true."""
        for file in path.iterdir():
            with file.open("rb") as open_file:
                os.fsync(open_file.fileno())
        write_file(path / MARK, json.dumps(CheckpointMark(step=step, state=state).model_dump()).encode())
        sync_folder(path.parent)
        for other in path.parent.glob("checkpoint-*") if not keep else ():
            if other != path:
                (other / MARK).unlink(missing_ok=True)
                shutil.rmtree(other)

    def prune_chosen(self, spec: TrainSpec, step: int, *, resumed: bool = False) -> None:
        """Delete models that can no longer become the trained one, up to a step whose checkpoint is safe.

        Only the best of them stays. Later ones stay too, unless the training is `resumed` at that step and makes them
        again.
        """
        steps = self.kept_steps()
        before = [kept for kept in steps if kept <= step]
        best = chosen_step(spec, [record for record in self.records() if record["step"] <= step], before)
        for kept in steps:
            if kept != best and (kept <= step or resumed):
                shutil.rmtree(self.chosen / str(kept))

    def kept_steps(self) -> list[int]:
        """Return the steps whose models are stored and may become the trained one."""
        return sorted(int(path.name) for path in self.chosen.glob("*") if path.name.isdecimal())

    def publish(self, spec: TrainSpec, step: int, model: Path) -> None:
        """Make a step's model the trained one, and write its step to a file."""
        if spec.checkpoint != "last":
            write_json(self.choice, ChosenStep(checkpoint=spec.checkpoint, step=step).model_dump())
        os.replace(model, self.rl)
        shutil.rmtree(self.chosen, ignore_errors=True)

    def step(self, spec: TrainSpec) -> int:
        """Return the trained model's step."""
        return ChosenStep.from_file(self.choice).step if self.choice.is_file() else spec.dapo.steps

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to the log.

        Raises:
            UserError: The file system does not allow it.
        """
        try:
            with self.log.open("a") as log:
                log.write(json.dumps(record) + "\n")
        except OSError as error:
            raise disk_error(error, self.log, "the last checkpoint is safe") from None

    def trim(self, step: int) -> None:
        """Remove the lines after a step, which are written again, and a line that is incomplete."""
        if self.log.is_file():
            lines = [json.dumps(record) + "\n" for record in self.records() if record["step"] <= step]
            write_file(self.log, "".join(lines))

    def records(self) -> list[dict[str, Any]]:
        """Read the lines of the log, except for a last one that is incomplete because its process ended.

        Raises:
            DamagedError: Another line is not a line of a log.
        """
        records, lines = [], self.log.read_bytes().split(b"\n") if self.log.is_file() else [b""]
        for number, line in enumerate(lines[:-1], 1):
            records.append(parse_json(line, where := f"{self.log} line {number}"))
            LogLine.from_plain(records[-1], where)
        return records


def chosen_step(spec: TrainSpec, records: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> int | None:
    """Return which of some steps the trained model is from, by `spec.checkpoint` and the validations in a log.

    If several validations are equally good, it is the first. It is None if no step qualifies.
    """
    if isinstance(spec.checkpoint, int):
        return spec.checkpoint if spec.checkpoint in steps else None
    if spec.chosen_by is None:
        return max(steps, default=None)
    scores: dict[int, float] = {}
    for record in records:
        score = (record.get("validation") or {}).get(spec.chosen_by)
        if score is not None and record["step"] in steps:
            scores[record["step"]] = score["avg"]
    return max(sorted(scores), key=lambda step: scores[step], default=None)


def read_checked(path: Path, schema: type[Stored]) -> dict[str, Any]:
    """Read a JSON file of the training as plain values, and check them.

    Raises:
        DamagedError: The file does not have this schema.
    """
    schema.from_plain(data := read_json(path), path)
    return data


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file as a whole or not at all."""
    make_folder(path.parent)
    write_file(path, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, before, now

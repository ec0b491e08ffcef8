"""A training's folder: what was asked, and for each seed what came out. Nothing in it is ever half a file.

train.yaml               the training, everything said; another one in this folder is refused
inputs.json              digests of the files it reads; changed ones are refused
base.json                validation of the base
records/                 rollouts of validations, as `rlvr-dir eval` keeps them
seed-0/log.jsonl         a line a step, and a line a validation
seed-0/checkpoints/      the last complete one; gone when the seed is done
seed-0/chosen/           models that may be the trained one, by step, where that is not the last; gone as well
seed-0/checkpoint.json   the step of the trained model, where that is not the last
seed-0/rl/               the trained model, with its card
seed-0/pair.json         base and rl: `rlvr-dir eval` takes them
seed-0/done.json         facts of the finished seed
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
from rlvr_dir.train.forms import CheckpointMark, ChosenStep, Input, LogLine, ScoreFile, SeedFile
from rlvr_dir.train.spec import TrainSpec, load_train, plain

MARK = "rlvr_dir.json"  # written last: a checkpoint without it is half a one


Inputs = Mapping[str, Input]  # by the key of the training that names it


class TrainingFolder:
    """The files of one training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.lock, self.base = path / "train.yaml", path / "lock", path / "base.json"
        self.read = path / "inputs.json"

    @property
    def inputs(self) -> Inputs:
        """Return what the training was begun with; nothing where that is not known."""
        if not self.read.is_file():
            return {}
        return {name: Input.from_plain(row, self.read) for name, row in read_mapping(self.read).items()}

    @property
    def base_scores(self) -> dict[str, Any]:
        """Return the validation of the base by benchmark; nothing where there was none."""
        scores = read_mapping(self.base) if self.base.is_file() else {}
        for task, score in scores.items():
            ScoreFile.from_plain(score, f"{self.base}: {task}")
        return scores

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs whose content has changed since the training was begun.

        Raises:
            UserError: naming the file and both digests.
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
        """Write the training down, or check it against the one that is; return the one with all seeds, old and new.

        Raises:
            UserError: the folder belongs to another training, or was begun with other content of the inputs.
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
        """Read the training this folder belongs to; None for a new one."""
        return load_train(read_yaml(self.spec)) if self.spec.is_file() else None

    def seed(self, seed: int) -> "SeedFolder":
        """Return the part of one seed."""
        return SeedFolder(self.path / f"seed-{seed}")


class SeedFolder:
    """The files of one seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log, self.checkpoints, self.results = path / "log.jsonl", path / "checkpoints", path / "results"
        self.rl, self.pair, self.done = path / "rl", path / "pair.json", path / "done.json"
        self.chosen, self.choice = path / "chosen", path / "checkpoint.json"

    def facts(self) -> dict[str, Any] | None:
        """Read what is known of the seed when it is finished; None before."""
        return read_form(self.done, SeedFile) if self.done.is_file() else None

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
        """Mark a checkpoint as whole once all of it is on the disk; then delete older ones, unless they are kept."""
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
        """Keep of the models that may be the trained one the best up to a step, whose checkpoint is safe now.

        Later ones are kept too, unless the training is `resumed` at that step and makes them again.
        """
        steps = self.kept_steps()
        before = [kept for kept in steps if kept <= step]
        best = chosen_step(spec, [record for record in self.records() if record["step"] <= step], before)
        for kept in steps:
            if kept != best and (kept <= step or resumed):
                shutil.rmtree(self.chosen / str(kept))

    def kept_steps(self) -> list[int]:
        """Return the steps whose models are kept and may be the trained one."""
        return sorted(int(path.name) for path in self.chosen.glob("*") if path.name.isdecimal())

    def publish(self, spec: TrainSpec, step: int, model: Path) -> None:
        """Make a step's model the trained one, and write down which it is."""
        if spec.checkpoint != "last":
            write_json(self.choice, ChosenStep(checkpoint=spec.checkpoint, step=step).model_dump())
        os.replace(model, self.rl)
        shutil.rmtree(self.chosen, ignore_errors=True)

    def step(self, spec: TrainSpec) -> int:
        """Return which step's model the trained one is."""
        return ChosenStep.from_file(self.choice).step if self.choice.is_file() else spec.dapo.steps

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to the log.

        Raises:
            UserError: the file system refused.
        """
        try:
            with self.log.open("a") as log:
                log.write(json.dumps(record) + "\n")
        except OSError as error:
            raise disk_error(error, self.log, "the last checkpoint is safe") from None

    def trim(self, step: int) -> None:
        """Forget the lines after a step: they are written again. A line that was cut short goes too."""
        if self.log.is_file():
            lines = [json.dumps(record) + "\n" for record in self.records() if record["step"] <= step]
            write_file(self.log, "".join(lines))

    def records(self) -> list[dict[str, Any]]:
        """Read the lines of the log; a last one that was cut short, as its process ended, is left out.

        Raises:
            DamagedError: another line is none of a log.
        """
        records, lines = [], self.log.read_bytes().split(b"\n") if self.log.is_file() else [b""]
        for number, line in enumerate(lines[:-1], 1):
            records.append(parse_json(line, where := f"{self.log} line {number}"))
            LogLine.from_plain(records[-1], where)
        return records


def chosen_step(spec: TrainSpec, records: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> int | None:
    """Return which of some steps is the trained model's as `spec.checkpoint` says, by the validations in a log.

    Of equally good validations it is the first. None where none of the steps can be it.
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


def read_form(path: Path, form: type[Stored]) -> dict[str, Any]:
    """Read a JSON file of the training as plain values, checked.

    Raises:
        DamagedError: it is not one of that form.
    """
    form.from_plain(data := read_json(path), path)
    return data


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file, whole or not at all."""
    make_folder(path.parent)
    write_file(path, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, before, now

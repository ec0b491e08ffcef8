"""A training through verl: every seed checked, launched, followed, merged and saved; a killed one goes on.

    run_training(spec, Path("runs/train/x"), Source(base, problems), say=print)

The same folder and the same lines of log as with TRL, and in each seed's:

verl/overrides.txt       verl's arguments, a line each
verl/train.jsonl         the problems, as verl reads them
verl/log-N.jsonl         what verl logged in its N-th run, verl/output-N.txt what it printed
checkpoints/             verl's own; what a run goes on from
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
from harness.errors import UserError
from harness.files import make_folder, write_file
from harness.progress import Bar, phase
from harness.records.lock import Lock
from harness.train.backends import (
    OnRecord,
    OnSeed,
    Say,
    Source,
    TrainerError,
    ValidationScores,
    conclude,
    validate_base,
)
from harness.train.data import read_problems
from harness.train.folder import SeedFolder, TrainingFolder, chosen_step
from harness.train.spec import TrainSpec
from harness.train.summary import write_summary
from harness.train.verl import data, log
from harness.train.verl.context import check_context
from harness.train.verl.overrides import Line, Place, environment, overrides
from harness.train.verl.process import Child, Hung, Interrupts, follow
from harness.train.verl.spec import Verl
from harness.train.verl.validate import Checked, interpreter, validate

_NOISE = re.compile(r"(?:\x1b\[[0-9;]*m)+|^\((?:[\w.]+ )?pid=[^)]*\)\s*")  # colours; then Ray's name of a worker
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Killed)\b.*")


def run_training(
    spec: TrainSpec,
    out: Path,
    source: Source,
    *,
    against: Path | None = None,
    say: Say = print,
    on_record: OnRecord = lambda seed, record: None,
    on_seed: OnSeed = lambda seed, folder: None,
) -> dict[str, Any]:
    """Train what is not trained yet, write the summary over all seeds, and return it.

    Args:
        on_record: is told of each line of a log once it is written; what it raises ends verl, and the training can be
            gone on with.
        on_seed: is told of each of the spec's seeds that is finished, also of those that were before.

    Raises:
        UserError: verl's environment lacks something, an argument does not fit, the base has too few positions, the
            folder is another training's or in use, or the data is too small.
        TrainerError: verl crashed, hung or was killed.
    """
    lines = {seed: arguments(spec, seed, out, source.base) for seed in spec.seeds}
    check_context(spec, source.base)
    checked = checked_for_training(spec, lines[spec.seeds[0]])
    problems = {seed: data.rows(source.problems(seed), spec, spec.data) for seed in spec.seeds}
    watched = _watched(spec, source)
    make_folder(out)
    folder = TrainingFolder(out)
    lock = Lock(folder.lock, f"the training in {out}")
    try:
        asked, spec = spec.seeds, folder.settle(spec, source.inputs)
        validate_base(spec, source, folder, say)
        for seed in asked:
            run = _Run(spec, seed, folder.seed(seed), source, checked, say, on_record)
            run.finish(problems[seed], watched)
            on_seed(seed, run.folder)
        return write_summary(folder, spec, against)
    finally:
        lock.release()


def _watched(spec: TrainSpec, source: Source) -> dict[str, list[dict[str, Any]]]:
    """Return what verl validates on: `verl.val_data`, or the benchmarks that are watched."""
    if not spec.validation.every:
        return {}
    if val := spec.verl and spec.verl.val_data:
        return {Path(val).stem: data.rows(read_problems(val, spec), spec, val, least=1)}
    return source.watched()


def arguments(
    spec: TrainSpec, seed: int, out: Path, base: str, attempt: int = 1, *, val_first: bool = True
) -> list[Line]:
    """Return verl's arguments for one seed of a training in `out`.

    Raises:
        UserError: what `overrides` refuses.
    """
    folder = SeedFolder(out.resolve() / f"seed-{seed}")
    verl = folder.path / "verl"
    val = verl / "val.jsonl" if spec.validation.every else None
    place = Place(
        seed=seed,
        base=base,
        train=verl / "train.jsonl",
        val=val,
        checkpoints=folder.checkpoints,
        log=verl / f"log-{attempt}.jsonl",
        name=f"{out.name} seed {seed}",
        val_first=val_first,
    )
    return overrides(spec, place)


def checked_for_training(spec: TrainSpec, lines: Sequence[Line]) -> Checked:
    """Call `validate`, and check that the environment can train too.

    Raises:
        UserError: what `validate` refuses, or a package that is missing.
    """
    python = (spec.verl or Verl()).python
    checked = validate(python, lines)
    if checked.missing:
        raise UserError(
            f"verl.python={python!r} can check a training and not run it: {' and '.join(checked.missing)} not "
            "installed there; accepted: an environment with verl's extras, as docs/train-verl.md says, or --dry-run"
        )
    return checked


class _Run:
    """One seed of a training."""

    def __init__(
        self,
        spec: TrainSpec,
        seed: int,
        folder: SeedFolder,
        source: Source,
        checked: Checked,
        say: Say,
        on_record: OnRecord,
    ) -> None:
        self.spec, self.seed, self.folder, self.source = spec, seed, folder, source
        self.checked, self.say, self.on_record = checked, say, on_record
        self.dapo, self.verl = spec.dapo.replace(seed=seed), spec.verl or Verl()
        self.work = folder.path / "verl"
        self.interrupts = Interrupts()

    def finish(self, problems: list[dict[str, Any]], watched: dict[str, list[dict[str, Any]]]) -> None:
        """Train and merge unless that is done, then validate, write the card and say that the seed is done."""
        if self.folder.facts():
            self.say(f"seed {self.seed} is done")
            return
        make_folder(self.folder.checkpoints)
        make_folder(self.work)
        if not self.folder.rl.is_dir():
            data.write(self.work / "train.jsonl", {"train": problems})
            if watched:
                data.write(self.work / "val.jsonl", watched)
            with self.interrupts.noted():
                if latest(self.folder.checkpoints) < self.dapo.steps:
                    self._train()
                self._merge()
        conclude(self.spec, self.seed, self.folder, self.source, self._facts, self.say, self._keep)

    def _keep(self, record: dict[str, Any]) -> None:
        self.folder.append(record)
        self.on_record(self.seed, record)

    def _train(self) -> None:
        step = settle(self.folder.checkpoints, keep=self.spec.keep_checkpoints or self.spec.checkpoint != "last")
        self.folder.trim(step)
        if step:
            self.say(f"seed {self.seed}: going on after step {step}")
        attempt = 1 + len(list(self.work.glob("output-*.txt")))
        # verl would validate the step that it goes on from again: two draws of one point of the curve.
        val_first = step % (self.spec.validation.every or 1) == 0 and not any(
            record["step"] == step and "validation" in record for record in self.folder.records()
        )
        place = self.folder.path.parent
        lines = arguments(self.spec, self.seed, place, self.source.base, attempt, val_first=val_first)
        texts = [line.text for line in lines]
        write_file(self.work / "overrides.txt", "".join(text + "\n" for text in texts).encode())
        with Bar(self.dapo.steps, "step", f"seed {self.seed}", done=step) as bar:

            def on_line(line: dict[str, Any]) -> None:
                for record in log.translate(line, self.dapo):
                    self._keep(record)
                    self._prune(record)
                    if "validation" not in record:
                        shown = (("accuracy", ".3f"), ("reward", ".3f"), ("length", ".0f"))
                        known = [f"{name} {record[name]:{form}}" for name, form in shown if record[name] is not None]
                        bar.update()
                        bar.figures(", ".join([f"{bar.left()} left", *known]))

            self._call(
                ["-m", "verl.trainer.main_ppo", *texts],
                f"output-{attempt}.txt",
                log=self.work / f"log-{attempt}.jsonl",
                on_line=on_line,
                hang=60 * self.verl.hang_minutes,
            )
        if (step := latest(self.folder.checkpoints)) < self.dapo.steps:
            raise TrainerError(
                f"seed {self.seed}: verl ended without an error, and its last checkpoint is of step {step} of "
                f"{self.dapo.steps}; see {self.work / f'output-{attempt}.txt'}"
            )

    def _prune(self, record: dict[str, Any]) -> None:
        """Delete checkpoints up to a line of the log that are neither the last nor, so far, the trained model's.

        Which is best can be told of those alone whose validations are in the log: verl may be steps ahead of it.
        """
        if self.spec.checkpoint == "last" or self.spec.keep_checkpoints:
            return
        if self.spec.chosen_by is not None and "validation" not in record:
            return
        there = whole(self.folder.checkpoints)
        known = [step for step in there if step <= record["step"]]
        chosen = chosen_step(self.spec, self.folder.records(), known)
        for step in known:
            if step not in (chosen, there[-1]):
                shutil.rmtree(self.folder.checkpoints / f"global_step_{step}")

    def _merge(self) -> None:
        """Merge verl's shards into a model that others load: whole or not at all."""
        new = self.folder.rl.with_name("rl.new")
        shutil.rmtree(new, ignore_errors=True)
        steps = whole(self.folder.checkpoints)
        step = chosen_step(self.spec, self.folder.records(), steps)
        if step is None:
            raise TrainerError(
                f"seed {self.seed}: checkpoint={self.spec.checkpoint!r} is none of steps {', '.join(map(str, steps))}, "
                f"which have checkpoints, as {self.folder.log} has it"
            )
        self.say(f"seed {self.seed}: merging the checkpoint of step {step}")
        actor = self.folder.checkpoints / f"global_step_{step}" / "actor"
        trust = ["--trust-remote-code"] if self.spec.trust_remote_code else []
        command = ["-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(actor.resolve())]
        with phase("merging"):
            self._call([*command, "--target_dir", str(new.resolve()), *trust], "merge.txt")
        if not (new / "config.json").is_file() or not list(new.glob("*.safetensors")):
            raise TrainerError(f"seed {self.seed}: verl's merger wrote no model into {new}; see {self.work}/merge.txt")
        self.folder.take(self.spec, step, new)

    def _call(
        self,
        arguments: list[str],
        output: str,
        *,
        log: Path = Path(os.devnull),
        on_line: Callable[[dict[str, Any]], None] = lambda line: None,
        hang: float = float("inf"),
    ) -> None:
        """Run a module of verl's to its end.

        Raises:
            TrainerError: it did not end with status 0, or logged nothing for too long.
        """
        file = self.work / output
        child = Child(
            [str(interpreter(self.verl.python)), *arguments],
            cwd=self.work,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "HYDRA_FULL_ERROR": "1"} | environment(log.absolute()),
            output=file.absolute(),
            lock=self.work / "lock",
            grace=self.verl.grace_seconds,
            interrupts=self.interrupts,
        )
        again = "the same command goes on from the last checkpoint"
        try:
            status = follow(child, log, on_line, hang)
        except Hung:
            child.end()
            raise TrainerError(
                f"seed {self.seed}: verl logged no step for verl.hang_minutes={self.verl.hang_minutes:g} and was ended "
                f"(last: {last_words(file)}); {again}; see {file}"
            ) from None
        finally:
            child.end()
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise TrainerError(f"seed {self.seed}: verl {how} ({last_words(file)}); {again}; see {file}")

    def _facts(self, scores: ValidationScores) -> dict[str, Any]:
        steps = [record for record in self.folder.records() if "validation" not in record]
        return {
            "base": self.source.base,
            "seed": self.seed,
            "dapo": self.dapo.model_dump(),
            "training": self.spec.model_dump(mode="json", exclude={"dapo", "seeds"}),
            "scores": scores,
            "accuracy": [record["accuracy"] for record in steps],
            "length": [record["length"] for record in steps],
            "seconds": round(sum(record["seconds"] or 0.0 for record in steps), 1),
            "reweighting_seconds": None,  # it happens inside verl's own work
            "versions": {**self.checked.versions, "rlvr-dir": harness.__version__},
            "machine": f"{self.verl.nnodes} x {self.verl.gpus_per_node} GPUs",
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(sys.argv),
        }


def whole(checkpoints: Path) -> list[int]:
    """Return the steps of verl's complete checkpoints: `data.pt` is what it writes last into one."""
    return sorted(int(path.name.rpartition("_")[2]) for path in checkpoints.glob("global_step_*") if _whole(path))


def latest(checkpoints: Path) -> int:
    """Return the step of verl's last complete checkpoint, 0 for none."""
    return max(whole(checkpoints), default=0)


def settle(checkpoints: Path, *, keep: bool) -> int:
    """Leave checkpoints as verl can go on from, after whatever ended it; return the step of the last, 0 for none.

    verl goes where `latest_checkpointed_iteration.txt` points, which it overwrites in place: it can be cut short, or
    point to what is gone. Incomplete checkpoints are deleted, and older ones unless they are kept.
    """
    step = latest(checkpoints)
    for path in checkpoints.glob("global_step_*"):
        if not _whole(path) or (not keep and path.name != f"global_step_{step}"):
            shutil.rmtree(path)
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if step:
        write_file(tracker, str(step).encode())
    else:
        tracker.unlink(missing_ok=True)
    return step


def last_words(file: Path, size: int = 20_000) -> str:
    """Return the error in the end of a program's output, else its last line, on one line."""
    with file.open("rb") as output:
        output.seek(max(0, file.stat().st_size - size))
        lines = output.read().decode(errors="replace").splitlines()
    lines = [clean for line in lines if (clean := _NOISE.sub("", _NOISE.sub("", line)).strip())]
    errors = [line for line in lines if _ERROR.match(line)]
    return " ".join((errors or lines or ["no output"])[-1].split())[:300]


def _whole(path: Path) -> bool:
    return (path / "data.pt").is_file() and (path / "actor").is_dir()

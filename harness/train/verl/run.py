"""The backend that trains through verl: `fit` launches a seed's training, follows it, and merges what it leaves.

In each seed's folder, beside what every backend leaves:

verl/overrides.txt       verl's arguments, a line each
verl/train.jsonl         the problems, as verl reads them
verl/log-N.jsonl         what verl logged in its N-th run, verl/output-N.txt what it printed
checkpoints/             verl's own; what a run goes on from
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
from harness.errors import UserError
from harness.files import make_folder, write_file
from harness.progress import Bar, phase
from harness.train.data import read_problems
from harness.train.folder import SeedFolder, chosen_step
from harness.train.run import Backend, Keep, Say, Source, TrainerError
from harness.train.spec import TrainSpec
from harness.train.verl import data, log
from harness.train.verl.overrides import Line, Place, environment, overrides
from harness.train.verl.process import Child, Hung, Interrupts, follow
from harness.train.verl.spec import Verl
from harness.train.verl.validate import check_context, interpreter, validate

_NOISE = re.compile(r"(?:\x1b\[[0-9;]*m)+|^\((?:[\w.]+ )?pid=[^)]*\)\s*")  # colours; then Ray's name of a worker
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Killed)\b.*")


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


class VerlBackend(Backend):
    """Trains with verl, in an environment of its own, on as many machines as its Ray cluster has."""

    def __init__(self, spec: TrainSpec, out: Path, source: Source, say: Say) -> None:
        """Check the arguments in verl's environment, the base's positions and the data.

        Raises:
            UserError: verl's environment lacks something, an argument does not fit, the base has too few positions, or
                verl cannot take the data.
        """
        self.spec, self.dapo, self.verl = spec, spec.dapo, spec.verl or Verl()
        self.source, self.say = source, say
        lines = {seed: arguments(spec, seed, out, source.base) for seed in spec.seeds}
        check_context(spec, source.base)
        self.checked = validate(self.verl.python, lines[spec.seeds[0]])
        if self.checked.missing:
            raise UserError(
                f"verl.python={self.verl.python!r} can check a training and not run it: "
                f"{' and '.join(self.checked.missing)} not installed there; accepted: an environment with verl's "
                "extras, as docs/train-verl.md says, or --dry-run"
            )
        self.problems = {seed: data.rows(source.problems(seed), spec, spec.data) for seed in spec.seeds}
        self.watched: dict[str, list[dict[str, Any]]] = {}
        if spec.validation.every and (val := self.verl.val_data):
            self.watched = {Path(val).stem: data.rows(read_problems(val, spec), spec, val, least=1)}
        elif spec.validation.every:
            self.watched = source.watched()
        self.interrupts = Interrupts()

    def about(self) -> dict[str, Any]:
        """Return what verl's environment has, and the GPUs it was asked to take."""
        return {
            "versions": {**self.checked.versions, "rlvr-dir": harness.__version__},
            "machine": f"{self.verl.nnodes} x {self.verl.gpus_per_node} GPUs",
        }

    def fit(self, seed: int, folder: SeedFolder, keep: Keep) -> None:
        """Train one seed, unless that is done, going on after verl's last checkpoint, and merge the chosen one.

        Raises:
            TrainerError: verl crashed, hung or was killed, or left no model.
        """
        work = folder.path / "verl"
        make_folder(work)
        data.write(work / "train.jsonl", {"train": self.problems[seed]})
        if self.watched:
            data.write(work / "val.jsonl", self.watched)
        with self.interrupts.noted():
            if latest(folder.checkpoints) < self.dapo.steps:
                self._train(seed, folder, work, keep)
            self._merge(seed, folder, work)

    def _train(self, seed: int, folder: SeedFolder, work: Path, keep: Keep) -> None:
        spec, steps = self.spec, self.dapo.steps
        step = settle(folder.checkpoints, keep=spec.keep_checkpoints or spec.checkpoint != "last")
        folder.trim(step)
        if step:
            self.say(f"seed {seed}: going on after step {step}")
        attempt = 1 + len(list(work.glob("output-*.txt")))
        # verl would validate the step that it goes on from again: two draws of one point of the curve.
        val_first = step % (spec.validation.every or 1) == 0 and not any(
            record["step"] == step and "validation" in record for record in folder.records()
        )
        problems = {name: len(rows) for name, rows in self.watched.items()}
        lines = arguments(spec, seed, folder.path.parent, self.source.base, attempt, val_first=val_first)
        texts = [line.text for line in lines]
        write_file(work / "overrides.txt", "".join(text + "\n" for text in texts).encode())
        with Bar(steps, "step", f"seed {seed}", done=step) as bar:

            def on_line(line: dict[str, Any]) -> None:
                for record in log.translate(line, self.dapo, problems):
                    keep(record)
                    self._prune(folder, record)
                    if "validation" not in record:
                        shown = (("accuracy", ".3f"), ("reward", ".3f"), ("length", ".0f"))
                        known = [f"{name} {record[name]:{form}}" for name, form in shown if record[name] is not None]
                        bar.update()
                        bar.figures(", ".join([f"{bar.left()} left", *known]))

            file = work / f"log-{attempt}.jsonl"
            self._call(seed, ["-m", "verl.trainer.main_ppo", *texts], work / f"output-{attempt}.txt", file, on_line)
        if (step := latest(folder.checkpoints)) < steps:
            raise TrainerError(
                f"seed {seed}: verl ended without an error, and its last checkpoint is of step {step} of {steps}; see "
                f"{work / f'output-{attempt}.txt'}"
            )

    def _prune(self, folder: SeedFolder, record: dict[str, Any]) -> None:
        """Delete checkpoints up to a line of the log that are neither the last nor, so far, the trained model's.

        Which is best can be told of those alone whose validations are in the log: verl may be steps ahead of it.
        """
        spec = self.spec
        waits = spec.chosen_by is not None and "validation" not in record
        if spec.checkpoint == "last" or spec.keep_checkpoints or waits:
            return
        there = whole(folder.checkpoints)
        known = [step for step in there if step <= record["step"]]
        chosen = chosen_step(spec, folder.records(), known)
        for step in known:
            if step not in (chosen, there[-1]):
                shutil.rmtree(folder.checkpoints / f"global_step_{step}")

    def _merge(self, seed: int, folder: SeedFolder, work: Path) -> None:
        """Merge verl's shards into a model that others load: whole or not at all."""
        new, steps = folder.rl.with_name("rl.new"), whole(folder.checkpoints)
        shutil.rmtree(new, ignore_errors=True)
        step = chosen_step(self.spec, folder.records(), steps)
        if step is None:
            raise TrainerError(
                f"seed {seed}: checkpoint={self.spec.checkpoint!r} is none of steps {', '.join(map(str, steps))}, "
                f"which have checkpoints, as {folder.log} has it"
            )
        self.say(f"seed {seed}: merging the checkpoint of step {step}")
        actor = folder.checkpoints / f"global_step_{step}" / "actor"
        command = ["-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(actor.resolve())]
        command += ["--target_dir", str(new.resolve())] + ["--trust-remote-code"] * self.spec.trust_remote_code
        with phase("merging"):
            self._call(seed, command, work / "merge.txt")
        if not (new / "config.json").is_file() or not list(new.glob("*.safetensors")):
            raise TrainerError(f"seed {seed}: verl's merger wrote no model into {new}; see {work}/merge.txt")
        folder.take(self.spec, step, new)

    def _call(
        self,
        seed: int,
        arguments: list[str],
        output: Path,
        log: Path | None = None,
        on_line: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> None:
        """Run a module of verl's to its end; one that logs may hang.

        Raises:
            TrainerError: it did not end with status 0, or logged nothing for too long.
        """
        file = log or Path(os.devnull)
        child = Child(
            [str(interpreter(self.verl.python)), *arguments],
            cwd=output.parent,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "HYDRA_FULL_ERROR": "1"} | environment(file.absolute()),
            output=output.absolute(),
            lock=output.parent / "lock",
            grace=self.verl.grace_seconds,
            interrupts=self.interrupts,
        )
        how = ""
        try:
            status = follow(child, file, on_line, 60 * self.verl.hang_minutes if log else float("inf"))
            if status:
                how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        except Hung:
            how = f"logged no step for verl.hang_minutes={self.verl.hang_minutes:g} and was ended"
        finally:
            child.end()
        if how:
            last = f"last: {last_words(output)}" if how.startswith("logged") else last_words(output)
            again = "the same command goes on from the last checkpoint"
            raise TrainerError(f"seed {seed}: verl {how} ({last}); {again}; see {output}")


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

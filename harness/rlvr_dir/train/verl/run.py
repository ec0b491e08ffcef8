"""Train through verl: `fit` launches a seed's training, follows it, and merges the weights that it saves.

Each seed's folder contains, beside the files of every backend:

    verl/overrides.txt       verl's arguments, one per line
    verl/train.jsonl         the problems, in verl's format
    verl/log-N.jsonl         what verl logged in its N-th run; verl/output-N.txt is what it printed
    checkpoints/             verl's own, from which a run resumes
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import rlvr_dir
from rlvr_dir.files import make_folder, write_file
from rlvr_dir.progress import Bar, phase
from rlvr_dir.train.data import read_problems
from rlvr_dir.train.folder import SeedFolder, chosen_step
from rlvr_dir.train.run import Backend, Keep, Say, TrainerError, TrainingSource
from rlvr_dir.train.spec import TrainSpec
from rlvr_dir.train.verl import data, log
from rlvr_dir.train.verl.overrides import Line, Place, environment, overrides
from rlvr_dir.train.verl.spec import Verl
from rlvr_dir.train.verl.validate import check_arguments, check_context, check_versions, interpreter

POLL = 0.2  # # seconds between two reads of verl's log
GRACE = 60.0  # # seconds that verl has to end after SIGTERM
_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)


def arguments(
    spec: TrainSpec, seed: int, out: Path, base: str, attempt: int = 1, *, val_first: bool = True
) -> list[Line]:
    """Return verl's arguments for one seed of a training in `out`.

    Raises:
        UserError: `overrides` does not accept an argument.
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
    """Train with verl, in its own environment, on as many machines as its Ray cluster has."""

    def __init__(self, spec: TrainSpec, out: Path, source: TrainingSource, say: Say) -> None:
        """Check the arguments in verl's environment, the base's positions and the data.

        Raises:
            UserError: verl's environment is unsuitable, an argument does not fit, the base has too few positions, or
                verl cannot use the data.
        """
        self.spec, self.dapo, self.verl = spec, spec.dapo, spec.verl or Verl()
        self.source, self.say = source, say
        lines = {seed: arguments(spec, seed, out, source.base) for seed in spec.seeds}
        self.problems = {seed: data.rows(source.problems(seed), spec, spec.data) for seed in spec.seeds}
        self.watched: dict[str, list[dict[str, Any]]] = {}
        if spec.validation.every and (val := self.verl.val_data):
            self.watched = {Path(val).stem: data.rows(read_problems(val, spec), spec, val, least=1)}
        elif spec.validation.every:
            self.watched = source.watched()
        check_context(spec, source.base)
        self.versions = check_versions(self.verl.python)
        check_arguments(self.verl.python, lines[spec.seeds[0]])

    def provenance(self) -> dict[str, Any]:
        """Return the versions in verl's environment, and the GPUs that it was given."""
        return {
            "versions": {**self.versions, "rlvr-dir": rlvr_dir.__version__},
            "machine": f"{self.verl.nnodes} x {self.verl.gpus_per_node} GPUs",
        }

    def fit(self, seed: int, folder: SeedFolder, keep: Keep) -> None:
        """Train one seed, unless it is finished, starting at verl's last checkpoint, and merge the chosen checkpoint.

        Raises:
            TrainerError: verl failed or ended before its last step, or no checkpoint can be chosen.
        """
        work = folder.path / "verl"
        make_folder(work)
        data.write(work / "train.jsonl", {"train": self.problems[seed]})
        if self.watched:
            data.write(work / "val.jsonl", self.watched)
        if last_step(folder.checkpoints) < self.dapo.steps:
            self._train(seed, folder, work, keep)
        self._merge(seed, folder, work)

    def _train(self, seed: int, folder: SeedFolder, work: Path, keep: Keep) -> None:
        spec, steps = self.spec, self.dapo.steps
        step = last_step(folder.checkpoints)
        folder.trim(step)
        self._prune(folder, step)
        if step:
            self.say(f"seed {seed}: resuming after step {step}")
        attempt = 1 + len(list(work.glob("output-*.txt")))
        # # verl would validate the step from which it resumes again, which gives one point of the curve twice.
        val_first = step % (spec.validation.every or 1) == 0 and not any(
            record["step"] == step and "validation" in record for record in folder.records()
        )
        problems = {name: len(rows) for name, rows in self.watched.items()}
        lines = arguments(spec, seed, folder.path.parent, self.source.base, attempt, val_first=val_first)
        texts = [line.text for line in lines]
        write_file(work / "overrides.txt", "".join(text + "\n" for text in texts).encode())
        output = work / f"output-{attempt}.txt"
        with Bar(steps, f"seed {seed}", done=step) as bar:

            def on_line(line: dict[str, Any]) -> None:
                for record in log.translate(line, self.dapo, problems):
                    keep(record)
                    # # A checkpoint that a validation chooses is judged once that validation is in the log. If the last
                    # one is the trained one, verl itself deletes the one before.
                    if spec.checkpoint != "last" and (spec.chosen_by is None or "validation" in record):
                        self._prune(folder, record["step"])
                    if "validation" not in record:
                        formats = (("accuracy", ".3f"), ("reward", ".3f"), ("length", ".0f"))
                        figures = [
                            f"{name} {record[name]:{form}}" for name, form in formats if record[name] is not None
                        ]
                        bar.update()
                        bar.figures(", ".join([f"{bar.time_left()} left", *figures]))

            command = ["-m", "verl.trainer.main_ppo", *texts]
            self._run(seed, command, output, work / f"log-{attempt}.jsonl", on_line)
        if (step := last_step(folder.checkpoints)) < steps:
            raise TrainerError(
                f"seed {seed}: verl ended without an error, and its last checkpoint is of step {step} of {steps}; see "
                f"{output}"
            )

    def _prune(self, folder: SeedFolder, step: int) -> None:
        """Delete checkpoints up to a step that are neither the last one nor, so far, the trained model's.

        The best one is known only among those whose validations are in the log, and verl may be several steps ahead of
        it.
        """
        saved = saved_steps(folder.checkpoints)
        candidates = [] if self.spec.keep_checkpoints else [other for other in saved if other <= step]
        chosen = chosen_step(self.spec, folder.records(), candidates)
        for other in candidates:
            if other not in (chosen, saved[-1]):
                shutil.rmtree(folder.checkpoints / f"global_step_{other}")

    def _merge(self, seed: int, folder: SeedFolder, work: Path) -> None:
        """Make verl merge its shards into a model that other programs load, as a whole or not at all."""
        merged, steps = folder.rl.with_name("rl.new"), saved_steps(folder.checkpoints)
        shutil.rmtree(merged, ignore_errors=True)
        step = chosen_step(self.spec, folder.records(), steps)
        if step is None:
            raise TrainerError(
                f"seed {seed}: checkpoint={self.spec.checkpoint!r} is none of steps {', '.join(map(str, steps))}, "
                f"which have checkpoints, as {folder.log} has it"
            )
        self.say(f"seed {seed}: merging the checkpoint of step {step}")
        actor = folder.checkpoints / f"global_step_{step}" / "actor"
        command = ["-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(actor.resolve())]
        command += ["--target_dir", str(merged.resolve())] + ["--trust-remote-code"] * self.spec.trust_remote_code
        with phase("merging"):
            self._run(seed, command, work / "merge.txt", Path(os.devnull), lambda line: None)
        folder.publish(self.spec, step, merged)

    def _run(
        self, seed: int, arguments: list[str], output: Path, log: Path, on_line: Callable[[dict[str, Any]], None]
    ) -> None:
        """Run a module of verl until it ends, and pass each line that it adds to its log to `on_line` meanwhile.

        Raises:
            TrainerError: It did not end with status 0.
        """
        log.touch()
        with output.open("wb") as file, log.open("rb") as lines:
            verl = subprocess.Popen(
                [str(interpreter(self.verl.python)), *arguments],
                cwd=output.parent,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment(log.absolute()),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=_die_with_parent,
            )
            try:
                rest, running = b"", True
                while running:
                    with suppress(subprocess.TimeoutExpired):
                        verl.wait(POLL)
                        running = False
                    *whole, rest = (rest + lines.read()).split(b"\n")
                    for line in whole:
                        on_line(json.loads(line))
            finally:
                _end(verl)
        if verl.returncode:
            raise TrainerError(
                f"seed {seed}: verl ended with status {verl.returncode}; the same command resumes from the last "
                f"checkpoint; see {output}"
            )


def last_step(checkpoints: Path) -> int:
    """Return the step from which verl resumes, which it writes once a checkpoint is complete; 0 if there is none."""
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.is_file() else 0


def saved_steps(checkpoints: Path) -> list[int]:
    """Return the steps with a complete checkpoint. If verl deleted one, its folder stays, without the actor."""
    steps = sorted(int(path.parent.name.rpartition("_")[2]) for path in checkpoints.glob("global_step_*/actor"))
    return [step for step in steps if step <= last_step(checkpoints)]


def _die_with_parent() -> None:
    """Make the kernel end verl's driver when this process ends. Ray ends what the driver started."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)


def _end(verl: subprocess.Popen[bytes]) -> None:
    """End verl's driver, which ends what it started, unless it has ended."""
    if verl.poll() is None:
        verl.terminate()
        try:
            verl.wait(GRACE)
        except subprocess.TimeoutExpired:
            verl.kill()
            verl.wait()

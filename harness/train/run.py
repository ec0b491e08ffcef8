"""One training: every seed trained, logged, checkpointed, validated and saved; a killed one goes on where it stopped.

    run_training(spec, Path("runs/train/x"), Source(base, problems), say=print)

The same call on the same folder finishes whatever was interrupted. On a CPU the weights are then those of an
uninterrupted run, bit for bit. What lies in rooms this one may not enter comes in as `Source`.
"""

import copy
import gc
import os
import platform
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback

from harness.files import make_folder
from harness.progress import Bar, phase
from harness.records.lock import Lock
from harness.train.backends import OnRecord, OnSeed, Say, Source, Validate, ValidationScores, conclude, validate_base
from harness.train.dapo import DapoTrainer, make_trainer
from harness.train.data import enough
from harness.train.folder import SeedFolder, TrainingFolder, chosen_step
from harness.train.gpu import Fit, fit_here
from harness.train.settings import DapoSettings
from harness.train.spec import TrainSpec, check_machine
from harness.train.summary import write_summary


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
        on_record: is told of each line of a log once it is written; what it raises ends the training, which can be
            gone on with.
        on_seed: is told of each of the spec's seeds that is finished, also of those that were before.

    Raises:
        UserError: the machine lacks something, the folder is another training's or in use, or the data is too small.
    """
    check_machine(spec)
    problems = {seed: enough(source.problems(seed), spec) for seed in spec.seeds}
    fit = fit_here(spec, source.base, (row["prompt"] for rows in problems.values() for row in rows))
    spec = spec.model_copy(update={"bf16": fit is not None and fit.bf16})
    for sentence in fit.said if fit else ():
        say(sentence)
    make_folder(out)
    folder = TrainingFolder(out)
    lock = Lock(folder.lock, f"the training in {out}")
    try:
        asked, spec = spec.seeds, folder.settle(spec, source.inputs)
        with _threads(spec.threads), _quiet():
            validate_base(spec, source, folder, say)
            for seed in asked:
                _Run(spec, seed, folder.seed(seed), source, say, on_record, fit).finish(problems[seed])
                on_seed(seed, folder.seed(seed))
        return write_summary(folder, spec, against)
    finally:
        lock.release()


class _Run:
    """One seed of a training."""

    def __init__(
        self,
        spec: TrainSpec,
        seed: int,
        folder: SeedFolder,
        source: Source,
        say: Say,
        on_record: OnRecord,
        fit: Fit | None,
    ) -> None:
        self.spec, self.seed, self.folder, self.source, self.say = spec, seed, folder, source, say
        self.on_record, self.fit = on_record, fit
        self.dapo: DapoSettings = fitted(spec.dapo, fit).replace(seed=seed)

    def finish(self, problems: list[dict[str, Any]]) -> None:
        """Train unless that is done, then validate, write the card and say that the seed is done."""
        folder = self.folder
        if folder.facts():
            self.say(f"seed {self.seed} is done")
            return
        make_folder(folder.checkpoints)
        if not folder.rl.is_dir():
            self._train(problems)
            self._choose()
        conclude(self.spec, self.seed, folder, self.source, self._facts, self.say, self.keep)

    def keep(self, record: dict[str, Any]) -> None:
        """Write a line of the log, then tell of it."""
        self.folder.append(record)
        with phase("logging"):  # the first time MLflow's store is made
            self.on_record(self.seed, record)

    def _train(self, problems: list[dict[str, Any]]) -> None:
        spec, folder = self.spec, self.folder
        resumed = folder.last_checkpoint()
        step = resumed[0] if resumed else 0
        folder.trim(step)
        folder.prune_chosen(spec, step, resumed=True)
        if resumed:
            self.say(f"seed {self.seed}: going on after step {step}")
        with phase("loading"):
            model = AutoModelForCausalLM.from_pretrained(
                self.source.base, dtype=torch.float32, trust_remote_code=spec.trust_remote_code
            )
            tokenizer = AutoTokenizer.from_pretrained(self.source.base, trust_remote_code=spec.trust_remote_code)
            caches = model.config.use_cache
            steps = _Steps(self, caches)
            trainer = make_trainer(
                model,
                tokenizer,
                problems,
                self.dapo,
                folder.checkpoints,
                callbacks=[steps],
                **trl_arguments(spec, self.fit),
            )
        steps.trainer = trainer
        if resumed:
            trainer.set_refill_state(resumed[2])
        with Bar(self.dapo.steps, "step", f"seed {self.seed}", done=step) as bar:
            steps.bar = bar
            trainer.train(resume_from_checkpoint=str(resumed[1]) if resumed else None)
        with phase("saving"):
            steps.export(folder.chosen / str(self.dapo.steps))
        if self.fit:
            _give_back(trainer)

    def _choose(self) -> None:
        """Make one of the models the trained one; the last is validated first, where the best is asked for."""
        spec, folder, last = self.spec, self.folder, self.dapo.steps
        if spec.chosen_by is not None and self.source.validate:
            self.say(f"seed {self.seed}: validating the last step")
            with phase("validating"):
                scores = self.source.validate(self.source.base, str((folder.chosen / str(last)).resolve()), "rl", None)
            self.keep({"step": last, "validation": scores})
        steps = [int(path.name) for path in folder.chosen.glob("*") if path.name.isdecimal()]
        step = chosen_step(spec, folder.records(), steps) or last
        if spec.checkpoint != "last":
            self.say(f"seed {self.seed}: the trained model is that of step {step} of {last} ({spec.checkpoint})")
        folder.take(spec, step, folder.chosen / str(step))

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
            "seconds": round(sum(record["seconds"] for record in steps), 1),
            "reweighting_seconds": round(sum(record.get("reweighting_seconds", 0.0) for record in steps), 3),
            "versions": {name: version(name) for name in ("torch", "transformers", "trl", "rlvr-dir")},
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {self.spec.threads} thread(s)"
            + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() and self.spec.device != "cpu" else ""),
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(sys.argv),
        }


class _Steps(TrainerCallback):
    """What happens at the end of a step: its log line, perhaps a validation, perhaps a checkpoint."""

    trainer: DapoTrainer
    bar: Bar

    def __init__(self, run: _Run, caches: bool) -> None:
        self.run, self.caches = run, caches
        self.updates = run.dapo.minibatches  # of a step

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.tally.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask for a checkpoint; after the last step there is the model itself."""
        step, rest = divmod(state.global_step, self.updates)
        control.should_save = not rest and not step % self.run.spec.checkpoint_every and step < self.run.dapo.steps

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        run, step = self.run, state.global_step // self.updates
        record = {
            "step": step,
            **self.trainer.tally.take(),
            "entropy": logs["entropy"],
            "clip_fraction": logs["clip_ratio/region_mean"],
            "loss": logs["loss"],
            "grad_norm": logs["grad_norm"],
            "learning_rate": logs["learning_rate"],
        }
        run.keep(record)
        accuracy, reward = (float("nan") if record[name] is None else record[name] for name in ("accuracy", "reward"))
        self.bar.update()
        self.bar.figures(
            f"{self.bar.left()} left, accuracy {accuracy:.3f}, reward {reward:.3f}, {record['length']:.0f} tokens"
        )
        if step == run.spec.checkpoint and step < run.dapo.steps:
            self.export(run.folder.chosen / str(step))
        every = run.spec.validation.every
        if every and run.source.validate and not step % every and step < run.dapo.steps:
            self._validate(run.source.validate, step)
            self.trainer.tally.start()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step // self.updates
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.run.folder.complete(path, step, self.trainer.refill_state(), keep=self.run.spec.keep_checkpoints)
        self.run.folder.prune_chosen(self.run.spec, step)

    def export(self, path: Path) -> None:
        """Save the model as it is now."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        make_folder(path.parent)
        export(model, self.trainer.processing_class, path, self.caches, merge=_merged(self.run.spec))

    def _validate(self, validate: Validate, step: int) -> None:
        run = self.run
        place = run.folder.path / "validation"
        with _same_random_numbers():
            self.export(place)
            with phase("validating"):
                scores = validate(run.source.base, str(place.resolve()), "rl", None)
        now = {"step": step, "validation": scores}
        there = [int(path.name) for path in run.folder.chosen.glob("*") if path.name.isdecimal()]
        if run.spec.chosen_by and chosen_step(run.spec, [*run.folder.records(), now], [*there, step]) == step:
            make_folder(run.folder.chosen)
            shutil.rmtree(run.folder.chosen / str(step), ignore_errors=True)
            os.replace(place, run.folder.chosen / str(step))
        else:
            shutil.rmtree(place)
        run.keep(now)


def _merged(spec: TrainSpec) -> bool:
    return bool(spec.lora and spec.lora.merge)


def export(model: PreTrainedModel, tokenizer: Any, path: Path, caches: bool, *, merge: bool = False) -> None:
    """Save a model as others load it, all of it or nothing: with `use_cache` as it was before TRL.

    Of a model with adapters, these are saved alone, as PEFT does; `merge` saves it whole.
    """
    new = path.with_name(path.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
    if merge:
        model = copy.deepcopy(model).merge_and_unload()  # of a copy: unmerging again would round
    before, model.config.use_cache = model.config.use_cache, caches
    model.save_pretrained(new)
    model.config.use_cache = before
    tokenizer.save_pretrained(new)
    for file in new.iterdir():
        file.chmod(0o644)  # safetensors writes 0600
    os.replace(new, path)


def fitted(dapo: DapoSettings, fit: Fit | None) -> DapoSettings:
    """Return the settings as they fit the GPU, if there is one."""
    if fit is None:
        return dapo
    return dapo.replace(accumulation=fit.accumulation, gradient_checkpointing=fit.gradient_checkpointing)


def trl_arguments(spec: TrainSpec, fit: Fit | None) -> dict[str, Any]:
    """Return the machine's part of TRL's configuration, and the adapter; `fit` is for a GPU."""
    found: dict[str, Any] = {"bf16": bool(spec.bf16)}
    if spec.device != "auto":
        found["use_cpu"] = spec.device == "cpu"
    if spec.vllm:
        settings = spec.vllm.model_dump(exclude_none=True)
        if fit and spec.vllm.mode == "colocate":
            settings |= {
                "gpu_memory_utilization": fit.gpu_memory_utilization,
                "max_model_length": fit.max_model_length,
            }
        found |= {"use_vllm": True} | {f"vllm_{name}": value for name, value in settings.items()}
    if spec.lora:
        from peft import LoraConfig

        targets = spec.lora.targets
        found["peft_config"] = LoraConfig(
            r=spec.lora.rank,
            lora_alpha=spec.lora.alpha,
            lora_dropout=spec.lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
        )
    return found


def _give_back(trainer: DapoTrainer) -> None:
    """End the trainer's own vLLM and give the GPU's memory back: what follows needs it."""
    llm = getattr(getattr(trainer, "vllm_generation", None), "llm", None)
    if llm is not None:
        llm.llm_engine.engine_core.shutdown()
        del trainer.vllm_generation.llm
    trainer.accelerator.free_memory()
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.model.to("cpu")
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Put every generator back where it stood before: validation must not change training."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' own bars and the warnings that only matter to its developers."""
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity(level)

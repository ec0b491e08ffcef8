"""Train in this process, through TRL: `fit` trains one seed, with a checkpoint after each step.

On a CPU, the weights of an interrupted and resumed training equal those of an uninterrupted one, bit for bit.
"""

import copy
import gc
import os
import platform
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback

from rlvr_dir.files import make_folder
from rlvr_dir.progress import Bar, phase
from rlvr_dir.train.dapo import DapoTrainer, make_trainer
from rlvr_dir.train.data import check_size
from rlvr_dir.train.folder import SeedFolder, chosen_step
from rlvr_dir.train.gpu import Fit, fit_here
from rlvr_dir.train.run import Backend, Keep, Say, TrainingSource, Validate
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.spec import TrainSpec, check_machine


class TrlBackend(Backend):
    """Train with TRL's GRPO trainer, on this machine's CPU or one GPU."""

    def __init__(self, spec: TrainSpec, out: Path, source: TrainingSource, say: Say) -> None:
        """Check the machine and the data, and fit the settings to a GPU. Changed settings are reported.

        Raises:
            UserError: The machine is unsuitable, the training does not fit it, or there are too few problems.
        """
        check_machine(spec)
        self.problems = {seed: check_size(source.problems(seed), spec) for seed in spec.seeds}
        prompts = (row["prompt"] for rows in self.problems.values() for row in rows)
        self.gpu = fit_here(spec, source.base, prompts)
        self.spec = spec.model_copy(update={"bf16": self.gpu is not None and self.gpu.bf16})
        self.dapo = fitted(spec.dapo, self.gpu)
        self.source, self.say = source, say
        for sentence in self.gpu.changes if self.gpu else ():
            say(sentence)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Set the requested number of threads, and hide transformers' progress bars and its warnings for developers."""
        logging, threads = transformers.utils.logging, torch.get_num_threads()
        level = logging.get_verbosity()
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.set_num_threads(self.spec.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            logging.enable_progress_bar()
            logging.set_verbosity(level)

    def provenance(self) -> dict[str, Any]:
        """Return the libraries' versions, and the machine."""
        gpu = torch.cuda.is_available() and self.spec.device != "cpu"
        return {
            "versions": {name: version(name) for name in ("torch", "transformers", "trl", "rlvr-dir")},
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {self.spec.threads} thread(s)"
            + (f", {torch.cuda.get_device_name()}" if gpu else ""),
        }

    def fit(self, seed: int, folder: SeedFolder, keep: Keep) -> None:
        """Train one seed from its last checkpoint, and make one of its models the trained one."""
        spec, dapo = self.spec, self.dapo.replace(seed=seed)
        resumed = folder.last_checkpoint()
        step = resumed[0] if resumed else 0
        folder.trim(step)
        folder.prune_chosen(spec, step, resumed=True)
        if resumed:
            self.say(f"seed {seed}: resuming after step {step}")
        with phase("loading"):
            loading = {"trust_remote_code": spec.trust_remote_code}
            model = AutoModelForCausalLM.from_pretrained(self.source.base, dtype=torch.float32, **loading)
            tokenizer = AutoTokenizer.from_pretrained(self.source.base, **loading)
            steps = _Steps(spec, dapo, folder, self.source, keep, caches=model.config.use_cache)
            trainer = make_trainer(
                model,
                tokenizer,
                self.problems[seed],
                dapo,
                folder.checkpoints,
                callbacks=[steps],
                **trl_arguments(spec, self.gpu),
            )
        steps.trainer = trainer
        if resumed:
            trainer.set_refill_state(resumed[2])
        with Bar(dapo.steps, f"seed {seed}", done=step) as bar:
            steps.bar = bar
            trainer.train(resume_from_checkpoint=str(resumed[1]) if resumed else None)
        last = folder.chosen / str(dapo.steps)
        with phase("saving"):
            steps.export(last)
        if self.gpu:
            _give_back(trainer)
        if spec.chosen_by is not None and self.source.validate:
            self.say(f"seed {seed}: validating the last step")
            with phase("validating"):
                scores = self.source.validate(self.source.base, str(last.resolve()), "rl", None)
            keep({"step": dapo.steps, "validation": scores})
        step = chosen_step(spec, folder.records(), folder.kept_steps()) or dapo.steps
        if spec.checkpoint != "last":
            self.say(f"seed {seed}: the trained model is that of step {step} of {dapo.steps} ({spec.checkpoint})")
        folder.publish(spec, step, folder.chosen / str(step))


class _Steps(TrainerCallback):
    """Handle the end of a step: write its log line, and perhaps validate and save a checkpoint."""

    trainer: DapoTrainer
    bar: Bar

    def __init__(
        self,
        spec: TrainSpec,
        dapo: DapoSettings,
        folder: SeedFolder,
        source: TrainingSource,
        keep: Keep,
        *,
        caches: bool,
    ) -> None:
        self.spec, self.dapo, self.folder, self.source, self.keep = spec, dapo, folder, source, keep
        self.caches = caches

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.tally.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a checkpoint. After the last step, the model itself is saved instead."""
        step, rest = divmod(state.global_step, self.dapo.minibatches)
        control.should_save = not rest and not step % self.spec.checkpoint_every and step < self.dapo.steps

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        step = state.global_step // self.dapo.minibatches
        record = {
            "step": step,
            **self.trainer.tally.pop_record(),
            "entropy": logs["entropy"],
            "clip_fraction": logs["clip_ratio/region_mean"],
            **{name: logs[name] for name in ("loss", "grad_norm", "learning_rate")},
        }
        self.keep(record)
        accuracy, reward = (float("nan") if record[name] is None else record[name] for name in ("accuracy", "reward"))
        self.bar.update()
        self.bar.figures(
            f"{self.bar.time_left()} left, accuracy {accuracy:.3f}, reward {reward:.3f}, {record['length']:.0f} tokens"
        )
        if step == self.spec.checkpoint and step < self.dapo.steps:
            self.export(self.folder.chosen / str(step))
        every = self.spec.validation.every
        if every and self.source.validate and not step % every and step < self.dapo.steps:
            self._validate(self.source.validate, step)
            self.trainer.tally.start()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step // self.dapo.minibatches
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.folder.complete(path, step, self.trainer.refill_state(), keep=self.spec.keep_checkpoints)
        self.folder.prune_chosen(self.spec, step)

    def export(self, path: Path) -> None:
        """Save the current model."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        make_folder(path.parent)
        merge = bool(self.spec.lora and self.spec.lora.merge)
        export(model, self.trainer.processing_class, path, self.caches, merge=merge)

    def _validate(self, validate: Validate, step: int) -> None:
        place = self.folder.path / "validation"
        with _same_random_numbers():
            self.export(place)
            with phase("validating"):
                scores = validate(self.source.base, str(place.resolve()), "rl", None)
        now, chosen = {"step": step, "validation": scores}, self.folder.chosen / str(step)
        best = self.spec.chosen_by and chosen_step(
            self.spec, [*self.folder.records(), now], [*self.folder.kept_steps(), step]
        )
        if best == step:
            make_folder(chosen.parent)
            shutil.rmtree(chosen, ignore_errors=True)
            os.replace(place, chosen)
        else:
            shutil.rmtree(place)
        self.keep(now)


def export(model: PreTrainedModel, tokenizer: Any, path: Path, caches: bool, *, merge: bool = False) -> None:
    """Save a model for other programs, as a whole or not at all, with the value of `use_cache` from before TRL.

    Of a model with adapters, only these are saved, in PEFT's format. `merge` saves the whole model.
    """
    new = path.with_name(path.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
    if merge:
        model = copy.deepcopy(model).merge_and_unload()  # # of a copy, because unmerging again would round
    before, model.config.use_cache = model.config.use_cache, caches
    model.save_pretrained(new)
    model.config.use_cache = before
    tokenizer.save_pretrained(new)
    for file in new.iterdir():
        file.chmod(0o644)  # # safetensors creates files with mode 0600
    os.replace(new, path)


def fitted(dapo: DapoSettings, fit: Fit | None) -> DapoSettings:
    """Return the settings as they fit the GPU, if there is one."""
    if fit is None:
        return dapo
    return dapo.replace(accumulation=fit.accumulation, gradient_checkpointing=fit.gradient_checkpointing)


def trl_arguments(spec: TrainSpec, fit: Fit | None) -> dict[str, Any]:
    """Return the machine's part of TRL's configuration, and the adapter. `fit` describes a GPU."""
    arguments: dict[str, Any] = {"bf16": bool(spec.bf16)}
    if spec.device != "auto":
        arguments["use_cpu"] = spec.device == "cpu"
    if spec.vllm:
        settings = spec.vllm.model_dump(exclude_none=True)
        if fit and spec.vllm.mode == "colocate":
            settings |= {
                "gpu_memory_utilization": fit.gpu_memory_utilization,
                "max_model_length": fit.max_model_length,
            }
        arguments |= {"use_vllm": True} | {f"vllm_{name}": value for name, value in settings.items()}
    if spec.lora:
        from peft import LoraConfig

        targets = spec.lora.targets
        arguments["peft_config"] = LoraConfig(
            r=spec.lora.rank,
            lora_alpha=spec.lora.alpha,
            lora_dropout=spec.lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
        )
    return arguments


def _give_back(trainer: DapoTrainer) -> None:
    """End the trainer's own vLLM and free the GPU's memory for what follows."""
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
    """Restore every random generator afterwards, because validation must not change training."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)

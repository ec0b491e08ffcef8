"""Define a training as validated data: what is trained, with which settings, and how it is validated.

    spec = load_train(read_yaml("training.yaml"))

This module checks everything that can be checked without loading anything. `check_machine` checks the machine.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from rlvr_dir.config import TINY, EngineSpec, Presentation, Sampling, Spec, parse
from rlvr_dir.config.base import Place
from rlvr_dir.config.evaluation import read_names
from rlvr_dir.config.presentation import INSTRUCTION, Prompt
from rlvr_dir.config.sampling import merge_sampling
from rlvr_dir.errors import UserError, mention
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.verl.presets import with_preset
from rlvr_dir.train.verl.spec import Verl

_BEST = re.compile(r"best\((.+)\)")


class Lora(Spec, frozen=True):
    """Train low-rank adapters instead of all weights, saved in PEFT's format, or with `merge` as whole models. It needs
    peft."""

    rank: int = Field(default=16, ge=1, description="Rank of the adapters.")
    alpha: float = Field(default=32.0, gt=0, description="The adapters are scaled by alpha / rank.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout before the adapters.")
    targets: str | tuple[str, ...] = Field(default="all-linear", description="all-linear, or names of projections.")
    merge: bool = Field(default=False, description="Save whole models.")


class Vllm(Spec, frozen=True):
    """Generate rollouts with vLLM instead of transformers, with TRL's `vllm_*` settings. It needs a GPU.

    If vLLM shares the GPU with the training (`colocate`), the default of `gpu_memory_utilization` is what the training
    leaves, and that of `max_model_length` is the longest prompt and a response. In sleep mode, vLLM occupies no memory
    during an update.
    """

    mode: Literal["colocate", "server"] = Field(
        default="colocate", description="colocate: in the training's process; server: a running one."
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="vLLM's share of the GPU; default what the training leaves."
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that share each layer.")
    max_model_length: int | None = Field(
        default=None, ge=8, description="Positions of a request; default the longest prompt and a response."
    )
    enable_sleep_mode: bool = Field(default=True, description="Free vLLM's memory during updates.")
    server_base_url: str | None = Field(default=None, description="Address of the running server.")


class Validation(Presentation, frozen=True):
    """Validate with Avg@k on held-out benchmarks, with the evaluator of `rlvr-dir eval`.

    Models are validated before the training (the base), after every `every` steps (0: never), and at the end. During
    the training only the benchmarks of `watch` are validated, if it names some. Validations draw their own random
    numbers, so their frequency does not change the trained weights. The default of prompt and grader is the training's
    own if it sets them, and otherwise the benchmark's.
    """

    called: ClassVar[str] = "validation"

    tasks: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        default=(), description="Benchmarks to validate on; empty: none."
    )
    sampling: Sampling = Sampling(samples=8, max_tokens=1024)
    limit: int | None = Field(default=None, ge=1, description="Use the first so many problems.")
    every: int = Field(default=0, ge=0, description="Validate after every so many steps; 0: only the base and the end.")
    watch: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        default=(), description="The tasks to validate during the training; empty: all."
    )
    engine: EngineSpec = EngineSpec(backend="transformers")

    @model_validator(mode="after")
    def _check_template(self) -> "Validation":
        if kwargs := self.engine.chat_template_kwargs:
            raise UserError(
                "is not allowed, because the prompts of the training are written without such arguments",
                argument="validation.engine.chat_template_kwargs",
                value=kwargs,
                hint="Leave it out, and use `rlvr-dir eval --chat-template-kwargs` after the training.",
            )
        return self

    @property
    def same(self) -> "Validation":
        """Return it without what may differ between two runs of one training."""
        return self.model_copy(update={"engine": self.engine.model_copy(update={"enforce_eager": None})})

    @field_validator("sampling", "engine", mode="before")
    @classmethod
    def _over_defaults(cls, value: Any, info: ValidationInfo) -> Any:
        """Replace this spec's own defaults, which are not those of the section, by the given values."""
        if not isinstance(value, Mapping):
            return value
        return merge_sampling(cls.model_fields[str(info.field_name)].default.model_dump(), value)


class TrainSpec(Spec, frozen=True):
    """Define a training, which runs once with `dapo` for each of the `seeds`. `load_train` returns it.

    `backend` is `trl`, in this process, or `verl`, on a cluster and in its own environment, which `verl` describes.

    `data` is `tiny` or a JSONL file of `answer` and `prompt` (text or messages) or `problem`. A problem is inserted
    into the template `prompt`, or without one it is followed by `instruction`. `checkpoint_every` counts steps, which
    are the most that a killed process loses. `checkpoint` chooses the step of the trained model: `last`, a step, or
    `best(TASK)`, the validation with the best score on a benchmark.
    """

    called: ClassVar[str] = "training"

    backend: Literal["trl", "verl"] = Field(default="trl", description="trl: in this process; verl: on a cluster.")
    base: Place = Field(default=TINY, description="The model to train: tiny, a directory or a hub id.")
    data: Place = Field(
        default=TINY,
        description="Training problems: tiny, or a JSONL of answer and problem (or prompt: text or messages).",
    )
    instruction: str = Field(default=INSTRUCTION, description="Text after each problem.")
    prompt: Prompt = Field(default=None, description="Instead of the instruction: a template, its file, or math_dapo.")
    seeds: tuple[int, ...] = Field(
        default=(0,), description="Each seed is a separate training; more can be added later."
    )
    dapo: DapoSettings = DapoSettings()
    validation: Validation = Validation()
    checkpoint_every: int = Field(
        default=1, ge=1, description="Steps between checkpoints, which are the most that a killed process loses."
    )
    checkpoint: int | str = Field(default="last", description="The trained model: last, a step, or best(TASK).")
    keep_checkpoints: bool = Field(default=False, description="Keep the checkpoints when the training is finished.")
    lora: Lora | None = Field(default=None, description="Train adapters instead of all weights; needs peft.")
    vllm: Vllm | None = Field(
        default=None, description="Generate rollouts with vLLM on a GPU: {} beside the training, or a server."
    )
    verl: Verl | None = Field(default=None, description="Settings for backend: verl.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto, cpu or cuda.")
    bf16: bool | None = Field(
        default=None, description="Compute in bfloat16; weights stay float32. None: if the GPU can."
    )
    threads: int = Field(default=1, ge=1, description="CPU threads; more than one does not help with tiny matrices.")
    trust_remote_code: bool = Field(default=False, description="Run code that the base contains.")

    @model_validator(mode="after")
    def _check(self) -> "TrainSpec":
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(argument="seeds", value=list(self.seeds), accepted="at least one seed, each of them once")
        if bad := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise UserError(argument="seeds", value=bad, accepted="0 to 2^32 - 1")
        if self.data == TINY and self.base != TINY:
            if self.base.startswith((".", "/")) and not Path(self.base).exists():
                raise UserError(
                    "does not exist", argument="base", value=self.base, accepted="a checkpoint's directory, or a hub id"
                )
            raise UserError(
                f"is not allowed with {mention('base', self.base)}, because only the tiny model can read it",
                argument="data",
                value=self.data,
            )
        if self.data == TINY and self.prompt:
            raise UserError(
                f"has no effect with {mention('data', TINY)}, whose problems have their own prompts",
                argument="prompt",
                value=self.prompt,
            )
        if self.prompt and self.instruction != INSTRUCTION:
            raise UserError(
                f"is given beside {mention('instruction', self.instruction)}",
                argument="prompt",
                value=self.prompt,
                accepted="one of them",
            )
        if self.lora and self.dapo.beta:
            raise UserError("is not allowed with lora", argument="beta", value=self.dapo.beta, accepted="0")
        self._check_checkpoint()
        if self.validation.watch and not self.validation.every:
            watch = list(self.validation.watch)
            raise UserError("has no effect without validation.every", argument="validation.watch", value=watch)
        if self.backend == "verl":
            _refuse_what_verl_cannot(self)
            return self
        if self.verl:
            raise UserError(
                f"The section verl has no effect with {mention('backend', 'trl')}",
                argument="verl",
                accepted=mention("backend", "verl"),
            )
        if self.validation.every and not self.validation.tasks:
            every = self.validation.every
            raise UserError("has no effect without validation.tasks", argument="validation.every", value=every)
        if self.vllm and self.vllm.mode == "server" and not self.vllm.server_base_url:
            raise UserError("needs vllm.server_base_url", argument="vllm.mode", value="server")
        if self.vllm and self.vllm.mode == "colocate":
            self._check_colocated(self.vllm)
        return self

    def _check_checkpoint(self) -> None:
        """Check that the checkpoint will exist and that a validation can choose it."""
        checkpoint = self.checkpoint
        if isinstance(checkpoint, int):
            if not 1 <= checkpoint <= self.dapo.steps:
                raise UserError(
                    "is not a step of the training",
                    argument="checkpoint",
                    value=checkpoint,
                    accepted=f"1 to {self.dapo.steps}",
                )
            if self.backend == "verl" and checkpoint % self.checkpoint_every and checkpoint != self.dapo.steps:
                raise UserError(
                    f"is not saved with {mention('checkpoint_every', self.checkpoint_every)}",
                    argument="checkpoint",
                    value=checkpoint,
                    accepted="a step that is saved",
                )
        elif checkpoint != "last":
            if self.chosen_by is None:
                raise UserError(argument="checkpoint", value=checkpoint, accepted="last, a step, best(TASK)")
            if self.verl and self.verl.val_data:
                self.check_chosen_by([Path(self.verl.val_data).stem])
            if not self.validation.every:
                raise UserError(
                    "needs validations during the training",
                    argument="checkpoint",
                    value=checkpoint,
                    hint="Give validation.every in steps.",
                )

    @property
    def chosen_by(self) -> str | None:
        """Return the benchmark whose best validation chooses the trained model; None if `checkpoint` names a step."""
        match = _BEST.fullmatch(str(self.checkpoint))
        return match[1] if match else None

    def check_chosen_by(self, tasks: Iterable[str]) -> None:
        """Check that the benchmark which chooses the checkpoint is validated during the training.

        Raises:
            UserError: It is not; the error names those that are.
        """
        tasks = list(tasks)
        if self.chosen_by is not None and self.chosen_by not in tasks:
            accepted = ", ".join(["last", "a step", *(f"best({name})" for name in tasks)])
            raise UserError(
                "names a benchmark without validations during the training",
                argument="checkpoint",
                value=self.checkpoint,
                accepted=accepted,
            )

    def _check_colocated(self, vllm: Vllm) -> None:
        """Check that nothing else needs vLLM in the process of the training's own vLLM."""
        if vllm.tensor_parallel_size != 1:
            raise UserError(
                f"is not allowed with {mention('vllm.mode', 'colocate')}, which is one process on one GPU",
                argument="vllm.tensor_parallel_size",
                value=vllm.tensor_parallel_size,
                accepted=f"1, or {mention('vllm.mode', 'server')}",
            )
        if self.validation.tasks and self.validation.engine.backend != "transformers":
            raise UserError(
                f"is not allowed with {mention('vllm.mode', 'colocate')}, because a process can contain one vLLM, "
                "which the training uses",
                argument="validation.engine.backend",
                value=self.validation.engine.backend,
                accepted=f"transformers, or {mention('vllm.mode', 'server')}",
                hint="Or train with validation.tasks: [] and use `rlvr-dir eval` after the training.",
            )

    @property
    def same(self) -> "TrainSpec":
        """Return it without the seeds and what else may differ between the runs in one folder."""
        free = {"validation": self.validation.same, "verl": self.verl and self.verl.same}
        return self.model_copy(update={"seeds": (0,), "bf16": bool(self.bf16), **free})


def _refuse_what_verl_cannot(spec: TrainSpec) -> None:
    """Check that verl can do what the training needs.

    Raises:
        UserError: A setting is not allowed; the error names the key, its value and what is accepted.
    """
    dapo, verl, fields = spec.dapo, spec.verl or Verl(), type(spec.dapo).model_fields
    with_verl = f"is not allowed with {mention('backend', 'verl')}, because verl"
    for name, reason, accepted in (
        ("lora", "trains all weights", ""),
        ("vllm", "has its own engine", "verl.tensor_parallel and verl.gpu_memory_utilization"),
    ):
        if getattr(spec, name):
            raise UserError(f"The section {name} {with_verl} {reason}", argument=name, accepted=accepted)
    for name, only, reason in (
        ("device", "auto", "needs GPUs"),
        ("bf16", None, "always computes in bfloat16, with float32 weights"),
        ("threads", 1, "sets the threads of its processes itself"),
    ):
        if (value := getattr(spec, name)) not in (only, False):
            raise UserError(f"{with_verl} {reason}", argument=name, value=value, hint="Leave it out.")
    for name, reason in (
        ("accumulation", "divides an update by verl.tokens_per_gpu"),
        ("max_generation_rounds", "generates until the groups are full"),
    ):
        if (value := getattr(dapo, name)) != fields[name].default:
            raise UserError(f"{with_verl} {reason}", argument=f"dapo.{name}", value=value, hint="Leave it out.")
    if dapo.delta is None:
        raise UserError(
            f"{with_verl}'s loss is always dual-clipped", argument="dapo.delta", value=None, accepted="a number above 1"
        )
    if dapo.prompts % dapo.minibatches:
        raise UserError(
            f"{with_verl} divides groups, not responses",
            argument="dapo.minibatches",
            value=dapo.minibatches,
            accepted=f"a divisor of {mention('dapo.prompts', dapo.prompts)}",
        )
    if dapo.warmup_updates % dapo.minibatches:
        raise UserError(
            f"{with_verl} warms up by whole steps of {dapo.minibatches} updates",
            argument="dapo.warmup_updates",
            value=dapo.warmup_updates,
            accepted=f"a multiple of {dapo.minibatches}",
        )
    longest = verl.max_prompt_tokens + dapo.max_response_tokens
    if verl.tokens_per_gpu and verl.tokens_per_gpu * verl.sequence_parallel < longest:
        raise UserError(
            f"with {verl.sequence_parallel} GPUs per sequence is less than a prompt and a response, {longest} tokens",
            argument="verl.tokens_per_gpu",
            value=verl.tokens_per_gpu,
            accepted=f"at least {-(-longest // verl.sequence_parallel)}",
        )
    if verl.val_data and not spec.validation.every:
        raise UserError(
            "has no effect without validation.every, in steps", argument="verl.val_data", value=verl.val_data
        )
    if verl.val_data and spec.validation.watch:
        raise UserError(
            f"has no effect with {mention('verl.val_data', verl.val_data)}, on which verl validates",
            argument="validation.watch",
            value=list(spec.validation.watch),
        )
    if spec.validation.every and not (verl.val_data or spec.validation.tasks):
        raise UserError(
            "has no effect without validation.tasks or verl.val_data",
            argument="validation.every",
            value=spec.validation.every,
        )


def load_train(data: Mapping[str, Any], dapo: Mapping[str, Any] | None = None) -> TrainSpec:
    """Return a training from its YAML, over a `preset` if it names one. `dapo` contains further defaults.

    Raises:
        UserError: A key is unknown (the error has the nearest one), a value is not allowed, or parts do not fit
            together.
    """
    if not isinstance(data, Mapping):
        raise UserError("The training is not a mapping", accepted="keys with values")
    data = with_preset(data)
    fields: dict[str, Any] = {name: value for name, value in data.items() if value is not None}
    settings = fields.get("dapo") or {}
    if isinstance(settings, Mapping) and "seed" in settings:
        raise UserError(argument="dapo.seed", value=settings["seed"], accepted="the key seeds, as seeds: [0, 1, 2]")
    if isinstance(settings, Mapping):
        fields["dapo"] = {**(dapo or {}), **settings}
    return parse(TrainSpec, fields)


def plain(spec: TrainSpec) -> dict[str, Any]:
    """Return the training as plain values that `load_train` reads back."""
    data = spec.model_dump(mode="json")
    del data["dapo"]["seed"]
    return data


def check_machine(spec: TrainSpec) -> None:
    """Check that this machine can run the training, before anything loads.

    Raises:
        UserError: A GPU or a package is missing, or there is more than one process.
    """
    import os
    from importlib.util import find_spec

    if spec.backend == "verl":
        return  # # it has its own machines and environment, which `rlvr_dir.train.verl` checks
    if find_spec("trl") is None:
        raise UserError("Training needs TRL, which is not installed", hint="Install rlvr-dir[train].")
    if spec.lora and find_spec("peft") is None:
        raise UserError(
            "needs peft, which is not installed",
            argument="lora.rank",
            value=spec.lora.rank,
            hint="Run pip install peft, or train without lora.",
        )
    import torch

    gpu = torch.cuda.is_available() and spec.device != "cpu"
    if spec.device == "cuda" and not gpu:
        raise UserError(
            "is not possible here: this machine has no GPU that torch can use",
            argument="device",
            value=spec.device,
            accepted="cpu",
        )
    if spec.vllm and not gpu:
        raise UserError("Rollouts by vLLM need a GPU", argument="vllm", hint="On a CPU, leave the section vllm out.")
    if spec.vllm and spec.vllm.mode == "colocate" and find_spec("vllm") is None:
        raise UserError("needs vLLM, which is not installed", argument="vllm.mode", value="colocate")
    if spec.bf16 and not gpu:
        raise UserError("needs a GPU", argument="bf16", value=True, hint="On a CPU, leave it out.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "is not allowed, because this backend trains in one process",
            argument="WORLD_SIZE",
            value=os.environ["WORLD_SIZE"],
        )

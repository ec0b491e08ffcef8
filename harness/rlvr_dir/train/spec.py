"""What is trained, on what, how often and how it is checked: a training as validated data.

    spec = load_train(read_yaml("training.yaml"))

Everything that can be known without loading anything is refused here; `check_machine` asks what the machine has.
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
from rlvr_dir.errors import UserError
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.verl.presets import with_preset
from rlvr_dir.train.verl.spec import Verl

_BEST = re.compile(r"best\((.+)\)")


class Lora(Spec, frozen=True):
    """Low-rank adapters instead of all weights, saved as PEFT does; with `merge` as whole models. Needs peft."""

    rank: int = Field(default=16, ge=1, description="Of the low-rank terms.")
    alpha: float = Field(default=32.0, gt=0, description="The terms are scaled by alpha / rank.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Before the low-rank terms.")
    targets: str | tuple[str, ...] = Field(default="all-linear", description="all-linear, or names of projections.")
    merge: bool = Field(default=False, description="Save whole models.")


class Vllm(Spec, frozen=True):
    """Rollouts by vLLM instead of transformers: TRL's `vllm_*` settings. Needs a GPU.

    Where it shares the GPU with the training (`colocate`), `gpu_memory_utilization` is what the training leaves, and
    `max_model_length` the longest prompt and a response; asleep it holds nothing while an update is made.
    """

    mode: Literal["colocate", "server"] = Field(default="colocate", description="colocate or server.")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="Default what the training leaves."
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that share each layer.")
    max_model_length: int | None = Field(default=None, ge=8, description="Default the longest prompt and a response.")
    enable_sleep_mode: bool = Field(default=True, description="vLLM holds nothing while an update is made.")
    server_base_url: str | None = Field(default=None, description="Of a running server.")


class Validation(Presentation, frozen=True):
    """Avg@k on held-out benchmarks, by the evaluator of `rlvr-dir eval`: of the base, then every `every` steps (0:
    never), and in the end. On the way only those of `watch` are validated, if any are named there. Drawing is by its
    own noise: how often it happens changes no weight. Where it names no prompt or grader, the training's prompt and
    `dapo.grader` hold if they are not the defaults, and then the benchmark's own."""

    called: ClassVar[str] = "validation"

    tasks: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        default=(), description="Benchmarks of `rlvr-dir eval`; empty: none."
    )
    sampling: Sampling = Sampling(samples=8, max_tokens=1024)
    limit: int | None = Field(default=None, ge=1, description="First problems only.")
    every: int = Field(default=0, ge=0, description="Steps; 0: the base and the end alone.")
    watch: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        default=(), description="Of tasks, those validated on the way; empty: all."
    )
    engine: EngineSpec = EngineSpec(backend="transformers")

    @model_validator(mode="after")
    def _check_template(self) -> "Validation":
        if kwargs := self.engine.chat_template_kwargs:
            raise ValueError(
                f"validation.engine.chat_template_kwargs={kwargs} is refused: the training's own prompts are written "
                "without; accepted: leave it out, and `rlvr-dir eval --chat-template-kwargs` afterwards"
            )
        return self

    @property
    def same(self) -> "Validation":
        """Return it without what may differ between two runs of one training."""
        return self.model_copy(update={"engine": self.engine.model_copy(update={"enforce_eager": None})})

    @field_validator("sampling", "engine", mode="before")
    @classmethod
    def _over_defaults(cls, value: Any, info: ValidationInfo) -> Any:
        """Put what is given over this spec's own defaults, which are not those of the section."""
        if not isinstance(value, Mapping):
            return value
        return merge_sampling(cls.model_fields[str(info.field_name)].default.model_dump(), value)


class TrainSpec(Spec, frozen=True):
    """A training: `dapo` once for each of the `seeds`. `load_train` makes it.

    `backend` is `trl`, in this process, or `verl`, on a cluster and in an environment of its own, as `verl` says.

    `data` is `tiny` or a JSONL file of `answer` and `prompt` (text or messages) or `problem`, which is put by the
    template `prompt`, and without one with `instruction` behind it. `checkpoint_every` counts steps: what is lost when
    the process is killed. `checkpoint` says which step's model is the trained one: `last`, a step, or `best(TASK)`, the
    validation that scored best on a benchmark.
    """

    called: ClassVar[str] = "training"

    backend: Literal["trl", "verl"] = Field(default="trl", description="trl here, verl on a cluster.")
    base: Place = Field(default=TINY, description="tiny, a directory or a hub id.")
    data: Place = Field(
        default=TINY, description="tiny, or a JSONL of answer and problem (or prompt: text or messages)."
    )
    instruction: str = Field(default=INSTRUCTION, description="Stands behind each problem.")
    prompt: Prompt = Field(default=None, description="In place of the instruction: a template, its file, or math_dapo.")
    seeds: tuple[int, ...] = Field(default=(0,), description="Each is a training of its own; more can be added later.")
    dapo: DapoSettings = DapoSettings()
    validation: Validation = Validation()
    checkpoint_every: int = Field(default=1, ge=1, description="Steps: what a kill loses.")
    checkpoint: int | str = Field(default="last", description="The trained model: last, a step, or best(TASK).")
    keep_checkpoints: bool = Field(default=False, description="Keep them when the training is done.")
    lora: Lora | None = Field(default=None, description="Adapters in place of all weights; needs peft.")
    vllm: Vllm | None = Field(
        default=None, description="Rollouts by vLLM on a GPU: {} beside the training, or a server."
    )
    verl: Verl | None = Field(default=None, description="For backend: verl.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto, cpu or cuda.")
    bf16: bool | None = Field(default=None, description="Autocast, weights stay float32; None: on a GPU that can.")
    threads: int = Field(default=1, ge=1, description="Of the CPU: on tiny matrices a second only waits.")
    trust_remote_code: bool = Field(default=False, description="Run code that the base brings.")

    @model_validator(mode="after")
    def _check(self) -> "TrainSpec":
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds={list(self.seeds)} is empty or names one twice")
        if bad := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise ValueError(f"seeds={bad} is refused; accepted: 0 to 2^32 - 1")
        if self.data == TINY and self.base != TINY:
            if self.base.startswith((".", "/")) and not Path(self.base).exists():
                raise ValueError(f"base={self.base!r} does not exist; accepted: a checkpoint's directory, or a hub id")
            raise ValueError(f"data='tiny' is not allowed with base={self.base!r}: only the tiny model can read it")
        if self.data == TINY and self.prompt:
            raise ValueError("prompt has no effect with data='tiny', whose problems have their own")
        if self.prompt and self.instruction != INSTRUCTION:
            raise ValueError("prompt and instruction are both given; accepted: one of them")
        if self.lora and self.dapo.beta:
            raise ValueError(f"beta={self.dapo.beta} is not allowed with lora; accepted: 0")
        self._check_checkpoint()
        if self.validation.watch and not self.validation.every:
            raise ValueError(f"validation.watch={list(self.validation.watch)} has no effect without validation.every")
        if self.backend == "verl":
            _refuse_what_verl_cannot(self)
            return self
        if self.verl:
            raise ValueError("verl has no effect with backend='trl'; accepted: backend: verl")
        if self.validation.every and not self.validation.tasks:
            raise ValueError(f"validation.every={self.validation.every} has no effect without validation.tasks")
        if self.vllm and self.vllm.mode == "server" and not self.vllm.server_base_url:
            raise ValueError("vllm.mode='server' needs vllm.server_base_url")
        if self.vllm and self.vllm.mode == "colocate":
            self._check_colocated(self.vllm)
        return self

    def _check_checkpoint(self) -> None:
        """Refuse a checkpoint that will not be there, or that nothing chooses."""
        checkpoint = self.checkpoint
        if isinstance(checkpoint, int):
            if not 1 <= checkpoint <= self.dapo.steps:
                raise ValueError(f"checkpoint={checkpoint} is refused: the training has steps 1 to {self.dapo.steps}")
            if self.backend == "verl" and checkpoint % self.checkpoint_every and checkpoint != self.dapo.steps:
                raise ValueError(
                    f"checkpoint={checkpoint} is refused: checkpoint_every={self.checkpoint_every} skips it"
                )
        elif checkpoint != "last":
            if self.chosen_by is None:
                raise ValueError(f"checkpoint={checkpoint!r} is refused; accepted: last, a step, best(TASK)")
            if self.verl and self.verl.val_data:
                self.check_chosen_by([Path(self.verl.val_data).stem])
            if not self.validation.every:
                raise ValueError(
                    f"checkpoint={checkpoint!r} needs validations on the way; give validation.every in steps"
                )

    @property
    def chosen_by(self) -> str | None:
        """Return the benchmark whose best validation is the trained model; None where a step is named."""
        match = _BEST.fullmatch(str(self.checkpoint))
        return match[1] if match else None

    def check_chosen_by(self, tasks: Iterable[str]) -> None:
        """Refuse a checkpoint that is to be the best by a benchmark that is not validated on the way.

        Raises:
            UserError: naming those that are.
        """
        tasks = list(tasks)
        if self.chosen_by is not None and self.chosen_by not in tasks:
            accepted = ", ".join(["last", "a step", *(f"best({name})" for name in tasks)])
            raise UserError(f"checkpoint={self.checkpoint!r} is refused; accepted: {accepted}")

    def _check_colocated(self, vllm: Vllm) -> None:
        """Refuse what cannot live in one process with the training's own vLLM."""
        if vllm.tensor_parallel_size != 1:
            raise ValueError(
                f"vllm.tensor_parallel_size={vllm.tensor_parallel_size} is not allowed with vllm.mode='colocate', "
                "which is one process on one GPU; accepted: 1, or vllm.mode: server"
            )
        if self.validation.tasks and self.validation.engine.backend != "transformers":
            raise ValueError(
                f"validation.engine.backend={self.validation.engine.backend!r} is refused with vllm.mode='colocate': "
                "a process can hold one vLLM, and the training has it; accepted: transformers, vllm.mode: server, or "
                "validation.tasks: [] and `rlvr-dir eval` afterwards"
            )

    @property
    def same(self) -> "TrainSpec":
        """Return it without the seeds: what has to be equal for a folder to be gone on with."""
        free = {"validation": self.validation.same, "verl": self.verl and self.verl.same}
        return self.model_copy(update={"seeds": (0,), "bf16": bool(self.bf16), **free})


def _refuse_what_verl_cannot(spec: TrainSpec) -> None:
    """Refuse what the TRL backend can do and verl cannot, and numbers that cannot be said in verl's units.

    Raises:
        ValueError: one sentence that names the key, its value and what would be accepted.
    """
    dapo, verl, fields = spec.dapo, spec.verl or Verl(), type(spec.dapo).model_fields
    with_verl = "is not allowed with backend='verl'"
    for name, reason in (
        ("lora", "it trains all weights"),
        ("vllm", "it has its own engine; accepted: verl.tensor_parallel, verl.gpu_memory_utilization"),
    ):
        if getattr(spec, name):
            raise ValueError(f"{name} {with_verl}: {reason}")
    for name, only, reason in (
        ("device", "auto", "it needs GPUs"),
        ("bf16", None, "it always computes in bfloat16, on float32 weights"),
        ("threads", 1, "its processes set their own"),
    ):
        if (value := getattr(spec, name)) not in (only, False):
            raise ValueError(f"{name}={value!r} {with_verl}: {reason}; leave it out")
    for name, reason in (
        ("accumulation", "verl.tokens_per_gpu sizes the pieces"),
        ("max_generation_rounds", "it draws until the groups are full"),
    ):
        if (value := getattr(dapo, name)) != fields[name].default:
            raise ValueError(f"dapo.{name}={value!r} {with_verl}: {reason}; leave it out")
    if dapo.delta is None:
        raise ValueError(f"dapo.delta=None {with_verl}: its loss is always dual-clipped; accepted: a number above 1")
    if dapo.prompts % dapo.minibatches:
        raise ValueError(
            f"dapo.minibatches={dapo.minibatches} {with_verl}: it divides groups and not responses, and there are "
            f"{dapo.prompts} (dapo.prompts)"
        )
    if dapo.warmup_updates % dapo.minibatches:
        raise ValueError(
            f"dapo.warmup_updates={dapo.warmup_updates} {with_verl}: it warms up by whole steps of "
            f"{dapo.minibatches} updates; accepted: a multiple of that"
        )
    longest = verl.max_prompt_tokens + dapo.max_response_tokens
    if verl.tokens_per_gpu and verl.tokens_per_gpu * verl.sequence_parallel < longest:
        raise ValueError(
            f"verl.tokens_per_gpu={verl.tokens_per_gpu} on {verl.sequence_parallel} GPUs a sequence is less than a "
            f"prompt and a response of {longest} tokens; accepted: at least {-(-longest // verl.sequence_parallel)}"
        )
    if verl.val_data and not spec.validation.every:
        raise ValueError(f"verl.val_data={verl.val_data!r} has no effect without validation.every, in steps")
    if verl.val_data and spec.validation.watch:
        raise ValueError(
            f"validation.watch has no effect with verl.val_data={verl.val_data!r}, which verl validates on"
        )
    if spec.validation.every and not (verl.val_data or spec.validation.tasks):
        raise ValueError(
            f"validation.every={spec.validation.every} has no effect without validation.tasks or verl.val_data"
        )


def load_train(data: Mapping[str, Any], dapo: Mapping[str, Any] | None = None) -> TrainSpec:
    """Make a training from its YAML, over a `preset` where it names one; `dapo` has what is used where nothing is said.

    Raises:
        UserError: an unknown key (the sentence has the nearest one), a value that is refused, or parts that do not fit
            together.
    """
    if not isinstance(data, Mapping):
        raise UserError("the training is not a mapping of keys to values")
    data = with_preset(data)
    fields: dict[str, Any] = {name: value for name, value in data.items() if value is not None}
    settings = fields.get("dapo") or {}
    if isinstance(settings, Mapping) and "seed" in settings:
        raise UserError(f"dapo.seed={settings['seed']!r} is refused: a training has seeds; accepted: seeds: [0, 1, 2]")
    if isinstance(settings, Mapping):
        fields["dapo"] = {**(dapo or {}), **settings}
    return parse(TrainSpec, fields)


def plain(spec: TrainSpec) -> dict[str, Any]:
    """Return the training as plain values that `load_train` reads back."""
    data = spec.model_dump(mode="json")
    del data["dapo"]["seed"]
    return data


def check_machine(spec: TrainSpec) -> None:
    """Refuse what this machine cannot do, before anything loads.

    Raises:
        UserError: a GPU or a package that is missing, or more than one process.
    """
    import os
    from importlib.util import find_spec

    if spec.backend == "verl":
        return  # it has machines and an environment of its own, which `rlvr_dir.train.verl` asks
    if find_spec("trl") is None:
        raise UserError("training needs TRL, which is not installed; install rlvr-dir[train]")
    if spec.lora and find_spec("peft") is None:
        raise UserError(f"lora.rank={spec.lora.rank} needs peft, which is not installed; pip install peft, or leave it")
    import torch

    gpu = torch.cuda.is_available() and spec.device != "cpu"
    if spec.device == "cuda" and not gpu:
        raise UserError("device='cuda' is refused: this machine has no GPU that torch can use; accepted: cpu")
    if spec.vllm and not gpu:
        raise UserError("vllm is refused: rollouts by vLLM need a GPU; on a CPU leave it out")
    if spec.vllm and spec.vllm.mode == "colocate" and find_spec("vllm") is None:
        raise UserError("vllm.mode='colocate' needs vLLM, which is not installed")
    if spec.bf16 and not gpu:
        raise UserError("bf16=True is refused: it needs a GPU; on a CPU leave it out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"WORLD_SIZE={os.environ['WORLD_SIZE']} is refused: this backend trains in one process")

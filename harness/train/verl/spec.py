"""What is asked of verl beyond the training itself: where it runs and how a model is laid over its GPUs."""

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from harness.spec import Spec

if TYPE_CHECKING:
    from harness.train.spec import TrainSpec

PYTHON = ".venv-verl/bin/python"  # of `make verl-env`


class Verl(Spec, frozen=True):
    """The section `verl` of a training with `backend: verl`.

    `overrides` are further arguments of verl's, as on its command line; they are checked like ours. `val_data` is a
    file like `data`, which verl validates on every `validation.every` steps with `validation.sampling`.
    """

    python: str = PYTHON  # of the environment that has verl and rlvr-dir, on every node
    nnodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=8, ge=1)
    tensor_parallel: int = Field(default=1, ge=1)  # GPUs an engine of the rollouts
    sequence_parallel: int = Field(default=1, ge=1)  # GPUs a sequence of the updates (Ulysses)
    offload: bool = False  # weights and optimizer wait in the CPU's memory
    gpu_memory_utilization: float = Field(default=0.5, gt=0, le=1)  # of the rollouts' engine
    tokens_per_gpu: int | None = Field(default=None, ge=1)  # of a micro-batch; default 2 x (prompt + response)
    max_prompt_tokens: int = Field(default=2048, ge=1)
    val_data: str | None = None
    overrides: tuple[str, ...] = ()
    hang_minutes: float = Field(default=120.0, gt=0)  # without a finished step: killed
    grace_seconds: float = Field(default=60.0, ge=0)  # between asking verl to end and ending it

    @model_validator(mode="after")
    def _check(self) -> "Verl":
        for name in ("tensor_parallel", "sequence_parallel"):
            if self.gpus % (size := getattr(self, name)):
                raise ValueError(f"verl.{name}={size} does not divide nnodes x gpus_per_node = {self.gpus}")
        return self

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.nnodes * self.gpus_per_node

    @property
    def same(self) -> "Verl":
        """Without what may differ between two runs of one training."""
        free = ("python", "hang_minutes", "grace_seconds")
        return self.model_copy(update={name: Verl.model_fields[name].default for name in free})


def refuse_unfit(spec: "TrainSpec") -> None:
    """Refuses what the TRL backend can do and verl cannot, and numbers that cannot be said in verl's units.

    Raises:
        ValueError: one sentence that names the key, its value and what would be accepted.
    """
    dapo, verl, fields = spec.dapo, spec.verl or Verl(), type(spec.dapo).model_fields
    with_verl = "is refused with backend='verl'"
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
    if bool(spec.validation.every) != bool(verl.val_data):
        raise ValueError(
            f"validation.every={spec.validation.every} and verl.val_data={verl.val_data!r} go together {with_verl}: "
            "verl validates on val_data; validation.tasks are for the base and the trained model"
        )

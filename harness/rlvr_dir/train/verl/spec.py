"""Define the settings of verl beyond the training itself: its environment, and how a model is distributed over GPUs."""

from pydantic import Field, model_validator

from rlvr_dir.config import Spec
from rlvr_dir.config.base import Place
from rlvr_dir.errors import UserError

PYTHON = ".venv-verl/bin/python"  # # of `make verl-env`


class Verl(Spec, frozen=True):
    """Define the section `verl` of a training with `backend: verl`.

    `overrides` are further arguments of verl, in the syntax of its command line. They are checked like ours. `val_data`
    is a file in the format of `data`, on which verl validates every `validation.every` steps with
    `validation.sampling`.
    """

    python: str = Field(default=PYTHON, description="Python of the environment with verl and rlvr-dir, on every node.")
    nnodes: int = Field(default=1, ge=1, description="Machines.")
    gpus_per_node: int = Field(default=8, ge=1, description="GPUs of each machine.")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs per engine of the rollouts.")
    sequence_parallel: int = Field(default=1, ge=1, description="GPUs per sequence of the updates (Ulysses).")
    offload: bool = Field(
        default=False, description="Keep weights and optimizer in CPU memory while they are not used."
    )
    gpu_memory_utilization: float = Field(default=0.5, gt=0, le=1, description="The rollout engine's share of a GPU.")
    tokens_per_gpu: int | None = Field(
        default=None, ge=1, description="Tokens of a micro-batch; default 2 x (prompt + response)."
    )
    max_prompt_tokens: int = Field(default=2048, ge=1, description="Longer prompts are cut.")
    max_position_embeddings: int | None = Field(
        default=None, ge=1, description="Positions instead of the base's own, to train beyond them."
    )
    val_data: Place | None = Field(default=None, description="A file in the format of data, on which verl validates.")
    overrides: tuple[str, ...] = Field(default=(), description="Further arguments of verl.")

    @model_validator(mode="after")
    def _check(self) -> "Verl":
        for name in ("tensor_parallel", "sequence_parallel"):
            if self.gpus % (size := getattr(self, name)):
                raise UserError(
                    f"does not divide nnodes x gpus_per_node = {self.gpus}",
                    argument=f"verl.{name}",
                    value=size,
                    accepted=f"a divisor of {self.gpus}",
                )
        return self

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the whole cluster."""
        return self.nnodes * self.gpus_per_node

    @property
    def same(self) -> "Verl":
        """Return it without what may differ between two runs of one training."""
        return self.model_copy(update={"python": PYTHON})

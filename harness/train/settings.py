"""The settings of a DAPO run, as validated data with the reason for each default beside it."""

from pydantic import Field, model_validator

from harness.spec import Spec


class DapoSettings(Spec):
    """DAPO (arXiv 2503.14476). The loss's defaults are the paper's; sizes and rate suit the tiny pair
    (which is itself stopped earlier: `harness.tiny.recipe.TINY_DAPO`).

    One step generates `prompts` x `samples` responses and then makes `minibatches` optimizer updates on them.
    """

    steps: int = Field(default=16, ge=1)
    prompts: int = Field(default=16, ge=1)  # groups a step
    samples: int = Field(default=16, ge=2)  # responses a group
    minibatches: int = Field(default=4, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)  # the tiny pair is near its ceiling after 5 steps of it
    warmup_updates: int = Field(default=0, ge=0)  # optimizer updates, `minibatches` of them a step
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.28, gt=0)  # "clip higher": room for unlikely tokens to grow
    delta: float | None = Field(default=10.0, gt=1)  # caps the ratio where the advantage is negative (dual clip)
    beta: float = Field(default=0.0, ge=0)  # no KL penalty
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)  # rollouts come from the policy that is trained
    max_response_tokens: int = Field(default=128, ge=1)
    dynamic_sampling: bool = True  # only groups with both right and wrong responses teach anything
    max_generation_rounds: int = Field(default=4, ge=1)  # a step's attempts at filling its groups
    gradient_checkpointing: bool = False
    seed: int = Field(default=0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _check(self) -> "DapoSettings":
        if self.prompts * self.samples % self.minibatches:
            raise ValueError(
                f"minibatches={self.minibatches} does not divide prompts x samples = {self.prompts * self.samples}"
            )
        return self

    @property
    def responses(self) -> int:
        """Responses a step learns from."""
        return self.prompts * self.samples

    @property
    def minibatch(self) -> int:
        """Responses an optimizer update."""
        return self.responses // self.minibatches

"""Define the settings of a DAPO run as validated data."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from rlvr_dir.config import Spec
from rlvr_dir.config.presentation import DEFAULT_GRADER, Grader
from rlvr_dir.errors import UserError, mention
from rlvr_dir.policy.reweighting import (
    PLAIN,
    Reweighting,
    default_alphas,
    method_names,
    reweighting,
    reweightings,
)

if TYPE_CHECKING:
    Method = str
else:
    Method = Literal[tuple(reweightings())]


class DapoSettings(Spec, frozen=True):
    """Define a DAPO training (arXiv 2503.14476).

    The loss's defaults are the paper's. Sizes and the learning rate suit the tiny pair, which is itself stopped earlier
    (`examples.tiny.recipe.TINY_DAPO`).

    One step generates `prompts` x `samples` responses and then makes `minibatches` optimizer updates on them, each in
    `accumulation` parts.

    `method` reweights the advantages (`rlvr_dir.policy.reweighting`). Its own `alpha` and `clip_high` are the defaults.
    """

    steps: int = Field(
        default=16, ge=1, description="RL steps; each makes `minibatches` updates. With the tiny base 8."
    )
    prompts: int = Field(default=16, ge=1, description="Groups per step.")
    samples: int = Field(default=16, ge=2, description="Responses per group.")
    minibatches: int = Field(default=4, ge=1, description="Optimizer updates per step.")
    accumulation: int = Field(
        default=1,
        ge=1,
        description="Forward and backward passes per update; more need less memory for the same update.",
    )
    learning_rate: float = Field(default=1e-4, gt=0, description="Adam's learning rate. With the tiny base 2e-5.")
    warmup_updates: int = Field(
        default=0, ge=0, description="Optimizer updates of warm-up, `minibatches` of them per step."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Adam's weight decay.")
    method: Method = Field(default=PLAIN, description=f"{method_names()}.")
    alpha: float = Field(
        default=0.0, ge=0, le=10, description=f"Default {default_alphas()}.", json_schema_extra={"written": None}
    )
    pi_source: Literal["old", "current"] = Field(
        default="old", description="The probability that determines a weight, if the method needs no whole batch."
    )
    ppl_scope: Literal["batch", "group"] = Field(
        default="batch",
        description="The responses that a method of the whole batch compares; ppl's authors use group.",
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The loss clips the ratio at 1 minus this.")
    clip_high: float = Field(
        default=Reweighting.clip_high,
        gt=0,
        description="The loss clips the ratio at 1 plus this; default the method's own.",
        json_schema_extra={"written": None},
    )
    delta: float | None = Field(
        default=10.0, gt=1, description="Largest ratio if the advantage is negative (dual clip)."
    )
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL term.")
    temperature: float = Field(default=1.0, gt=0, description="Temperature of the rollouts.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Top-p of the rollouts, which the trained policy generates."
    )
    max_response_tokens: int = Field(default=128, ge=1, description="Longest rollout, in tokens.")
    overlong_buffer: int = Field(
        default=0, ge=0, description="The last so many tokens, over which the penalty grows; 0: no penalty."
    )
    overlong_penalty: float = Field(
        default=1.0, gt=0, le=1, description="Penalty at full length, on DAPO's scale from -1 to +1."
    )
    grader: Grader = Field(default=DEFAULT_GRADER, description="The grader, as in evaluation.")
    dynamic_sampling: bool = Field(
        default=True,
        description="Replace groups whose responses are all right or all wrong, because they teach nothing.",
    )
    max_generation_rounds: int = Field(
        default=4, ge=1, description="A step's largest number of attempts to fill its groups."
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Store no activations: less memory, the same update."
    )
    seed: int = Field(default=0, ge=0, lt=2**32)

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the settings that a user can set. The seed is not among them, because a training may have several."""
        return {name: info for name, info in cls.model_fields.items() if name != "seed"}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Add what the method implies, so two ways of writing one run are equal."""
        if not isinstance(data, dict):
            return data
        data = {name: value for name, value in data.items() if value is not None or name not in ("alpha", "clip_high")}
        method = data.get("method", PLAIN)
        if not isinstance(method, str) or (way := reweightings().get(method)) is None:
            return data  # # the field's own check reports it
        return {"alpha": way.alpha, "clip_high": way.clip_high, **data}

    @model_validator(mode="after")
    def _check(self) -> "DapoSettings":
        if self.responses % (self.minibatches * self.accumulation):
            argument = "minibatches" if self.accumulation == 1 else "minibatches x accumulation"
            raise UserError(
                f"does not divide prompts x samples = {self.responses}",
                argument=argument,
                value=self.minibatches * self.accumulation,
                accepted=f"a divisor of {self.responses}",
            )
        if self.overlong_buffer > self.max_response_tokens:
            raise UserError(
                f"is longer than {mention('max_response_tokens', self.max_response_tokens)}",
                argument="overlong_buffer",
                value=self.overlong_buffer,
                accepted=f"at most {self.max_response_tokens}",
            )
        if (error := self.reweighting.refusal()) is not None:
            raise error
        if self.pi_source != "old" and (self.is_plain or self.reweighting.whole_batch):
            raise UserError(
                f"has no effect with {mention('method', self.method)}", argument="pi_source", value=self.pi_source
            )
        if self.ppl_scope != "batch" and not self.reweighting.whole_batch:
            raise UserError(
                f"has no effect with {mention('method', self.method)}", argument="ppl_scope", value=self.ppl_scope
            )
        return self

    @property
    def reweighting(self) -> Reweighting:
        """Return the method of reweighting that `method` and `alpha` describe."""
        return reweighting(self.method, self.alpha)

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is reweighted (plain DAPO)."""
        return self.method == PLAIN

    def replace(self, **changes: Any) -> "DapoSettings":
        """Return a validated copy with some fields changed. Another method also brings its own defaults.

        Raises:
            UserError: The changed settings are not valid.
        """
        if changes.get("method", self.method) != self.method:
            changes = {"alpha": None, "clip_high": None, **changes}
        return super().replace(**changes)

    @property
    def responses(self) -> int:
        """Return the number of responses from which a step learns."""
        return self.prompts * self.samples

    @property
    def step_tokens(self) -> int:
        """Return the largest number of tokens of the responses from which a step learns."""
        return self.responses * self.max_response_tokens

    @property
    def minibatch(self) -> int:
        """Return the number of responses per optimizer update."""
        return self.responses // self.minibatches

    @property
    def label(self) -> str:
        """Return a short name for tables: `DAPO`, `low_prob α0.2`."""
        return self.reweighting.label + ("" if self.top_p == 1 else f" top-p {self.top_p:g}")

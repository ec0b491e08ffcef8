"""The settings of a DAPO run, as validated data with the reason for each default beside it."""

from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from harness.spec import Spec
from harness.spec.presentation import DEFAULT_GRADER, Grader

Reweighting = Literal["none", "low_prob", "dominate", "ppl"]
ALPHAS = {"none": 0.0, "low_prob": 0.2, "dominate": 0.1, "ppl": 0.01}  # the paper's, for Qwen2.5-Math-7B
CLIP_HIGH = {"dominate": 0.24}  # its authors' value; with 0.28 the paper saw it become unstable


class DapoSettings(Spec, frozen=True):
    """DAPO (arXiv 2503.14476). The loss's defaults are the paper's; sizes and rate suit the tiny pair
    (which is itself stopped earlier: `examples.tiny.recipe.TINY_DAPO`).

    One step generates `prompts` x `samples` responses and then makes `minibatches` optimizer updates on them, each
    from `accumulation` pieces.

    `method` reweights the advantages (`harness.policy.advantages`); `alpha` and, for `dominate`, `clip_high` follow it
    where they are not given.
    """

    steps: int = Field(default=16, ge=1, description="Of generation; each makes `minibatches` updates.")
    prompts: int = Field(default=16, ge=1, description="Groups a step.")
    samples: int = Field(default=16, ge=2, description="Responses a group.")
    minibatches: int = Field(default=4, ge=1, description="Optimizer updates a step.")
    accumulation: int = Field(
        default=1, ge=1, description="Forward and backward passes an update: less memory, the same update."
    )
    learning_rate: float = Field(default=1e-4, gt=0, description="Adam's; the default suits the tiny pair.")
    warmup_updates: int = Field(default=0, ge=0, description="Optimizer updates, `minibatches` of them a step.")
    weight_decay: float = Field(default=0.0, ge=0, description="Adam's.")
    method: Reweighting = Field(default="none", description="none, low_prob, dominate or ppl.")
    alpha: float = Field(default=0.0, ge=0, le=10, description="Default 0.2, 0.1, 0.01 by method, the paper's.")
    pi_source: Literal["old", "current"] = Field(
        default="old", description="Whose probability low_prob and dominate weigh by."
    )
    ppl_scope: Literal["batch", "group"] = Field(
        default="batch", description="Over what ppl standardises; its authors' code: group."
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The loss clips the ratio below 1 minus this.")
    clip_high: float = Field(default=0.28, gt=0, description="And above 1 plus this; 0.24 with dominate.")
    delta: float | None = Field(
        default=10.0, gt=1, description="Caps the ratio where the advantage is negative (dual clip)."
    )
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL term.")
    temperature: float = Field(default=1.0, gt=0, description="Of the rollouts.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Of the rollouts, which come from the policy that is trained."
    )
    max_response_tokens: int = Field(default=128, ge=1, description="Of a rollout.")
    overlong_buffer: int = Field(
        default=0, ge=0, description="The penalty grows over the last so many tokens; 0: no penalty."
    )
    overlong_penalty: float = Field(
        default=1.0, gt=0, le=1, description="At full length, where right is +1 and wrong is -1."
    )
    grader: Grader = Field(default=DEFAULT_GRADER, description="As in evaluation.")
    dynamic_sampling: bool = Field(
        default=True, description="Only groups with both right and wrong responses teach anything."
    )
    max_generation_rounds: int = Field(default=4, ge=1, description="A step's attempts at filling its groups.")
    gradient_checkpointing: bool = Field(
        default=False, description="Keep no activations: less memory, the same update."
    )
    seed: int = Field(default=0, ge=0, lt=2**32)

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return what may be said: the seed is that of the training, which may have several."""
        return {name: info for name, info in cls.model_fields.items() if name != "seed"}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Add what the method implies where nothing is said, so that two ways of writing one run are equal."""
        if not isinstance(data, dict):
            return data
        data = {name: value for name, value in data.items() if value is not None or name not in ("alpha", "clip_high")}
        if not isinstance(method := data.get("method", "none"), str):
            return data
        if method in ALPHAS:
            data.setdefault("alpha", ALPHAS[method])
        if method in CLIP_HIGH:
            data.setdefault("clip_high", CLIP_HIGH[method])
        return data

    @model_validator(mode="after")
    def _check(self) -> "DapoSettings":
        if self.responses % (self.minibatches * self.accumulation):
            pieces = "minibatches" if self.accumulation == 1 else "minibatches x accumulation"
            raise ValueError(
                f"{pieces}={self.minibatches * self.accumulation} does not divide prompts x samples = {self.responses}"
            )
        if self.overlong_buffer > self.max_response_tokens:
            raise ValueError(
                f"overlong_buffer={self.overlong_buffer} is longer than "
                f"max_response_tokens={self.max_response_tokens}; accepted: at most that"
            )
        if self.method == "none" and self.alpha:
            raise ValueError(f"alpha={self.alpha} has no effect with method='none'; accepted: low_prob, dominate, ppl")
        if self.method == "dominate" and self.alpha > 1:
            raise ValueError(f"alpha={self.alpha} turns advantages round with method='dominate'; accepted: 0 to 1")
        if self.method not in ("low_prob", "dominate") and self.pi_source != "old":
            raise ValueError(f"pi_source={self.pi_source!r} has no effect with method={self.method!r}")
        if self.method != "ppl" and self.ppl_scope != "batch":
            raise ValueError(f"ppl_scope={self.ppl_scope!r} has no effect with method={self.method!r}")
        return self

    def replace(self, **changes: Any) -> "DapoSettings":
        """Return a validated copy with some fields changed; with another method, also what that method implies.

        Raises:
            UserError: the changed settings are not valid.
        """
        if changes.get("method", self.method) != self.method:
            changes = {"alpha": None, "clip_high": None, **changes}
        return super().replace(**changes)

    @property
    def responses(self) -> int:
        """Responses a step learns from."""
        return self.prompts * self.samples

    @property
    def step_tokens(self) -> int:
        """Tokens of the responses a step learns from, at most."""
        return self.responses * self.max_response_tokens

    @property
    def minibatch(self) -> int:
        """Responses an optimizer update."""
        return self.responses // self.minibatches

    @property
    def label(self) -> str:
        """A short name for tables: `DAPO`, `low_prob α0.2`."""
        name = "DAPO" if self.method == "none" else f"{self.method} α{self.alpha:g}"
        return name + ("" if self.top_p == 1 else f" top-p {self.top_p:g}")

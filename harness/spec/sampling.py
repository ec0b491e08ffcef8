"""How many responses are drawn, and how each is: temperature, truncation, length, seed."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from harness.spec.base import Spec

LEAST_TEMPERATURE = 1e-4  # but for 0; below it float32 cannot tell what is drawn from the likeliest token
GREEDY = {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "samples": 1, "seed": 0}
TRUNCATIONS = {"min_p": 0.0, "typical_p": 1.0}  # what takes the place of top_p, and the value that does not


def truncation(sampling: Mapping[str, Any]) -> str:
    """Say how a sampling, as plain values, truncates policies: `top-p 0.7`, `min-p 0.1`, `typical 0.9`."""
    if sampling.get("min_p"):
        return f"min-p {sampling['min_p']:g}"
    typical = sampling.get("typical_p", 1.0)
    return f"typical {typical:g}" if typical < 1 else f"top-p {sampling['top_p']:g}"


class Sampling(Spec, frozen=True):
    """How many responses, and how each is drawn. The defaults are the paper's (temperature 1, top-p 0.7, 20k tokens).

    `temperature` divides both models' logits before anything else, the criterion included; `top_p` truncates each
    policy before it is drawn from. `min_p` (arXiv 2407.01082) and `typical_p` (locally typical sampling, arXiv
    2202.00666) truncate in its place: with either, top_p is 1. Criteria look at policies that are not truncated.

    Temperature 0 is greedy: the proposal and, where the criterion holds, the token in its place are each the likeliest
    one of their policy, of equal ones that of the lowest id. The criterion looks at the models as they are (temperature
    1). Nothing is left to chance: `samples` is 1, and what has no effect is as if it were not given: `top_p` and
    `typical_p` are 1, `min_p` and `seed` 0.
    """

    temperature: float = Field(
        default=1.0,
        ge=0.0,
        le=100.0,
        description="Divides both models' logits; 0 is greedy: one sample, no top_p, no seed.",
    )
    top_p: float = Field(default=0.7, gt=0.0, le=1.0, description="Nucleus of each policy.")
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="In place of top_p: each policy keeps tokens of this share of its largest probability, and above.",
    )
    typical_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="In place of top_p: the mass of each policy's locally typical tokens that are kept.",
    )
    max_tokens: int = Field(default=20_000, ge=1, description="New tokens at most; the context may allow fewer.")
    samples: int = Field(
        default=32, ge=1, description="Responses a problem: Avg@k and Pass@k, k up to this; greedy has 1."
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Key of the noise.")

    @model_validator(mode="after")
    def _settle(self) -> "Sampling":
        """Settle what temperature 0, min-p and typical-p imply: two ways of asking for it are equal and hash alike."""
        if self.greedy:
            if "samples" in self.model_fields_set and self.samples != 1:
                raise ValueError(
                    f"samples={self.samples} is refused with temperature=0: greedy responses to one problem are all "
                    "equal; accepted: samples=1"
                )
            for name, value in GREEDY.items():
                object.__setattr__(self, name, value)
        others = [f"{name}={getattr(self, name):g}" for name, off in TRUNCATIONS.items() if getattr(self, name) != off]
        if len(others) > 1 or (others and "top_p" in self.model_fields_set and self.top_p < 1):
            given = [*others, *([f"top_p={self.top_p:g}"] if "top_p" in self.model_fields_set else [])]
            raise ValueError(f"{' and '.join(given[:2])} are refused together: each truncates; accepted: one of them")
        if others:
            object.__setattr__(self, "top_p", 1.0)
        if 0 < self.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature={self.temperature} is refused; accepted: 0 (greedy), or {LEAST_TEMPERATURE} to 100"
            )
        return self

    @property
    def truncation(self) -> str:
        """Say how policies are truncated, as `truncation` does."""
        return truncation(self.model_dump())

    def unlike(self, usual: "Sampling") -> str:
        """Say in words how this draws otherwise than `usual`: `greedy`, `T = 0.6`, `min-p 0.1`; empty if alike."""
        if self.greedy:
            return "" if usual.greedy else "greedy"
        temperature = [] if self.temperature == usual.temperature else [f"T = {self.temperature:g}"]
        return ", ".join(temperature + ([] if self.truncation == usual.truncation else [self.truncation]))

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and nothing is drawn."""
        return self.temperature == 0

    @property
    def criterion_temperature(self) -> float:
        """At which criteria, traces and delta log p look at both models; greedy decoding has none of its own."""
        return self.temperature or 1.0

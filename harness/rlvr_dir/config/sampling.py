"""Set how many responses are sampled, and how: temperature, nucleus, length, seed."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_serializer, model_validator

from rlvr_dir.config.base import Spec, parse
from rlvr_dir.errors import UserError, mention

LEAST_TEMPERATURE = 1e-4  # except 0; below it float32 cannot distinguish sampling from greedy decoding


def merge_sampling(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with some changed. Greedy decoding removes the number of samples, which is 1."""
    greedy = changes.get("temperature") == 0
    return {**{name: value for name, value in settings.items() if not (greedy and name == "samples")}, **changes}


class SamplingSettings(Spec, frozen=True):
    """Set how each response is sampled. The defaults are the paper's (temperature 1, top-p 0.7, 20k tokens).

    `temperature` divides both models' logits first, also for the criterion. Each policy is truncated to its nucleus of
    mass `top_p` before sampling. Criteria use policies that are not truncated.

    Temperature 0 is greedy: the proposal and the replacement of a flagged token are each the most likely token of their
    policy; of equal ones it is the lowest id. The criterion uses temperature 1. There is no randomness, so the seed is
    0 and top_p has no effect.
    """

    temperature: float = Field(
        default=1.0,
        ge=0.0,
        le=100.0,
        description="Divides both models' logits; 0 is greedy: one sample, and top_p and seed are ignored.",
    )
    top_p: float = Field(default=0.7, gt=0.0, le=1.0, description="Top-p of each model's own distribution.")
    max_tokens: int = Field(
        default=20_000, ge=1, description="Maximum number of new tokens; the context may allow fewer."
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Random seed.")

    @model_serializer(mode="plain")
    def _without_what_greedy_ignores(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in fields.items() if not (self.greedy and name == "top_p")}

    @model_validator(mode="after")
    def _normalise(self) -> Self:
        """Fill in what temperature 0 implies, so that two ways of requesting it are equal and have the same hash."""
        if self.greedy:
            object.__setattr__(self, "temperature", 0.0)
            object.__setattr__(self, "top_p", 1.0)
            object.__setattr__(self, "seed", 0)
        elif self.temperature < LEAST_TEMPERATURE:
            raise UserError(
                argument="temperature", value=self.temperature, accepted=f"0 (greedy), or {LEAST_TEMPERATURE} to 100"
            )
        return self

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed.

        Raises:
            UserError: The changed spec is not valid.
        """
        return parse(type(self), merge_sampling(self.model_dump(), changes))

    def explicit(self) -> dict[str, Any]:
        """Return what was given, without defaults."""
        defaults = type(self).model_fields.keys() - self.model_fields_set
        return {name: value for name, value in self.model_dump().items() if name not in defaults}

    def difference_from(self, usual: "SamplingSettings") -> str:
        """Describe the differences from `usual`: `greedy`, `T = 0.6`, `top-p 0.95`; empty if there are none."""
        same_heat = self.greedy or self.temperature == usual.temperature
        heat = [] if same_heat else [f"T = {self.temperature:g}"]
        return ", ".join([*heat, *([] if self.nucleus == usual.nucleus else [self.nucleus])])

    @property
    def words(self) -> str:
        """Describe the sampling in words: `T = 0.6, top-p 0.7`, `greedy`."""
        return "greedy" if self.greedy else f"T = {self.temperature:g}, {self.nucleus}"

    @property
    def nucleus(self) -> str:
        """Describe the truncation in words: `top-p 0.7`, `greedy`."""
        return "greedy" if self.greedy else f"top-p {self.top_p:g}"

    @property
    def greedy(self) -> bool:
        """Return whether the most likely token is taken, without sampling."""
        return self.temperature == 0

    @property
    def criterion_temperature(self) -> float:
        """Return the temperature of criteria, traces and delta log p. Greedy decoding uses 1."""
        return self.temperature or 1.0


class Sampling(SamplingSettings, frozen=True):
    """Set the number of responses per problem, and how each is sampled. Greedy decoding has one."""

    samples: int = Field(
        default=32, ge=1, description="Responses per problem, the largest k of Avg@k and Pass@k; 1 if greedy."
    )

    @property
    def per_response(self) -> SamplingSettings:
        """Return how each response is sampled, without their number: 8 samples are the first 8 of 32."""
        fields = self.model_dump()
        del fields["samples"]
        return SamplingSettings.model_validate(fields)

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.greedy:
            if "samples" in self.model_fields_set and self.samples != 1:
                raise UserError(
                    (f"is not allowed with {mention('temperature', 0)}: greedy responses to one problem are all equal"),
                    argument="samples",
                    value=self.samples,
                    accepted=f"{mention('samples', 1)}",
                )
            object.__setattr__(self, "samples", 1)
        return self

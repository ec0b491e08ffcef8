"""How many responses are drawn, and how each is: temperature, truncation, length, seed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, InstanceOf, model_serializer, model_validator
from pydantic.fields import FieldInfo

from harness.policy import truncations
from harness.policy.truncations import Greedy, Truncation
from harness.spec.base import Spec, parse

TRUNCATIONS = truncations.options().keys()  # the names of what truncates
LEAST_TEMPERATURE = 1e-4  # but for 0; below it float32 cannot tell what is drawn from the likeliest token


def over(held: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Put what is asked over what holds without it; one truncation takes another's place, greedy has one sample."""
    gone = {"samples"} if asked.get("temperature") == 0 else set()
    if not TRUNCATIONS.isdisjoint(asked):
        gone |= TRUNCATIONS
    return {**{name: value for name, value in held.items() if name not in gone}, **asked}


class Drawing(Spec, frozen=True):
    """How each response is drawn. The defaults are the paper's (temperature 1, top-p 0.7, 20k tokens).

    `temperature` divides both models' logits before anything else, the criterion included. One truncation narrows each
    policy before it is drawn from; it is written flat, as `top_p: 0.7`, and another takes its place. Criteria look at
    policies that are not truncated.

    Temperature 0 is greedy: the proposal and, where the criterion holds, the token in its place are each the likeliest
    one of their policy, of equal ones that of the lowest id. The criterion looks at the models as they are (temperature
    1). Nothing is left to chance: the seed is 0 and other truncations have no effect.
    """

    temperature: float = Field(
        default=1.0,
        ge=0.0,
        le=100.0,
        description="Divides both models' logits; 0 is greedy: one sample, no top_p, no seed.",
    )
    truncation: InstanceOf[Truncation] = truncations.PAPER
    max_tokens: int = Field(default=20_000, ge=1, description="New tokens at most; the context may allow fewer.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Key of the noise.")

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return its fields, and in place of the truncation each that there is."""
        temperature, others = cls.model_fields["temperature"], dict(cls.model_fields)
        del others["temperature"], others["truncation"]
        return {"temperature": temperature, **truncations.options(), **others}

    @model_validator(mode="before")
    @classmethod
    def _read_truncation(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        asked = {name: value for name, value in data.items() if name in TRUNCATIONS and value is not None}
        others = {name: value for name, value in data.items() if name not in TRUNCATIONS}
        return {"truncation": truncations.truncation_of(asked), **others} if asked else others

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "truncation"}
        return {"temperature": fields.pop("temperature"), **self.truncation.model_dump(), **fields}

    @model_validator(mode="after")
    def _settle(self) -> Self:
        """Settle what temperature 0 implies: two ways of asking for it are equal and hash alike."""
        if self.greedy:
            object.__setattr__(self, "temperature", 0.0)
            object.__setattr__(self, "truncation", Greedy())
            object.__setattr__(self, "seed", 0)
        elif self.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature={self.temperature} is refused; accepted: 0 (greedy), or {LEAST_TEMPERATURE} to 100"
            )
        return self

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed; one truncation takes the place of another.

        Raises:
            UserError: the changed spec is not valid.
        """
        return parse(type(self), over(self.model_dump(), changes))

    def said(self) -> dict[str, Any]:
        """Return what was given, without what defaults filled in."""
        unsaid = type(self).model_fields.keys() - self.model_fields_set
        if "truncation" in unsaid:
            unsaid |= self.truncation.model_dump().keys()
        return {name: value for name, value in self.model_dump().items() if name not in unsaid}

    def unlike(self, usual: "Drawing") -> str:
        """Say in words how this draws otherwise than `usual`: `greedy`, `T = 0.6`, `min-p 0.1`; empty if alike."""
        same_heat = self.greedy or self.temperature == usual.temperature
        heat = [] if same_heat else [f"T = {self.temperature:g}"]
        return ", ".join([*heat, *([] if self.truncation == usual.truncation else [self.truncation.words])])

    @property
    def words(self) -> str:
        """How it draws, in words: `T = 0.6, top-p 0.7`, `greedy`."""
        return "greedy" if self.greedy else f"T = {self.temperature:g}, {self.truncation.words}"

    @property
    def top_p(self) -> float:
        """The nucleus's mass; 1 where policies are truncated otherwise, or not."""
        return self.truncation.mass

    @property
    def by_nucleus(self) -> bool:
        """Whether tokens are drawn from the likeliest ones, up to a mass or alone, and not from others."""
        return self.greedy or not self.truncation.narrows

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and nothing is drawn."""
        return self.temperature == 0

    @property
    def criterion_temperature(self) -> float:
        """At which criteria, traces and delta log p look at both models; greedy decoding has none of its own."""
        return self.temperature or 1.0


class Sampling(Drawing, frozen=True):
    """How many responses to a problem, and how each is drawn; greedy decoding has one."""

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    samples: int = Field(
        default=32, ge=1, description="Responses a problem: Avg@k and Pass@k, k up to this; greedy has 1."
    )

    @property
    def drawing(self) -> Drawing:
        """How each is drawn: 8 samples are the first 8 of 32."""
        fields = self.model_dump()
        del fields["samples"]
        return Drawing.model_validate(fields)

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.greedy:
            if "samples" in self.model_fields_set and self.samples != 1:
                raise ValueError(
                    f"samples={self.samples} is refused with temperature=0: greedy responses to one problem are all "
                    "equal; accepted: samples=1"
                )
            object.__setattr__(self, "samples", 1)
        return self

"""Read what a request asks for: its rule, its sampling and its noise key, from its model's name and its fields.

The rule is that of the model's name (`tiny:replace,tau=-0.1`), changed by the fields of the request, over the defaults
of the command line. What a pair cannot serve, and what is not known, is refused in one sentence.
"""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field

from rlvr_dir.config import Decoding, Sampling, Spec, check_together, parse, parse_decoding
from rlvr_dir.config.evaluation import change_decoding
from rlvr_dir.config.sampling import SamplingSettings, merge_sampling
from rlvr_dir.config.serving import Limits
from rlvr_dir.errors import UserError, unknown

SHIPPED = ("base", "rl", "replace,tau=-0.1", "extrapolate,tau=-0.1,gamma=0.1")  # rules that are listed as models
SAMPLING = tuple(SamplingSettings.options())


class NoiseKey(Spec, frozen=True):
    """Say which response is asked for: its noise is a hash of seed, problem and sample; and how far it has come."""

    called: ClassVar[str] = "request"

    problem: str | None = Field(default=None, min_length=1, max_length=500, description="As `tiny_medium/007`.")
    sample: int = Field(default=0, ge=0, lt=2**31, description="The first sample; n counts on from it.")
    begun: int = Field(default=0, ge=0, description="How many of the prompt's last tokens are the response's first.")


FIELDS = ("decoding", *Decoding.options(), *SAMPLING, *NoiseKey.model_fields)  # what a request may say


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What one request asks for; `top` is how many of RL's likeliest tokens to list, None without `logprobs`.

    `planned` counts the samples that its prompts were given so far, by problem: a prompt that stands twice in a request
    gets other samples the second time, as n would count them.
    """

    model: str
    decoding: Decoding
    sampling: Sampling
    problem: str | None
    sample: int
    begun: int
    n: int
    stop: tuple[str, ...]
    top: int | None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # of a chat's template
    most_tokens: int | None = None  # where the request says it: then all of them must have room
    planned: Counter[str] = field(default_factory=Counter, compare=False, repr=False)

    def samples(self, problem: str) -> range:
        """Return the samples to draw for a prompt of this problem, those after the ones it had before."""
        first = self.sample + self.planned[problem]
        self.planned[problem] += self.n
        return range(first, first + self.n)

    def describe(self) -> dict[str, Any]:
        """Return what would give the same tokens again, as plain values; the problem may be the prompt's digest."""
        sampling = self.sampling.per_response.model_dump(mode="json")
        key = {"problem": self.problem, "sample": self.sample, "begun": self.begun or None}
        fields = {name: value for name, value in key.items() if value is not None}
        fields |= {"chat_template_kwargs": dict(kwargs)} if (kwargs := self.chat_template_kwargs) else {}
        return {"decoding": self.decoding.model_dump(mode="json"), **sampling, **fields, "n": self.n}


@dataclass(frozen=True)
class RequestParser:
    """Know the pair's name and what is taken where a request says nothing.

    `sampling` has what the command line says of it; without a seed there, each request without one gets a fresh one.
    `chat_template_kwargs` are arguments of the chat template, which a request may change.
    """

    name: str
    decoding: Decoding
    sampling: Mapping[str, Any]
    limits: Limits
    listed: tuple[str, ...] = SHIPPED
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """The models that are listed: the pair under the default rule, and under each listed one."""
        return [self.name, *(f"{self.name}:{rule}" for rule in self.listed)]

    def read(
        self,
        model: str | None,
        body: Mapping[str, Any],
        *,
        n: int = 1,
        stop: tuple[str, ...] = (),
        top: int | None = None,
    ) -> ServeRequest:
        """Return the parsed request. `body` has those of its fields in FIELDS that are not None.

        Raises:
            UserError: a model or a field that is not known, or a value that is refused.
        """
        decoding = self._rule(model)
        for name in body:
            if name not in FIELDS:
                raise unknown("field", name, FIELDS)
        if "decoding" in body:
            decoding = parse_decoding(_text("decoding", body["decoding"]))
        if changes := {name: body[name] for name in Decoding.options() if name in body}:
            decoding = change_decoding(decoding, changes)
        wanted = {name: body[name] for name in SAMPLING if name in body}
        sampling_fields = dict(self.sampling)
        if "seed" not in sampling_fields:
            sampling_fields["seed"] = secrets.randbits(48)
        if (most := self.limits.most_tokens) is not None:
            sampling_fields["max_tokens"] = min(sampling_fields.get("max_tokens", most), most)
        sampling = parse(Sampling, merge_sampling(sampling_fields, wanted))
        if most is not None and sampling.max_tokens > most:
            raise UserError(f"max_tokens={sampling.max_tokens} is refused; accepted: 1 to {most}")
        check_together(decoding, sampling)
        if not 1 <= n <= self.limits.most_samples:
            raise UserError(f"n={n} is refused; accepted: 1 to {self.limits.most_samples}")
        if n > 1 and sampling.greedy:
            raise UserError(f"n={n} is refused with temperature=0: greedy responses are all equal; accepted: n=1")
        key = parse(NoiseKey, {name: body[name] for name in NoiseKey.model_fields if name in body})
        return ServeRequest(
            model=model or self.name,
            decoding=decoding,
            sampling=sampling,
            problem=key.problem,
            sample=key.sample,
            begun=key.begun,
            n=n,
            stop=stop,
            top=top,
            most_tokens=wanted.get("max_tokens"),
        )

    def knows(self, model: str | None) -> bool:
        """Tell whether a model's name is the pair's, whatever rule it names."""
        return not model or model == self.name or model.startswith(f"{self.name}:")

    def _rule(self, model: str | None) -> Decoding:
        if not self.knows(model):
            raise unknown("model", model, self.models)
        _, _, rule = (model or "").removeprefix(self.name).partition(":")
        return parse_decoding(rule.replace(";", ",")) if rule else self.decoding  # tools cut their own lists at commas


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{name}={value!r} is refused; accepted: text, as 'replace,tau=-0.1'")
    return value

"""Read a request's decoding, sampling and noise key, from its model's name and its fields.

The decoding is that of the model's name (`tiny:replace,tau=-0.1`), changed by the fields of the request. The command
line has the defaults. Unknown or unsupported fields are an error of one sentence.
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
from rlvr_dir.errors import UserError, mention, unknown

SHIPPED = ("base", "rl", "replace,tau=-0.1", "extrapolate,tau=-0.1,gamma=0.1")  # decodings that are listed as models
SAMPLING = tuple(SamplingSettings.options())


class NoiseKey(Spec, frozen=True):
    """Identify the requested response (its noise hashes seed, problem and sample) and how much of it is given."""

    called: ClassVar[str] = "request"

    problem: str | None = Field(default=None, min_length=1, max_length=500, description="As `tiny_medium/007`.")
    sample: int = Field(default=0, ge=0, lt=2**31, description="The first of n samples.")
    begun: int = Field(default=0, ge=0, description="How many of the prompt's last tokens begin the response.")


FIELDS = ("decoding", *Decoding.options(), *SAMPLING, *NoiseKey.model_fields)  # our fields of a request


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """Hold the parsed content of one request.

    Attributes:
        top: How many of RL's most likely tokens to list; None without `logprobs`.
        chat_template_kwargs: Arguments of the chat template.
        most_tokens: `max_tokens`, if the request sets it. There must be room for that many.
        planned: How many samples the prompts of each problem have so far. A prompt that occurs twice in a request gets
            other samples the second time, as `n` would count them.
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
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    most_tokens: int | None = None
    planned: Counter[str] = field(default_factory=Counter, compare=False, repr=False)

    def samples(self, problem: str) -> range:
        """Return the samples for a prompt of this problem, after those that it had before."""
        first = self.sample + self.planned[problem]
        self.planned[problem] += self.n
        return range(first, first + self.n)

    def describe(self) -> dict[str, Any]:
        """Return the fields that reproduce the response if they are sent with the same prompt."""
        sampling = self.sampling.per_response.model_dump(mode="json")
        if self.most_tokens is None:  # the rest of the context; a given number would have to fit
            del sampling["max_tokens"]
        key = {"problem": self.problem, "sample": self.sample, "begun": self.begun or None}
        fields = {name: value for name, value in key.items() if value is not None}
        fields |= {"chat_template_kwargs": dict(kwargs)} if (kwargs := self.chat_template_kwargs) else {}
        fields |= {"stop": list(self.stop)} if self.stop else {}
        return {"decoding": self.decoding.model_dump(mode="json"), **sampling, **fields, "n": self.n}


@dataclass(frozen=True)
class RequestParser:
    """Read the requests to one server.

    Attributes:
        name: The pair's name as a model.
        decoding: The default decoding.
        sampling: The sampling fields of the command line. Without a seed, each request without one gets a fresh one.
        limits: The limits of a request.
        listed: The decodings that are listed as models.
        chat_template_kwargs: Arguments of the chat template, which a request may change.
    """

    name: str
    decoding: Decoding
    sampling: Mapping[str, Any]
    limits: Limits
    listed: tuple[str, ...] = SHIPPED
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Return the listed models: the pair with the default decoding, and with each listed one."""
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
            UserError: A model or a field is unknown, or a value is not valid.
        """
        decoding = self._rule(model)
        for name in body:
            if name not in FIELDS:
                raise unknown("field", name, FIELDS)
        if "decoding" in body:
            decoding = _decoding(body["decoding"])
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
            raise UserError(argument="max_tokens", value=sampling.max_tokens, accepted=f"1 to {most}")
        check_together(decoding, sampling)
        if not 1 <= n <= self.limits.most_samples:
            raise UserError(argument="n", value=n, accepted=f"1 to {self.limits.most_samples}")
        if n > 1 and sampling.greedy:
            problem = f"is not allowed with {mention('temperature', 0)}, because greedy responses are all equal"
            raise UserError(problem, argument="n", value=n, accepted="1")
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
        """Return whether a model's name is the pair's, with any decoding."""
        return not model or model == self.name or model.startswith(f"{self.name}:")

    def _rule(self, model: str | None) -> Decoding:
        if not self.knows(model):
            raise unknown("model", model, self.models)
        _, _, rule = (model or "").removeprefix(self.name).partition(":")
        return parse_decoding(rule.replace(";", ",")) if rule else self.decoding  # tools cut their own lists at commas


def _decoding(value: Any) -> Decoding:
    """Read a decoding from its text (`replace,tau=-0.1`) or from its fields, as in a response.

    Raises:
        UserError: It is neither, or is unknown.
    """
    if isinstance(value, Mapping):
        return parse(Decoding, dict(value))
    if not isinstance(value, str):
        raise UserError(
            argument="decoding", value=value, accepted="text, such as 'replace,tau=-0.1', or an object of its fields"
        )
    return parse_decoding(value)

"""Which tokens of a policy may be drawn: one of these for each request. A new one is a class with `keep`.

A field of its own name is what is asked for: an option, a key of YAML, a part of the hash. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from torch import Tensor


class Truncation(BaseModel, frozen=True):
    """A way to narrow a policy. Rows with equal ones are narrowed together, so fields are plain numbers here."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    name: ClassVar[str] = ""  # under which it is asked for
    label: ClassVar[str] = ""  # what tables call it
    off: ClassVar[float] = 1.0  # the value at which it drops nothing
    narrows: ClassVar[bool] = True  # whether `keep` does anything
    greedy: ClassVar[bool] = False  # whether the likeliest token is taken: then logits themselves are compared

    @property
    def mass(self) -> float:
        """The top-p of the nucleus that is drawn from, which the draw itself cuts."""
        return 1.0

    @property
    def words(self) -> str:
        """How policies are truncated, as tables say it: `top-p 0.7`."""
        return " ".join([self.label, *(f"{value:g}" for value in self.model_dump().values())])

    def keep(self, logp: Tensor) -> Tensor:
        """Return the narrowed, normalised policies: (rows, vocab) -> the same, -inf where a token is dropped."""
        return logp


class TopP(Truncation, frozen=True):
    """The smallest set of likeliest tokens whose mass reaches top-p."""

    name, label, narrows = "top_p", "top-p", False
    top_p: float = Field(default=0.7, gt=0.0, le=1.0, description="Nucleus of each policy.")

    @property
    def mass(self) -> float:
        """The top-p."""
        return self.top_p


class MinP(Truncation, frozen=True):
    """The tokens with p >= min_p max p (arXiv 2407.01082)."""

    name, label, off = "min_p", "min-p", 0.0
    min_p: float = Field(
        ge=0.0,
        le=1.0,
        description="In place of top_p: each policy keeps tokens of this share of its largest probability, and above.",
    )

    def keep(self, logp: Tensor) -> Tensor:
        """Drop the tokens below a share of the largest probability."""
        least = logp.amax(1, keepdim=True) + logp.new_full((1, 1), self.min_p).log()
        return _without(logp, logp < least)


class Typical(Truncation, frozen=True):
    """The fewest tokens, in order of |-log p - H|, whose mass reaches `typical_p`; of equally near ones the lower id.

    Locally typical sampling (arXiv 2202.00666): the surprise of a kept token is near the entropy H of the policy.
    """

    name, label = "typical_p", "typical"
    typical_p: float = Field(
        gt=0.0,
        le=1.0,
        description="In place of top_p: the mass of each policy's locally typical tokens that are kept.",
    )

    def keep(self, logp: Tensor) -> Tensor:
        """Drop the tokens beyond that mass; at least one of a row is kept."""
        p = logp.exp()
        entropy = -(p * logp).masked_fill(~(p > 0), 0.0).sum(1, keepdim=True)
        order = (-logp - entropy).abs_().argsort(dim=1, stable=True)
        mass = p.double().gather(1, order)
        before = mass.cumsum(1) - mass
        kept = p.new_zeros(p.shape).bool().scatter_(1, order, before < self.typical_p)
        return _without(logp, ~kept)


class Greedy(Truncation, frozen=True):
    """The likeliest token alone; of equal ones the lowest id."""

    name, label, greedy = "greedy", "greedy", True

    def keep(self, logp: Tensor) -> Tensor:
        """Leave the first of the largest."""
        return logp.new_full(logp.shape, float("-inf")).scatter_(1, logp.argmax(1, keepdim=True), 0.0)


PAPER, WHOLE = TopP(), TopP(top_p=1.0)


@cache
def truncations() -> dict[str, type[Truncation]]:
    """Return the truncations that there are, by name."""
    return {each.name: each for each in Truncation.__subclasses__()}


@cache
def options() -> dict[str, FieldInfo]:
    """Return what can be asked for, by name."""
    return {name: kind.model_fields[name] for name, kind in truncations().items() if name in kind.model_fields}


def truncation_of(asked: Mapping[str, Any]) -> Truncation:
    """Return the truncation that is asked for by name; a value that drops nothing asks for none.

    Raises:
        ValueError: a value is refused, or two truncate.
    """
    made = [kind.model_validate({name: asked[name]}) for name, kind in truncations().items() if name in asked]
    given = [each for each in made if getattr(each, each.name) != each.off]
    if len(given) > 1:
        words = " and ".join(f"{each.name}={getattr(each, each.name):g}" for each in given[:2])
        raise ValueError(f"{words} are refused together: each truncates; accepted: one of them")
    return given[0] if given else WHOLE if PAPER.name in asked else PAPER


def _without(logp: Tensor, dropped: Tensor) -> Tensor:
    return logp.masked_fill(dropped, float("-inf")).log_softmax(1)

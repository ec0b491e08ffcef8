"""Which tokens of a policy may be drawn: one of these for each request. A new one is a class with `keep`.

Nothing here imports torch.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor


class Truncation(BaseModel, frozen=True):
    """A way to narrow a policy. Rows with equal ones are narrowed together, so fields are plain numbers here."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    name: ClassVar[str] = ""
    narrows: ClassVar[bool] = True  # whether `keep` does anything
    greedy: ClassVar[bool] = False  # whether the likeliest token is taken: then logits themselves are compared
    top_p: float = 1.0  # of the nucleus that is drawn from; the draw itself cuts it

    def keep(self, logp: Tensor) -> Tensor:
        """Return the narrowed, normalised policies: (rows, vocab) -> the same, -inf where a token is dropped."""
        return logp


class TopP(Truncation, frozen=True):
    """The smallest set of likeliest tokens whose mass reaches top-p."""

    name, narrows = "top_p", False


class MinP(Truncation, frozen=True):
    """The tokens with p >= min_p max p (arXiv 2407.01082)."""

    name = "min_p"
    min_p: float

    def keep(self, logp: Tensor) -> Tensor:
        """Drop the tokens below a share of the largest probability."""
        least = logp.amax(1, keepdim=True) + logp.new_full((1, 1), self.min_p).log()
        return _without(logp, logp < least)


class Typical(Truncation, frozen=True):
    """The fewest tokens, in order of |-log p - H|, whose mass reaches `typical_p`; of equally near ones the lower id.

    Locally typical sampling (arXiv 2202.00666): the surprise of a kept token is near the entropy H of the policy.
    """

    name = "typical_p"
    typical_p: float

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

    name, greedy = "greedy", True

    def keep(self, logp: Tensor) -> Tensor:
        """Leave the first of the largest."""
        return logp.new_full(logp.shape, float("-inf")).scatter_(1, logp.argmax(1, keepdim=True), 0.0)


WHOLE = TopP()


@cache
def truncations() -> dict[str, type[Truncation]]:
    """Return the truncations that there are, by name."""
    return {each.name: each for each in Truncation.__subclasses__()}


def _without(logp: Tensor, dropped: Tensor) -> Tensor:
    return logp.masked_fill(dropped, float("-inf")).log_softmax(1)

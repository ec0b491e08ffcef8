"""Define the four methods that the paper compares, in the order of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlvr_dir.errors import UserError, mention
from rlvr_dir.policy.reweighting import PLAIN, Reweighting, reweightings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PlainDapo(Reweighting):
    """Leave DAPO's advantage A unchanged (`eqn:DAPO`)."""

    name, paper = PLAIN, "DAPO"
    alpha: float = 0.0

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return equal weights."""
        return logp.new_ones(logp.shape)

    @property
    def label(self) -> str:
        """Return its name, because it has no strength."""
        return self.paper

    def refusal(self) -> UserError | None:
        """Return an error for an alpha, which would have no effect."""
        if not self.alpha:
            return None
        others = ", ".join(name for name in reweightings() if name != self.name)
        problem = f"has no effect with {mention('method', self.name)}"
        return UserError(problem, argument="alpha", value=self.alpha, accepted=f"another method: {others}")


@dataclass(frozen=True)
class LowProb(Reweighting):
    """Multiply A by 1 + α (1 − π), the paper's own method (`eqn:reweight`): unlikely tokens count more."""

    name, paper = "low_prob", "Ours"
    alpha: float = 0.2  # for Qwen2.5-Math-7B
    alphas: ClassVar[Mapping[str, float]] = {"qwen3-8b-base": 0.1}

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return weights that decrease with the probability: expm1(log π) = −(1 − π), exact for π near 1."""
        return 1 - self.alpha * logp.expm1()


@dataclass(frozen=True)
class Dominate(Reweighting):
    """Multiply A by α π + 1 − α = 1 − α (1 − π) (arXiv 2505.12929): unlikely tokens count less."""

    name, paper = "dominate", "Dominate"
    alpha: float = 0.1
    clip_high = 0.24  # its authors' value; the paper found it unstable with 0.28

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return weights that increase with the probability."""
        return 1 + self.alpha * logp.expm1()

    def refusal(self) -> UserError | None:
        """Return an error if weights would be negative."""
        if self.alpha <= 1:
            return None
        problem = f"would reverse the sign of advantages with method={self.name!r}"
        return UserError(problem, argument="alpha", value=self.alpha, accepted="0 to 1")


@dataclass(frozen=True)
class Perplexity(Reweighting):
    """Multiply A by 1 − α z_i: surprising responses count less (arXiv 2508.02260).

    z_i is the standardised log-perplexity of response i.
    """

    name, paper = "ppl", "PPL"
    alpha: float = 0.01
    whole_batch = True
    scope = "group"  # its authors' `ppl-norm` standardises the responses to one prompt

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return one weight per response, relative to the other rows: (n, 1)."""
        return (1 - self.alpha * standardise(log_perplexity(logp, mask)))[:, None]


def log_perplexity(logp: Tensor, mask: Tensor) -> Tensor:
    """Return log PPL = −mean log π of each response's tokens: two (n, tokens) -> (n,). 0 for an empty one."""
    inside = mask.bool()
    return -logp.float().where(inside, 0.0).sum(1) / inside.sum(1).clamp(min=1)


def standardise(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Return (x − mean) / (std + eps), population std: (n,) -> (n,).

    Values that differ by rounding alone stay near 0 instead of becoming ±1.
    """
    centred = x - x.mean()
    return centred / (centred.square().mean().sqrt() + eps)

"""`spike` looks back: the cross entropy of a position as a multiple of its mean over the positions before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from harness.policy.gates import MEMORY, Threshold

if TYPE_CHECKING:
    from torch import Tensor

    from harness.policy.statistics import Step


class Spike(Threshold, frozen=True):
    """CE(base, RL) above tau times its mean over the `span` tokens before, of the response's own; 0 at its first."""

    name, label, least = "spike", "spike of cross entropy", 0.0
    needs, memory = ("ce",), MEMORY

    span: int = Field(
        default=32, ge=1, le=MEMORY, description="Earlier tokens whose mean criterion=spike compares with (32)."
    )

    def value(self, step: Step) -> Tensor:
        """Return CE over its mean; 0 where nothing comes before or CE is 0, NaN where a number is missing."""
        now = step.stat("ce")
        step.remember(now)
        before = step.recall(self.span).double().sum(1) / step.written.clamp(min=1, max=self.span)
        ratio = (now.double() / before).masked_fill((now == 0) & ~before.isnan(), 0.0)
        return ratio.masked_fill(step.written == 0, 0.0).float()

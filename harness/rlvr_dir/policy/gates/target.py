"""Gates without a threshold: every token from the target, and the target's law at the least replacement."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rlvr_dir.policy.gates import Gate
from rlvr_dir.policy.statistics import at

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_dir.policy.statistics import StepView


class Always(Gate, frozen=True):
    """Every token is drawn from the target."""

    name, label = "always", "every token"
    statistic = "random"

    @property
    def threshold(self) -> tuple[float, bool]:
        """A number in [0, 1) is above it."""
        return -inf, False


class Coupling(Gate, frozen=True):
    """The maximal coupling of what is proposed and what is wanted.

    With B the law of the proposal y and Q that of the target, both truncated, y is kept with probability
    min(1, Q(y) / B(y)), else redrawn from (Q - B) where that is above 0. So the token's law is Q, exactly, and it is
    redrawn with probability (1/2) sum |Q - B|, the least of any way to draw both (as in speculative sampling, arXiv
    2211.17192): the floor below every other gate that wants Q's law.
    """

    name, label = "coupling", "coupling"
    redraws = landmark = True

    def value(self, step: StepView) -> Tensor:
        """Return 1 where the proposal is refused, else 0."""
        kept = step.rho * at(step.law("proposal"), step.token) < at(step.law("target"), step.token)
        return (~kept).double()

    def redraw(self, step: StepView) -> Tensor:
        """Return where Q is above B, and by how much."""
        return (step.law("target") - step.law("proposal")).clamp_(min=0.0)

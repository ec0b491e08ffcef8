"""Define gates without a threshold: they sample every token from the target, or change as few tokens as possible."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rlvr_dir.policy.gates import Gate
from rlvr_dir.policy.statistics import at

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_dir.policy.statistics import StepView


class Always(Gate, frozen=True):
    """Flag every token."""

    name, label = "always", "every token"
    statistic = "random"

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return a threshold that every random number in [0, 1) exceeds."""
        return -inf, False


class Coupling(Gate, frozen=True):
    """Use the maximal coupling of the proposal's and the target's distributions.

    Let B be the distribution of the proposal y and Q the target's, both truncated. y is kept with probability min(1,
    Q(y) / B(y)), and otherwise resampled from (Q - B) where that is positive. The written token then has distribution Q
    exactly. It is resampled with probability (1/2) sum |Q - B|, which is the minimum over all ways to sample both (as
    in speculative sampling, arXiv 2211.17192). No gate that reaches Q changes fewer tokens.
    """

    name, label = "coupling", "coupling"
    redraws = landmark = True

    def value(self, step: StepView) -> Tensor:
        """Return 1 where the proposal is flagged, else 0."""
        kept = step.rho * at(step.law("proposal"), step.token) < at(step.law("target"), step.token)
        return (~kept).double()

    def redraw(self, step: StepView) -> Tensor:
        """Return by how much Q exceeds B, and 0 elsewhere."""
        return (step.law("target") - step.law("proposal")).clamp_(min=0.0)

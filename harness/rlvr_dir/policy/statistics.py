"""Measure a position, in nats, over the whole vocabulary: the numbers that criteria compare.

`STATISTICS` names each as a function of a `StepView`. Nothing here imports torch, so that listing the names is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class StepView(Protocol):
    """Show a criterion one step of its rows. `policy.step` implements it for a batch.

    Nothing in it may be changed in place. `lb` and `lr` are log-probabilities over the whole vocabulary at the sampling
    temperature, (rows, vocab) float32, not truncated. `primary` is the proposing model's; for greedy rows it contains
    logits. `token` (rows,) int64 is the proposed token. `rho` (rows,) float64 is uniform. `written` (rows,) int64
    counts the response's tokens before this one.
    """

    @property
    def lb(self) -> Tensor: ...
    @property
    def lr(self) -> Tensor: ...
    @property
    def primary(self) -> Tensor: ...
    @property
    def token(self) -> Tensor: ...
    @property
    def rho(self) -> Tensor: ...
    @property
    def written(self) -> Tensor: ...

    def stat(self, name: str) -> Tensor:
        """Return one of STATISTICS, (rows,) in nats."""
        ...

    def law(self, name: str) -> Tensor:
        """Return the `proposal` or `target` distribution that is sampled, truncated and normalised: (rows, vocab)
        float64."""
        ...


def at(logp: Tensor, token: Tensor) -> Tensor:
    """Return log pi(y) of one token per row: (rows, vocab), (rows,) -> (rows,)."""
    return logp.gather(1, token[:, None])[:, 0]


def entropy(lp: Tensor) -> Tensor:
    """Return H(p) = -sum_y p(y) log p(y): (rows, vocab) -> (rows,). Impossible tokens count 0."""
    return -_expectation(lp, lp)


def kl_divergence(lp: Tensor, lq: Tensor) -> Tensor:
    """Return KL(p || q) = sum_y p(y) (log p(y) - log q(y)): two (rows, vocab) -> (rows,)."""
    return _expectation(lp, lp - lq)


def cross_entropy(lp: Tensor, lq: Tensor) -> Tensor:
    """Return CE(p, q) = -sum_y p(y) log q(y): two (rows, vocab) -> (rows,)."""
    return -_expectation(lp, lq)


def js_divergence(lp: Tensor, lq: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence, at most log 2 (Lin 1991): two (rows, vocab) -> (rows,).

    (1/2) KL(p || m) + (1/2) KL(q || m), with m halfway between p and q.
    """
    middle = lp.logaddexp(lq).sub_(log(2))
    return 0.5 * (_expectation(lp, lp - middle) + _expectation(lq, lq - middle))


def total_variation(lp: Tensor, lq: Tensor) -> Tensor:
    """Return the total variation of two policies, 0 to 1: two (rows, vocab) -> (rows,); 0 if either is invalid."""
    return (0.5 * (lp.exp() - lq.exp()).abs().sum(-1)).nan_to_num(0.0)


def _expectation(logp: Tensor, value: Tensor) -> Tensor:
    p = logp.exp()
    impossible = ~(p > 0)
    return p.mul_(value).masked_fill_(impossible, 0.0).sum(-1)  # not the bare product: 0 * inf is NaN


STATISTICS: dict[str, Callable[[StepView], Tensor]] = {
    "logp_base": lambda step: at(step.lb, step.token),
    "logp_rl": lambda step: at(step.lr, step.token),
    "delta_logp": lambda step: step.stat("logp_rl") - step.stat("logp_base"),
    "abs_delta_logp": lambda step: abs(step.stat("delta_logp")),
    "nll_rl": lambda step: -step.stat("logp_rl"),
    "entropy_base": lambda step: entropy(step.lb),
    "entropy_rl": lambda step: entropy(step.lr),
    "kl_rl_base": lambda step: kl_divergence(step.lr, step.lb),
    "kl_base_rl": lambda step: kl_divergence(step.lb, step.lr),
    "kl": lambda step: 0.5 * (step.stat("kl_rl_base") + step.stat("kl_base_rl")),
    "ce": lambda step: cross_entropy(step.lb, step.lr),
    "js": lambda step: js_divergence(step.lb, step.lr),
    "random": lambda step: step.rho,
}

"""Compute a trace: the per-token statistics of the paper, as one table.

Importing this module does not import torch, because readers of traces only need the names of its columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_dir.policy.statistics import entropy, js_divergence, kl_divergence, total_variation

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_dir.policy.target import Policies

FACTS = (
    "logp_base",  # log pi_Base of the proposed token, nats
    "logp_rl",
    "entropy_base",  # nats
    "entropy_rl",
    "kl_rl_base",  # KL(RL || base), nats
    "kl_base_rl",
    "rank_base",  # of the proposed token: 0 is base's most likely
    "rank_rl",
    "proposed",  # its id
    "js",  # Jensen-Shannon divergence of base and RL, nats
    "tv_other",  # total variation of base and RL without the proposed token: 0 if they would write alike
)
TOP_FACTS = ("base_id", "base_logp", "rl_id", "rl_logp")  # of the j-th most likely token of each model, j = 0, 1, ...
LEAST_LOGP, MOST_KL = -1000.0, 30.0  # replace -inf and inf, so that every value is finite


def columns(top: int) -> int:
    """Return how many columns a trace has with the `top` most likely tokens of each model."""
    return len(FACTS) + len(TOP_FACTS) * top


def known(width: int) -> bool:
    """Return whether a table with this many columns is a trace. Traces of versions before `tv_other` are not."""
    return width >= len(FACTS) and not (width - len(FACTS)) % len(TOP_FACTS)


def trace(lb: Tensor, lr: Tensor, proposed: Tensor, top: int = 0) -> Tensor:
    """Return the trace of n positions.

    Args:
        lb, lr: (n, vocab) log-probabilities of base and RL, not truncated, at the sampling temperature.
        proposed: (n,) the primary's tokens.
        top: How many of each model's most likely tokens to list.

    Returns:
        (n, columns(top)) float32: `FACTS`, then `TOP_FACTS` of rank 0, of rank 1, ...; ids are exact (below 2^24).
    """
    import torch

    index = proposed[:, None]
    base, rl = lb.gather(1, index), lr.gather(1, index)
    kinds = [
        base.clamp(min=LEAST_LOGP),
        rl.clamp(min=LEAST_LOGP),
        entropy(lb)[:, None],
        entropy(lr)[:, None],
        kl_divergence(lr, lb)[:, None].clamp(max=MOST_KL),
        kl_divergence(lb, lr)[:, None].clamp(max=MOST_KL),
        (lb > base).sum(1, keepdim=True),
        (lr > rl).sum(1, keepdim=True),
        index,
        js_divergence(lb, lr)[:, None],
        total_variation(*(without(logp, index) for logp in (lb, lr)))[:, None],
    ]
    if top:
        lists = []
        for logp in (lb, lr):
            values, ids = torch.topk(logp, top, dim=1)
            lists += [ids.float(), values.clamp(min=LEAST_LOGP)]
        kinds.append(torch.stack(lists, dim=2).flatten(1))
    return torch.cat([kind.float() for kind in kinds], dim=1)


def without(logp: Tensor, index: Tensor) -> Tensor:
    """Return log-probabilities without one token of each row, normalised; NaN if there is no other token."""
    return logp.scatter(1, index, float("-inf")).log_softmax(1)


def traced(policies: Policies, proposed: Tensor) -> Tensor:
    """Return the traces of the rows whose rules request them, with the largest number of most likely tokens requested.

    Args:
        policies: Those of n rows.
        proposed: (n,).
    """
    rows, top = policies.rules.traced, policies.rules.top
    return trace(rows.of(policies.lb), rows.of(policies.lr), rows.of(proposed), top)

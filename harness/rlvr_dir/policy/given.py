"""Score tokens that somebody else wrote with both models: a trace, and their likelihood at settings of a sampler.

A token that is drawn at some temperature and top-p has the probability pi_nucleus(y). Its likelihood here is
(1 - e) pi_nucleus(y) + e pi(y), so that a token outside the nucleus costs log e and not infinity: engines that round
differently disagree about the last token of a nucleus. It is a distribution over y, as a test by likelihoods needs.
"""

from __future__ import annotations

from math import log, log1p
from typing import NamedTuple

import torch
from torch import Tensor

from rlvr_dir.policy.trace import LEAST_LOGP, columns, trace

ROWS = 128  # positions that are scored at once: log-probabilities of both models are held several times over
TOP = 1  # of each model's most likely tokens in the trace
FLOOR = 1e-4  # e
Setting = tuple[float, float]  # temperature and top-p; temperature 0 is greedy


class Scoring(NamedTuple):
    """Hold what to compute at each token: its trace at a temperature, and its log-likelihood at some settings."""

    temperature: float = 1.0
    settings: tuple[Setting, ...] = ()

    @property
    def width(self) -> int:
        """Return the number of columns: those of the trace, then base's and RL's log-likelihoods."""
        return columns(TOP) + 2 * len(self.settings)


def scored(base: Tensor, rl: Tensor, tokens: Tensor, scoring: Scoring) -> Tensor:
    """Return what is asked of n positions: (n, vocab) logits of both models, (n,) tokens -> (n, width) float32."""
    lb, lr = (logits.float().div(scoring.temperature).log_softmax(1) for logits in (base, rl))
    both = [likelihoods(logits, tokens, scoring.settings) for logits in (base, rl)] if scoring.settings else []
    return torch.cat([trace(lb, lr, tokens, TOP), *both], dim=1)


def likelihoods(logits: Tensor, tokens: Tensor, settings: tuple[Setting, ...], floor: float = FLOOR) -> Tensor:
    """Return log[(1 - e) pi_nucleus(y) + e pi(y)] of a token at each setting: (n, vocab), (n,) -> (n, settings).

    The nucleus is that of `policy.nucleus`. Greedy decoding has the most likely token alone, and e pi(y) at T = 1.
    """
    ordered, ids = logits.float().sort(dim=1, descending=True, stable=True)
    place, found, before = (ids == tokens[:, None]).int().argmax(1, keepdim=True), [], None
    logp = mass = ordered
    for temperature, top_p in settings:
        if temperature != before:  # once for neighbours
            logp = (ordered / (temperature or 1.0)).log_softmax(1).double()
            mass, before = logp.exp().cumsum(1), temperature
        reached = mass >= (top_p if temperature else 0.0)
        end = reached.int().argmax(1, keepdim=True) if top_p < 1 or not temperature else place * 0 + mass.shape[1] - 1
        own = logp.gather(1, place)
        inside = torch.where(place <= end, own - mass.gather(1, end).log(), -torch.inf)
        found.append(torch.logaddexp(inside + log1p(-floor), own + log(floor)))
    return torch.cat(found, dim=1).clamp(min=LEAST_LOGP).float()

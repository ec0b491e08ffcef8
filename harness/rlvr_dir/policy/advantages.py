"""Compute the advantages of a training batch, except for their reweighting (`rlvr_dir.policy.reweighting`).

This module decides which groups are informative, computes DAPO's length penalty, finds the tokens that the clipped loss
learns from, and implements Lemma 1.

Responses are rows, and the `samples` responses of a group are adjacent. `logp` is (n, tokens): the log-probability of
each written token at the sampling temperature, before any top-p. `mask` is (n, tokens), 1 on response tokens.
"""

import torch


def mixed_groups(accuracy: torch.Tensor, samples: int) -> torch.Tensor:
    """Find the groups with right and wrong responses. In others every advantage is 0 (DAPO's dynamic sampling).

    Args:
        accuracy: (groups x samples,) 1.0 for right, 0.0 for wrong, NaN for ungraded. It must not include a length
            penalty, or groups of wrong responses with different lengths would count as mixed.

    Returns:
        (groups,) bool.
    """
    grouped = accuracy.view(-1, samples)
    return (grouped == 1).any(1) & (grouped == 0).any(1)


def overlong_penalty(lengths: torch.Tensor, limit: int, buffer: int) -> torch.Tensor:
    """Return DAPO's soft penalty of lengths in tokens: (n,) -> (n,).

    By its eq. 13, the penalty is 0 up to limit - buffer, then linear, and -1 from `limit` on.
    """
    return -((lengths.float() - (limit - buffer)) / buffer).clamp(0.0, 1.0)


def gradient_coefficient(
    logp: torch.Tensor, advantages: torch.Tensor, ratio: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Return the l1 norm of each unclipped token's gradient with respect to the logits, 2 |r A| (1 - pi): Lemma 1.

    Args:
        logp: (n, tokens), by the policy that is being trained.
        advantages: (n, tokens), or (n, 1).
        ratio: pi / pi_old; 1 before the first update on a batch.
    """
    return -2 * (ratio * advantages).abs() * torch.expm1(logp)


def unclipped(
    ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float, dual: float | None = None
) -> torch.Tensor:
    """Return where the clipped objective has a gradient: two (n, tokens) -> (n, tokens) bool.

    The condition is ratio <= 1 + high if A > 0, and 1 - low <= ratio <= dual if A < 0. If `dual` is None, the latter
    has no upper limit.
    """
    upper = torch.full_like(ratio, float("inf") if dual is None else dual)
    upper = torch.where(advantages > 0, 1 + high, upper)
    lower = torch.where(advantages < 0, 1 - low, torch.zeros_like(ratio))
    return (ratio >= lower) & (ratio <= upper)


def sums_by_probability(
    logp: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, bins: int = 10
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum `value` and count the tokens in each of `bins` equal bins of pi: all (n, tokens) -> two (bins,) float64."""
    inside = mask.bool()
    index = (logp[inside].exp() * bins).long().clamp(0, bins - 1)
    sums = torch.zeros(bins, dtype=torch.float64, device=logp.device)
    counts = torch.zeros_like(sums)
    sums.index_add_(0, index, value[inside].double())
    counts.index_add_(0, index, torch.ones_like(index, dtype=torch.float64))
    return sums, counts

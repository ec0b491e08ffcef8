"""Advantages of a training batch: DAPO's, and the three ways of reweighting them that the paper compares.

Responses are rows, the `samples` responses of a group adjoining. `logp` is (n, tokens): the log-probability of each
written token at the sampling temperature, before any top-p; `mask` is (n, tokens), 1 on response tokens.

    low_prob   A (1 + alpha (1 - pi))        the paper's: unlikely tokens count more
    dominate   A (alpha pi + 1 - alpha)      = A (1 - alpha (1 - pi)): unlikely tokens count less
    ppl        A (1 - alpha z_i)             z_i: standardised log-perplexity of response i

With alpha = 0 every weight is 1.0 and the product is A to the bit. No weight is ever differentiated.
"""

import torch

METHODS = ("none", "low_prob", "dominate", "ppl")


def token_weights(
    method: str, alpha: float, logp: torch.Tensor, mask: torch.Tensor, z: torch.Tensor | None = None
) -> torch.Tensor:
    """Return what each token's advantage is multiplied by: two (n, tokens) -> (n, tokens); 1 where the mask is 0.

    Args:
        logp: of pi_old or of the policy that is being trained; detached here.
        z: (n,) standardised log-perplexities, for `ppl`; default over all the rows given.

    Raises:
        ValueError: `method` is none of METHODS.
    """
    logp, inside = logp.detach().float(), mask.bool()
    match method:
        case "none":
            weight = torch.ones_like(logp)
        case "low_prob":
            weight = 1 - alpha * torch.expm1(logp)  # expm1(log pi) = -(1 - pi), exact for pi near 1
        case "dominate":
            weight = 1 + alpha * torch.expm1(logp)
        case "ppl":
            z = standardise(log_perplexity(logp, mask)) if z is None else z
            weight = (1 - alpha * z)[:, None].expand_as(logp)
        case _:
            raise ValueError(f"method={method!r} is not known; accepted: {', '.join(METHODS)}")
    return torch.where(inside, weight, 1.0)


def log_perplexity(logp: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log PPL = -mean log pi of each response's tokens: two (n, tokens) -> (n,). 0 for an empty one."""
    inside = mask.bool()
    return -torch.where(inside, logp.float(), 0.0).sum(1) / inside.sum(1).clamp(min=1)


def standardise(x: torch.Tensor, samples: int | None = None, eps: float = 1e-6) -> torch.Tensor:
    """Return (x - mean) / (std + eps), population std, over all rows or within groups of `samples`: (n,) -> (n,).

    Values that differ by rounding alone stay near 0 instead of becoming +-1.
    """
    grouped = x.view(1, -1) if samples is None else x.view(-1, samples)
    centred = grouped - grouped.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True).sqrt() + eps)).view(-1)


def mixed_groups(accuracy: torch.Tensor, samples: int) -> torch.Tensor:
    """Find the groups with right and wrong responses; in others every advantage is 0 (DAPO's dynamic sampling).

    Args:
        accuracy: (groups x samples,) 1.0 for right, 0.0 for wrong, NaN for ungraded. The accuracy alone: with a
            length penalty in it, groups of wrong responses of different lengths would pass for mixed.

    Returns:
        (groups,) bool.
    """
    grouped = accuracy.view(-1, samples)
    return (grouped == 1).any(1) & (grouped == 0).any(1)


def overlong_penalty(lengths: torch.Tensor, limit: int, buffer: int) -> torch.Tensor:
    """Return DAPO's soft penalty of lengths in tokens: (n,) -> (n,).

    Its eq. 13: 0 up to limit - buffer, then linear, -1 from `limit` on.
    """
    return -((lengths.float() - (limit - buffer)) / buffer).clamp(0.0, 1.0)


def gradient_coefficient(
    logp: torch.Tensor, advantages: torch.Tensor, ratio: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Return the l1 norm of each unclipped token's gradient with respect to the logits, 2 |r A| (1 - pi): Lemma 1.

    Args:
        logp: (n, tokens) of the policy that is being trained.
        advantages: (n, tokens), or (n, 1).
        ratio: pi / pi_old; 1 before the first update on a batch.
    """
    return -2 * (ratio * advantages).abs() * torch.expm1(logp)


def unclipped(
    ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float, dual: float | None = None
) -> torch.Tensor:
    """Tell where the clipped objective has a gradient: two (n, tokens) -> (n, tokens) bool.

    ratio <= 1 + high if A > 0; 1 - low <= ratio <= dual if A < 0, with no upper limit where `dual` is None.
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

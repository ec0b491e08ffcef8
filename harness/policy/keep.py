"""Min-p and locally typical sampling: which tokens of a policy may be drawn, where top-p does not say so."""

import torch

from harness.policy.rule import AT_ONCE, Rule


def keep(logp: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return the policies that rows with `min_p` or `typical_p` draw from; the others' stay as they are, to the bit.

    min-p (arXiv 2407.01082) keeps the tokens with p >= min_p max p. Locally typical sampling (arXiv 2202.00666) keeps
    the fewest tokens, taken in order of |-log p - H|, whose mass reaches typical_p: those whose surprise is nearest to
    the entropy H of the whole policy; of equally near ones the lower id comes first. What is kept is normalised again.
    Looks at no value, and takes a few rows at a time.

    Args:
        logp: (n, vocab) float32 log-probabilities, normalised, at the rule's temperature. A row may be all NaN.
        rule: n rules.

    Returns:
        (n, vocab) float32 log-probabilities, -inf where a token is not kept; `logp` itself where no rule asks.
    """
    if not (rule.min_ps or rule.typical):
        return logp
    rows = torch.arange(rule.n, device=logp.device).split(AT_ONCE)
    return torch.cat([_keep(logp[at], rule.take(at)) for at in rows]) if rule.n else logp


def _keep(logp: torch.Tensor, rule: Rule) -> torch.Tensor:
    lost = torch.zeros_like(logp, dtype=torch.bool)
    if rule.min_ps:
        least = logp.amax(1, keepdim=True) + rule.min_p.log()[:, None]
        lost |= logp < least
    if rule.typical:
        lost |= ~_typical(logp, rule.typical_p) & (rule.typical_p < 1)[:, None]
    narrowed = torch.log_softmax(logp.masked_fill(lost, -torch.inf), dim=-1)
    return torch.where(rule.narrows[:, None], narrowed, logp)


def _typical(logp: torch.Tensor, typical_p: torch.Tensor) -> torch.Tensor:
    """Tell which tokens are locally typical: (n, vocab), (n,) -> (n, vocab) bool; at least one of a row is."""
    p = logp.exp()
    entropy = -torch.where(p > 0, p * logp, 0.0).sum(1, keepdim=True)
    order = (-logp - entropy).abs_().argsort(dim=1, stable=True)
    mass = p.double().gather(1, order)
    before = mass.cumsum(1) - mass
    return torch.zeros_like(p, dtype=torch.bool).scatter_(1, order, before < typical_p[:, None])

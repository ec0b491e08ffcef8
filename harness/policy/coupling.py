"""The maximal coupling of what is proposed and what is wanted: the target's law, at the least replacement."""

import torch

from harness.policy.keep import keep
from harness.policy.nucleus import UNIT, draw_by_mass, truncate
from harness.policy.rule import Noise, Rule
from harness.policy.target import argmax_target, log_softmax, primary_of, target_of


def couple(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    proposed: torch.Tensor,
    vocab_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep or redraw what was proposed, so that tokens have the target's law and few of them are redrawn.

    With B the law of the proposal y and Q that of the target, both truncated, y is kept with probability
    min(1, Q(y) / B(y)), else redrawn from (Q - B) where that is above 0. So the token's law is Q, exactly, and it is
    redrawn with probability (1/2) sum |Q - B|, the least of any way to draw both (the maximal coupling, as in
    speculative sampling, arXiv 2211.17192): the floor below every other gate that wants Q's law. Where a rule's gate
    is shut, y is kept. Looks at no value.

    Args:
        base_logits, rl_logits: (n, padded vocabulary).
        rule, noise: of n rows, whatever their gates.
        proposed: (n,) int64, drawn from B.
        vocab_size: real tokens.

    Returns:
        The tokens, (n,) int64, and which of them are redrawn, (n,) bool.
    """
    lb, lr = (log_softmax(each[:, :vocab_size], rule) for each in (base_logits, rl_logits))
    proposal, target = (truncate(keep(each(lb, lr, rule), rule), rule.top_p) for each in (primary_of, target_of))
    kept = noise.gate * proposal.gather(1, proposed[:, None])[:, 0] < target.gather(1, proposed[:, None])[:, 0]
    excess = (target - proposal).clamp_(min=0.0).mul_(2.0**UNIT).float()
    redrawn = draw_by_mass(excess, torch.ones_like(rule.top_p), noise.redraw)
    if True in rule.greedy:
        likeliest, greedy = argmax_target(base_logits, rl_logits, rule, vocab_size), rule.top_p == 0
        kept = torch.where(greedy, proposed == likeliest, kept)
        redrawn = torch.where(greedy, likeliest, redrawn)
    redraws = ~kept & noise.opens(rule) if rule.windows else ~kept
    return torch.where(redraws, redrawn, proposed), redraws

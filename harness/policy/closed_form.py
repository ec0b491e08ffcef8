"""The exact distribution of a decided token, without drawing: the oracle for every engine.

With B the primary's truncated policy, Q the target's, and f the criterion (a probability for `random`, else 0 or 1),

    P(y) = B(y) (1 - f(y)) + (sum_y' B(y') f(y')) Q(y);

and Q(y) itself for `coupling`, which replaces with probability (1/2) sum |Q - B|. All of it where the gate is open;
B(y) where a rule's window shuts it.
"""

import torch

from harness.policy.criteria import cross_entropy, fires, statistic
from harness.policy.decision import spikes
from harness.policy.history import Past
from harness.policy.keep import keep
from harness.policy.nucleus import truncate
from harness.policy.rule import Rule
from harness.policy.target import log_softmax, primary_of, target_of


def distribution(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    *,
    vocab_size: int | None = None,
    positions: torch.Tensor | None = None,
    past: Past | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return P(token) and P(replaced) of one step of Algorithm 1, exactly.

    Args:
        base_logits, rl_logits: (n, padded vocabulary).
        rule: n rules.
        vocab_size: real tokens; the rest is padding.
        positions: (n,) int64, absolute; only rules whose gates are not open everywhere, and `spike`, look at them.
        past: of these rows, for `spike`, which writes this step down.

    Returns:
        (n, vocab) float64, rows sum to 1; (n,) float64.
    """
    lb = log_softmax(base_logits[:, :vocab_size], rule)
    lr = log_softmax(rl_logits[:, :vocab_size], rule)
    proposal = truncate(keep(primary_of(lb, lr, rule), rule), rule.top_p)
    target = truncate(keep(target_of(lb, lr, rule), rule), rule.top_p)
    held = torch.zeros_like(proposal)  # f(y) for every token y
    for gate in rule.gates:
        rows = rule.has(gate).nonzero().squeeze(1)
        if gate == "always":
            held[rows] = 1.0
        elif gate == "random":
            chance = rule.tau[rows, None].double().clamp(0, 1)
            held[rows] = torch.where(rule.below[rows, None], chance, 1 - chance)
        elif gate == "spike":
            own, ce = rule.take(rows), cross_entropy(lb[rows], lr[rows])
            value = spikes(ce, own, None if positions is None else positions[rows], past, rows)
            held[rows] = fires(value, own.tau, own.below).double()[:, None].expand_as(held[rows])
        elif gate not in ("never", "coupling"):
            for row in rows.tolist():
                held[row] = _held(gate, lb[row], lr[row], rule.tau[row], rule.below[row]).double()
    replaced = (proposal * held).sum(-1)
    law = proposal * (1 - held) + replaced[:, None] * target
    coupled = rule.has("coupling")
    law = torch.where(coupled[:, None], target, law)
    replaced = torch.where(coupled, (proposal - target).clamp(min=0).sum(-1), replaced)
    if rule.windows and positions is not None:
        opens = rule.open_at(positions)
        law, replaced = torch.where(opens[:, None], law, proposal), torch.where(opens, replaced, 0.0)
    return law, replaced


def _held(gate: str, lb: torch.Tensor, lr: torch.Tensor, tau: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Return f(y) for all tokens y of one position: (vocab,), (vocab,), (), () -> (vocab,) bool."""
    of_tokens = {"delta_logp": lr - lb, "abs_delta_logp": (lr - lb).abs(), "nll_rl": -lr}
    if gate in of_tokens:
        return fires(of_tokens[gate], tau, below)
    token, rho = torch.zeros(1, dtype=torch.long), torch.zeros(1)
    return fires(statistic(gate, lb[None], lr[None], token, rho), tau, below).expand(lb.shape)

"""Compute the exact distribution of a written token, without sampling: the oracle for every engine.

With B the primary's truncated policy, Q_x the target's if x was proposed, and f the criterion (a probability for
`random`, otherwise 0 or 1),

    P(y) = B(y) (1 - f(y)) + sum_x B(x) f(x) Q_x(y).

Q_x is one Q for all x, unless the writer cannot write x. Then it is that of the target without x, or if the other model
decides, with its truncated policy D, it is D(x) at x and (1 - D(x)) times that elsewhere. P is Q(y) itself if the gate
has its own distribution to resample from, which replaces with probability (1/2) sum |Q - B|. All of this applies if the
window is open; otherwise P is B(y).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rlvr_dir.policy.combine import PAIR, Combination, cut
from rlvr_dir.policy.nucleus import nucleus
from rlvr_dir.policy.rule import Rows, Rules
from rlvr_dir.policy.step import Requests, Step
from rlvr_dir.policy.target import Policies, weights


def distribution(
    logits: Mapping[str, Tensor], rules: Rules, requests: Requests | None = None, combination: Combination = PAIR
) -> tuple[Tensor, Tensor]:
    """Return P(token) and P(replaced) of one step of Algorithm 1, exactly.

    Args:
        logits: Those of each role, (n, padded vocabulary).
        rules: n rules.
        requests: Those of these rows, which only windows use (by default, first tokens).

    Returns:
        (n, vocab) float64, rows sum to 1; (n,) float64.
    """
    base, rl = (cut(each, combination.vocab) for each in combination.policies(logits, rules.rl_alone))
    n, vocab = base.shape
    zeros = torch.zeros(n, dtype=torch.long)
    requests = requests or Requests(zeros, zeros, zeros)
    policies, every = Policies(base, rl, rules), Rows(range(n), n, base.device)
    proposal = nucleus(weights(policies.primary, rules), rules.top_p)

    def target_of(token: int) -> Tensor:
        proposed = torch.full((n,), token, device=base.device)
        return nucleus(weights(policies.target(every, proposed)[0], rules), rules.top_p)

    target = target_of(0)  # of every rule whose writer may give the proposed token
    held = torch.zeros_like(proposal)  # f(y) for every token y
    coupled = torch.zeros(n, dtype=torch.bool)
    for gate, rows in rules.gates:
        tau, below = rows.of(rules.tau)[:, None].double(), rows.of(rules.below)[:, None]
        if gate.redraws:
            coupled[rows.index] = True
        elif gate.statistic == "random":
            chance = tau.clamp(0, 1).expand(-1, vocab)
            rows.write(held, torch.where(below, chance, 1 - chance))
        else:
            columns = []
            for token in range(vocab):
                step = Step(rows, requests, torch.full((n,), token), policies)
                columns.append(gate.value(step).double())
            value = torch.stack(columns, 1).expand(-1, vocab)
            rows.write(held, torch.where(below, value < tau, value > tau).double())
    sign = rules.sign[:, None]
    held = held * ((sign == 0) | (sign * (policies.lr - policies.lb) > 0))
    replaced = (proposal * held).sum(-1)
    redrawn = replaced[:, None] * target
    if without := rules.without.rows:
        stays = rules.decided.put(torch.zeros_like(proposal), nucleus(weights(policies.decider, rules), rules.top_p))
        stays = rules.coins.put(stays, (1 - rules.rate)[:, None].expand_as(stays))
        flagged = proposal * held
        each = [(flagged * (1 - stays))[:, token, None] * target_of(token) for token in range(vocab)]
        redrawn = redrawn.index_copy(0, rules.without.index, (flagged * stays + sum(each))[list(without)])
    law = proposal * (1 - held) + redrawn
    law = torch.where(coupled[:, None], target, law)
    replaced = torch.where(coupled, (proposal - target).clamp(min=0).sum(-1), replaced)
    opens = rules.open(requests.written)
    return torch.where(opens[:, None], law, proposal), torch.where(opens, replaced, 0.0)

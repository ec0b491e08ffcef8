"""Run Algorithm 1 for a batch: the primary model proposes a token, and a flagged token is resampled.

A resample needs two choices. The decider chooses whether the flagged token is dropped. The gate as decider always drops
it. If base or RL decides, that model samples a token, and the flagged one is kept if it is the same. A coin drops a
share of the flagged tokens. The writer (base, RL or pi_extra) then samples from its distribution without the dropped
token. Without a decider, one sample of the writer makes both choices.

Everything is computed with masks and rows known in advance. No value is read on the host, so the host never waits for a
GPU, and a row's result does not depend on its batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlvr_dir.policy.combine import PAIR, Combination, cut
from rlvr_dir.policy.noise import PROPOSE, REDRAW, REWRITE
from rlvr_dir.policy.nucleus import draw
from rlvr_dir.policy.rule import Rules, where
from rlvr_dir.policy.step import Requests, Step
from rlvr_dir.policy.target import Policies, weights
from rlvr_dir.policy.trace import traced


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold the decision at one position of each row; all fields are (n,)."""

    token: Tensor  # int64, the token to write
    proposed: Tensor  # int64, the token that the primary proposed
    replaced: Tensor  # bool: the gate flagged the token, which was resampled
    delta_logp: Tensor  # float32, of the proposed token, in nats; NaN: invalid logits, or an invalid value of the gate
    delta_logp_written: Tensor  # float32, of `token`
    trace: Tensor | None = None  # (traced rows, columns(top)) float32, see `trace.py`

    @property
    def changed(self) -> Tensor:
        """Return where the written token differs from the proposed one: (n,) bool."""
        return self.token != self.proposed


def decide(
    logits: Mapping[str, Tensor],
    rules: Rules,
    requests: Requests,
    combination: Combination = PAIR,
) -> Decision:
    """Run one step of Algorithm 1 for n rows.

    Args:
        logits: For each role of the combination, (n, padded vocabulary), any float type.
        rules, requests: Those of the n rows.

    Returns:
        Decision, on the logits' device. If a model's logits do not form a distribution (one is NaN or +inf, or all are
            -inf), `delta_logp` is NaN, and the row's token is an arbitrary one of the vocabulary.
    """
    base, rl = (cut(policy, combination.vocab) for policy in combination.policies(logits, rules.rl_alone))
    policies = Policies(base, rl, rules)
    proposed = draw(weights(policies.primary, rules), rules.top_p, requests.noise(PROPOSE))
    delta_logp = policies.delta_logp(proposed)

    value = torch.zeros(rules.n, dtype=torch.float64, device=base.device)  # infinite tau: no gate
    redrawn, redraw = proposed.clone(), requests.noise(REDRAW)
    for gate, rows in rules.gates:
        step = Step(rows, requests, proposed, policies, {"delta_logp": delta_logp})
        rows.write(value, gate.ask(step, len(rows.rows)))
        if gate.redraws:
            rows.write(redrawn, draw(gate.redraw(step), torch.ones_like(rows.of(rules.top_p)), rows.of(redraw)))
    replaced = rules.fires(value, delta_logp) & rules.open(requests.written)

    if rules.gates and (rows := where(replaced & rules.draws_target)).rows:
        writer, own = policies.target(rows, proposed)
        noise, decided = rows.of(redraw), own.decided
        written = decided.put(noise, rows.of(requests.noise(REWRITE))) if decided.rows else noise
        drawn = draw(weights(writer, own), own.top_p, written)
        if decided.rows:
            decider, decided_rules = decided.of(rows.of(policies.decider)), own.of(decided)
            flagged, u = decided.of(rows.of(proposed)), decided.of(noise)
            kept = draw(weights(decider, decided_rules), decided_rules.top_p, u) == flagged
            if decided_rules.coins.rows:  # a smaller u draws a more likely token; a coin keeps tokens there, too
                decided_rules.coins.write(kept, decided_rules.coins.of(u < 1 - decided_rules.rate))
            decided.write(drawn, torch.where(kept, flagged, decided.of(drawn)))
        rows.write(redrawn, torch.where(own.draws_target, drawn, rows.of(redrawn)))
    token = torch.where(replaced, redrawn, proposed)
    trace = traced(policies, proposed) if rules.traced.rows else None
    delta_logp = delta_logp.masked_fill(value.isnan(), torch.nan)
    return Decision(token, proposed, replaced, delta_logp, policies.delta_logp(token), trace)

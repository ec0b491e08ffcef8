"""The mathematics of decoding with two models, and of training: pure functions on torch tensors, no I/O.

`decide` is Algorithm 1 for a batch whose rows each have their own rule; `distribution` is the same in closed form.
`reweight` has the three ways of reweighting advantages; `gradient_coefficient` is Lemma 1.
"""

from harness.policy.advantages import (
    METHODS,
    gradient_coefficient,
    group_advantages,
    log_perplexity,
    mixed_groups,
    overlong_penalty,
    reweight,
    standardise,
    sums_by_probability,
    token_weights,
    unclipped,
)
from harness.policy.carry import carried
from harness.policy.closed_form import distribution
from harness.policy.criteria import BELOW, CRITERIA, delta_logp, entropy, fires, kl_divergence
from harness.policy.decision import Decision, decide, propose
from harness.policy.fused import decide_fused, force, fused_available
from harness.policy.history import MOST_SPAN, History, Past
from harness.policy.noise import ACCEPT, GATE, PLACE, PROPOSE, REDRAW, move_key, request_key, uniform
from harness.policy.nucleus import draw, truncate
from harness.policy.rule import COLUMNS, GATES, Noise, Rule, RuleRow
from harness.policy.shared import over_shared
from harness.policy.target import extrapolate, log_softmax

__all__ = [
    "ACCEPT",
    "BELOW",
    "COLUMNS",
    "CRITERIA",
    "GATE",
    "GATES",
    "METHODS",
    "MOST_SPAN",
    "PLACE",
    "PROPOSE",
    "REDRAW",
    "Decision",
    "History",
    "Noise",
    "Past",
    "Rule",
    "RuleRow",
    "carried",
    "decide",
    "decide_fused",
    "delta_logp",
    "distribution",
    "draw",
    "entropy",
    "extrapolate",
    "fires",
    "force",
    "fused_available",
    "gradient_coefficient",
    "group_advantages",
    "kl_divergence",
    "log_perplexity",
    "log_softmax",
    "mixed_groups",
    "move_key",
    "over_shared",
    "overlong_penalty",
    "propose",
    "request_key",
    "reweight",
    "standardise",
    "sums_by_probability",
    "token_weights",
    "truncate",
    "unclipped",
    "uniform",
]

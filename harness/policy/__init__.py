"""The mathematics of decoding with two models: pure functions on torch tensors, no I/O, nothing of ours imported.

`decide` is Algorithm 1 for a batch whose rows each have their own rule; `distribution` is the same in closed form.
"""

from harness.policy.closed_form import distribution
from harness.policy.criteria import CRITERIA, delta_logp, entropy, fires, kl_divergence
from harness.policy.decision import GATES, Decision, Noise, Rule, RuleRow, decide, extrapolate, log_softmax
from harness.policy.noise import GATE, PROPOSE, REDRAW, request_key, uniform
from harness.policy.nucleus import draw, truncate

__all__ = [
    "CRITERIA",
    "GATE",
    "GATES",
    "PROPOSE",
    "REDRAW",
    "Decision",
    "Noise",
    "Rule",
    "RuleRow",
    "decide",
    "delta_logp",
    "distribution",
    "draw",
    "entropy",
    "extrapolate",
    "fires",
    "kl_divergence",
    "log_softmax",
    "request_key",
    "truncate",
    "uniform",
]

"""Encode a rule as a row of numbers for the kernels, which implement statistics but no criteria."""

from math import inf

from rlvr_dir.policy.gates import sign_of
from rlvr_dir.policy.rule import Rule

# The statistics that the kernels compare, by their number in the table of rules.
STATISTICS = (
    "delta_logp", "abs_delta_logp", "nll_rl", "entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl", "kl", "ce",
    "random",
)  # fmt: skip
COLUMNS = (
    "statistic", "proposes_rl", "tau", "gamma", "temperature", "top_p", "below", "since", "until", "draws_target",
    "greedy", "sign",
)  # fmt: skip


def by_torch(rule: Rule) -> bool:
    """Return whether torch decides a row instead of the kernels.

    This is so if its gate needs whole policies, which the kernels do not keep, or if its writer cannot write the
    proposed token.
    """
    return rule.decider is not None or (rule.gate is not None and rule.gate.statistic not in STATISTICS)


def columns(rule: Rule) -> tuple[float, ...]:
    """Return a rule in the order of COLUMNS, as the kernels read it."""
    statistic, (tau, below) = 0, (inf, False)
    if rule.gate is not None and not by_torch(rule):
        statistic, (tau, below) = STATISTICS.index(rule.gate.statistic), rule.gate.threshold
    numbers = tau, rule.gamma, rule.temperature, rule.top_p, below, rule.since, rule.until
    return (statistic, rule.primary == "rl", *numbers, tau != inf, rule.greedy, sign_of(rule.gate))

"""What the kernels read of a rule: a row of numbers. They know statistics, and no criterion."""

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
    """Return whether torch decides a row by itself: its gate needs policies, which the kernels do not keep, or its
    writer cannot give the proposed token.
    """
    return rule.decider is not None or (rule.gate is not None and rule.gate.statistic not in STATISTICS)


def columns(rule: Rule) -> tuple[float, ...]:
    """Return a rule as the kernels read it, in the order of COLUMNS."""
    statistic, (tau, below) = 0, (inf, False)
    if rule.gate is not None and not by_torch(rule):
        statistic, (tau, below) = STATISTICS.index(rule.gate.statistic), rule.gate.threshold
    numbers = tau, rule.gamma, rule.temperature, rule.top_p, below, rule.since, rule.until
    return (statistic, rule.primary == "rl", *numbers, tau != inf, rule.greedy, sign_of(rule.gate))

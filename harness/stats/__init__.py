"""Avg@k, Pass@k, error bars and paired tests over a problems x samples matrix; numpy and scipy, no I/O."""

from harness.stats.errors import sampling_error, standard_error, t_interval
from harness.stats.paired import PairedDifference, paired_difference, sign_flip_p
from harness.stats.passk import avg_at_k, pass_at_k, pass_at_k_per_problem

__all__ = [
    "PairedDifference",
    "avg_at_k",
    "paired_difference",
    "pass_at_k",
    "pass_at_k_per_problem",
    "sampling_error",
    "sign_flip_p",
    "standard_error",
    "t_interval",
]

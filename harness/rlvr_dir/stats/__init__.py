"""Compute Avg@k, Pass@k, Maj@k, error bars, paired tests and power from (problems, samples) matrices; no I/O."""

from rlvr_dir.stats.best import BestDifference, best_difference
from rlvr_dir.stats.choice import SPLITS, Choice, choice
from rlvr_dir.stats.clusters import difference_over_runs, paired_seeds, score_over_runs
from rlvr_dir.stats.comparison import Comparison, RunScores, Scores, corrected
from rlvr_dir.stats.crossing import Crossing, crossing
from rlvr_dir.stats.errors import (
    combined,
    sampling_error,
    satterthwaite,
    score_interval,
    standard_error,
    t_interval,
)
from rlvr_dir.stats.estimate import Estimate, p_value
from rlvr_dir.stats.families import FEW, Labels, common_families, count_families, unseen
from rlvr_dir.stats.majority import maj_at_k, maj_at_k_per_problem, numbered
from rlvr_dir.stats.mass import gain_parts, least_share, mass_share, share_of_gain
from rlvr_dir.stats.metrics import Responses, benchmark_metrics, pass_ks, problem_metrics, ratio
from rlvr_dir.stats.paired import PairedDifference, mean_difference, paired_difference, sampling_interval, sign_flip_p
from rlvr_dir.stats.passk import avg_at_k, pass_at_k, pass_at_k_per_problem, samples_of
from rlvr_dir.stats.power import Spread, detectable_gain, paired_spread, power, problems_needed
from rlvr_dir.stats.reached import reached
from rlvr_dir.stats.shares import problem_share, share_ratio, token_difference, token_mean, token_share
from rlvr_dir.stats.tables import holm, mean_interval
from rlvr_dir.stats.trainings import TrainingScores, mean_difference_over_runs, seed_spread

__all__ = [
    "FEW",
    "SPLITS",
    "BestDifference",
    "Choice",
    "Comparison",
    "Crossing",
    "Estimate",
    "Labels",
    "PairedDifference",
    "Responses",
    "RunScores",
    "Scores",
    "Spread",
    "TrainingScores",
    "avg_at_k",
    "benchmark_metrics",
    "best_difference",
    "choice",
    "combined",
    "common_families",
    "corrected",
    "count_families",
    "crossing",
    "detectable_gain",
    "difference_over_runs",
    "gain_parts",
    "holm",
    "least_share",
    "maj_at_k",
    "maj_at_k_per_problem",
    "mass_share",
    "mean_difference",
    "mean_difference_over_runs",
    "mean_interval",
    "numbered",
    "p_value",
    "paired_difference",
    "paired_seeds",
    "paired_spread",
    "pass_at_k",
    "pass_at_k_per_problem",
    "pass_ks",
    "power",
    "problem_metrics",
    "problem_share",
    "problems_needed",
    "ratio",
    "reached",
    "samples_of",
    "sampling_error",
    "sampling_interval",
    "satterthwaite",
    "score_interval",
    "score_over_runs",
    "seed_spread",
    "share_of_gain",
    "share_ratio",
    "sign_flip_p",
    "standard_error",
    "t_interval",
    "token_difference",
    "token_mean",
    "token_share",
    "unseen",
]

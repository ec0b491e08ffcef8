"""The scores of a training: means over seeds and benchmarks, and what they are set beside, by hand."""

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.stats import RunScores, TrainingScores, mean_difference_over_runs


def runs(label, task, by_seed):
    """Scores of two problems by seed, each with two samples."""
    tables = {seed: np.array(rows, dtype=float) for seed, rows in by_seed.items()}
    return RunScores(label, task, tuple(tables), np.array([x.mean() for x in tables.values()]), runs=tables)


OURS = TrainingScores(
    {
        "a": runs("ours", "a", {0: [[1, 1], [1, 0]], 1: [[1, 0], [0, 0]]}),  # 0.75 and 0.25
        "b": runs("ours", "b", {0: [[1, 1], [1, 1]], 1: [[1, 1], [0, 1]]}),  # 1 and 0.75
    },
    {"a": runs("base", "a", {seed: [[0, 0], [1, 0]] for seed in (0, 1)})},  # 0.25
)
DAPO = TrainingScores({"b": runs("DAPO", "b", {0: [[1, 0], [1, 0]], 1: [[0, 0], [1, 1]]})})  # 0.5 and 0.5


def test_the_mean_is_over_benchmarks_and_seeds():
    assert OURS.mean().mean == pytest.approx((0.5 + 0.875) / 2)
    assert OURS.only(["a"]).mean().mean == pytest.approx(0.5)
    assert OURS.only(["a"]).mean() == stats.score_over_runs([OURS.runs["a"].runs])


def test_gain_and_difference_are_of_the_benchmarks_that_both_sides_have():
    assert [(one.task, base.label) for one, base in OURS.beside_base()] == [("a", "base")]
    assert mean_difference_over_runs(OURS.beside_base()).mean == pytest.approx(0.25)
    assert [(one.task, other.label) for one, other in OURS.beside(DAPO)] == [("b", "DAPO")]
    assert mean_difference_over_runs(OURS.beside(DAPO)).mean == pytest.approx(0.375)
    assert OURS.beside(TrainingScores()) == []

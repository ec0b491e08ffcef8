"""What choosing a checkpoint on the test set is worth, where the truth is known."""

import numpy as np
import pytest

from harness.errors import UserError
from harness.stats import choice


def test_of_validations_that_differ_by_luck_alone_the_best_is_worth_nothing_elsewhere():
    """Twenty checkpoints as good as each other: the best seems 3 points better, and on other problems it is not."""
    random = np.random.default_rng(0)
    found = [choice(random.binomial(32, 0.5, (20, 30)) / 32, splits=200) for _ in range(60)]
    assert np.mean([one.best for one in found]) > 0.525
    assert np.mean([one.elsewhere for one in found]) == pytest.approx(0.5, abs=0.006)
    assert np.mean([one.last_mean for one in found]) == pytest.approx(0.5, abs=0.006)


def test_a_checkpoint_that_is_better_is_found_by_either_half():
    scores = np.zeros((6, 10))
    scores[3] = 1.0
    found = choice(scores)
    assert (found.best, found.at, found.elsewhere, found.last, found.last_mean) == (1.0, 3, 1.0, 0.0, 0.2)
    assert (found.averaged, found.validations) == (5, 6)


def test_one_problem_has_no_other_half_and_a_vector_is_refused():
    assert np.isnan(choice([[0.0], [1.0]]).elsewhere)
    with pytest.raises(UserError, match=r"scores has shape \(2,\)"):
        choice([0.0, 1.0])

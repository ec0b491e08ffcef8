"""Theorem 1: true where its premise is, and where the rewards are noisy, not."""

import numpy as np
import pytest

from harness.analysis.bandit import GAMMAS, expected, softmax, theorem, train, trials


def test_extrapolation_is_training_on():
    """theta^t + gamma (theta^t - theta^0) is, up to a constant, theta^{(1 + gamma) t}."""
    random = np.random.default_rng(0)
    start, reward = random.normal(size=8), random.normal(size=8)
    trained, further = train(start, reward, 10, 0.1), train(start, reward, 30, 0.1)
    assert np.allclose(softmax(trained + 2 * (trained - start)), softmax(further))


@pytest.mark.parametrize("seed", range(20))
def test_no_gamma_does_worse_with_exact_rewards(seed):
    random = np.random.default_rng(seed)
    start, reward = random.normal(size=6), random.normal(size=6)
    values = expected(start, train(start, reward, 15, 0.2), reward, GAMMAS)
    assert (np.diff(values) > -1e-12).all()
    assert values[1] > values[0]


def test_noise_in_the_rewards_makes_bandits_lose():
    data = theorem(trials(bandits=100)).frame("trials")
    exact, *noisy = (mine for _, mine in data.groupby("noise"))
    assert exact["share_losing"].max() == 0
    losing = [one["share_losing"].iloc[-1] for one in noisy]
    assert losing == sorted(losing)
    assert losing[-1] > 0.1
    assert exact["expected_reward"].iloc[-1] == pytest.approx(1)
    assert noisy[-1]["expected_reward"].iloc[-1] < 0.8

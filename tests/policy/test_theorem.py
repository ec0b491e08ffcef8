"""The paper's Theorem 1 (`theorem:extra`): true where its premise is, and not where the rewards are noisy.

A tabular softmax bandit under natural policy gradient, extrapolated along what it learned. With exact advantages
theta^{t+1} - theta^t = eta A^t(y), and A^t(y) = R(y) - E_pi[R]: the constant drops out of the softmax, so
theta^t = theta^0 + eta t R up to a constant, and pi_omega(theta, gamma) is the policy of step (1 + gamma) t.
"""

import numpy as np
import pytest

GAMMAS = np.array([0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def softmax(theta):
    p = np.exp(theta - theta.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def train(theta, reward, steps, eta):
    """Make `steps` updates of natural policy gradient with exact advantages: (responses,) -> (responses,)."""
    for _ in range(steps):
        theta = theta + eta * (reward - softmax(theta) @ reward)
    return theta


def expected(start, trained, reward):
    """Return the expected reward of softmax(theta + gamma (theta - theta^0)) at each of GAMMAS: (gammas,)."""
    return softmax(trained + GAMMAS[:, None] * (trained - start)) @ reward


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
    values = expected(start, train(start, reward, 15, 0.2), reward)
    assert (np.diff(values) > -1e-12).all()
    assert values[1] > values[0]


def test_noise_in_the_rewards_makes_bandits_lose():
    """100 bandits of 20 responses, trained on rewards of 0 or 1 with fixed noise, judged by the true rewards."""
    random = np.random.default_rng(0)
    start, unit = random.normal(size=(2, 100, 20))
    true = (random.random((100, 20)) < 0.3).astype(float)
    true[:, 0], true[:, 1] = 1.0, 0.0  # never constant
    losing, last = [], []
    for noise in (0.0, 0.5, 1.0, 2.0):
        trained = [train(start[i], true[i] + noise * unit[i], 20, 0.1) for i in range(100)]
        reward = np.stack([expected(start[i], trained[i], true[i]) for i in range(100)])  # (bandits, gammas)
        losing.append((reward[:, -1] < reward[:, 0] - 1e-12).mean())
        last.append(reward[:, -1].mean())
    assert losing[0] == 0
    assert losing == sorted(losing)
    assert losing[-1] > 0.1
    assert last[0] == pytest.approx(1)
    assert last[-1] < 0.8

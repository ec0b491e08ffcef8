"""Theorem 1 by numbers: a tabular softmax bandit under natural policy gradient, extrapolated along what it learned.

With exact advantages theta^{t+1} - theta^t = eta A^t(y), and A^t(y) = R(y) - E_pi[R]: the constant drops out of the
softmax, so theta^t = theta^0 + eta t R up to a constant, and pi_omega(theta, gamma) is the policy of step (1+gamma) t:
the expected reward never falls with gamma. Where the rewards that were learned from are noisy, the direction holds the
noise too, and the theorem's premise, and sometimes its conclusion, is gone.
"""

from dataclasses import dataclass

import numpy as np

from harness.analysis.result import Analysis

GAMMAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def softmax(theta: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis."""
    p = np.exp(theta - theta.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def train(theta: np.ndarray, reward: np.ndarray, steps: int, eta: float) -> np.ndarray:
    """Make `steps` updates of natural policy gradient with exact advantages: (responses,) -> (responses,)."""
    theta = theta.copy()
    for _ in range(steps):
        theta += eta * (reward - softmax(theta) @ reward)
    return theta


def expected(start: np.ndarray, trained: np.ndarray, reward: np.ndarray, gammas: tuple[float, ...]) -> np.ndarray:
    """Return the expected reward of pi_omega(theta, gamma) = softmax(theta + gamma (theta - theta^0)), by gamma."""
    omega = trained + np.asarray(gammas)[:, None] * (trained - start)
    return softmax(omega) @ reward


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Many random bandits at one level of noise: expected *true* reward by gamma, (bandits, gammas)."""

    noise: float
    reward: np.ndarray

    @property
    def gains(self) -> np.ndarray:
        """Against gamma = 0."""
        return self.reward - self.reward[:, :1]


def trials(
    noises: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0),
    *,
    bandits: int = 400,
    responses: int = 20,
    steps: int = 20,
    eta: float = 0.1,
    gammas: tuple[float, ...] = GAMMAS,
    seed: int = 0,
) -> list[Trial]:
    """Train bandits with rewards 0 or 1 on rewards with fixed Gaussian noise of each size; judge by the true ones.

    The noise of a response is the same at every step, as that of a flawed verifier is. A bandit's start, rewards and
    unit noise are shared by all levels.
    """
    random = np.random.default_rng(seed)
    start = random.normal(size=(bandits, responses))
    true = (random.random((bandits, responses)) < 0.3).astype(float)
    true[:, 0], true[:, 1] = 1.0, 0.0  # never constant
    unit = random.normal(size=(bandits, responses))
    found = []
    for noise in noises:
        rows = [
            expected(start[i], train(start[i], true[i] + noise * unit[i], steps, eta), true[i], gammas)
            for i in range(bandits)
        ]
        found.append(Trial(noise, np.stack(rows)))
    return found


def theorem(found: list[Trial], gammas: tuple[float, ...] = GAMMAS) -> Analysis:
    """Return means over bandits with standard errors, and how many bandits lose."""
    n = len(found[0].reward)
    rows = [
        {"noise": one.noise, "gamma": gamma, "expected_reward": mean, "standard_error": error, "share_losing": losing}
        for one in found
        for gamma, mean, error, losing in zip(
            gammas,
            one.reward.mean(axis=0).tolist(),
            (one.reward.std(axis=0, ddof=1) / np.sqrt(n)).tolist(),
            (one.gains < -1e-12).mean(axis=0).tolist(),
            strict=True,
        )
    ]
    return Analysis(kind="theorem", facts={"bandits": n}, tables={"trials": tuple(rows)})

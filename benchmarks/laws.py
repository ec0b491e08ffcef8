"""Draw problems whose probabilities of being solved follow a known distribution, to measure intervals."""

import numpy as np

from rlvr_dir.stats import Estimate

LAWS = {  # a mixture of Beta distributions of a problem's probability: (weight, a, b)
    "hard, 3 %": ((1.0, 0.1, 3.2),),
    "few solved, 3 %": ((1 / 30, 90.0, 10.0), (29 / 30, 0.01, 1e6)),
    "middle, 40 %": ((1.0, 0.4, 0.6),),
    "easy, 95 %": ((1.0, 1.9, 0.1),),
}

Random = np.random.Generator


def chances(law: str, size: tuple[int, ...], random: Random) -> np.ndarray:
    """Draw the probabilities of problems from a distribution of `LAWS`."""
    weights, a, b = (np.array(each) for each in zip(*LAWS[law], strict=True))
    which = random.choice(len(weights), size=size, p=weights)
    return random.beta(a[which], b[which])


def expected(law: str) -> float:
    """Return the mean probability of a distribution."""
    return sum(weight * a / (a + b) for weight, a, b in LAWS[law])


def pair_of(p: np.ndarray, q: np.ndarray, samples: int, shared: float, random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Draw the samples of two settings with probabilities p and q; a share of them has common noise."""
    u = random.random((*p.shape, samples))
    v = np.where(random.random(u.shape) < shared, u, random.random(u.shape))
    return u < p[..., None], v < q[..., None]


def families(n: int, sizes: str, random: Random) -> np.ndarray:
    """Return the family of each of n problems, (n,), in order."""
    if sizes == "5 each":
        return np.repeat(np.arange(n // 5), 5)
    if sizes == "1 to 12":
        return np.repeat(np.arange(n), random.integers(1, 13, n))[:n]
    return np.concatenate([np.zeros(n // 4, int), np.arange(1, n - n // 4 + 1)])


def shared_by(labels: np.ndarray, shared: float, random: Random) -> np.ndarray:
    """Draw a standard normal number per problem, (n,), with a part of the variance shared within families."""
    own, common = random.normal(size=labels.size), random.normal(size=labels.max() + 1)
    return np.sqrt(shared) * common[labels] + np.sqrt(1 - shared) * own


def holds(interval: tuple[float, float], truth: float) -> bool:
    """Return whether an interval contains the true value, up to rounding."""
    return interval[0] - 1e-12 <= truth <= interval[1] + 1e-12


def within(one: Estimate, truth: float) -> bool:
    """Return whether an estimate has two bounds with the true value between them."""
    return one.low is not None and one.high is not None and one.low <= truth <= one.high

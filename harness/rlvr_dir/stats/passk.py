"""Compute Avg@k and Pass@k of a correctness matrix `X` of shape (problems, samples)."""

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError


def _matrix(correct: ArrayLike) -> np.ndarray:
    """Return `correct` as a (problems, samples) float array; refuse an empty one, or other values than 0 and 1."""
    x = np.asarray(correct, dtype=float)
    if x.ndim != 2 or 0 in x.shape:
        raise UserError(f"correct has shape {x.shape}", accepted="(problems, samples), neither of them 0")
    if not np.isin(x, (0.0, 1.0)).all():
        raise UserError(
            "correct contains something other than 0 and 1",
            argument="correct",
            accepted="0 and 1 (leave missing samples out)",
        )
    return x


def samples_of(right: ArrayLike, samples: int) -> np.ndarray:
    """Return (problems, samples) of 0 and 1 with the given number of right samples per problem, in arbitrary order.

    >>> samples_of([1, 2], 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return (np.arange(samples) < np.asarray(right)[:, None]).astype(float)


def avg_at_k(correct: ArrayLike) -> float:
    """Return Avg@k: the mean over problems of the share of right samples, where k is the number of samples.

    >>> avg_at_k([[1, 1, 1, 0], [0, 0, 0, 0]])
    0.375
    """
    return float(_matrix(correct).mean())


def pass_at_k_per_problem(correct: ArrayLike, k: int) -> np.ndarray:
    r"""Return, per problem, the chance that k of its n samples, drawn without replacement, hold a right one.

    With c right samples of n this is 1 - C(n-c, k) / C(n, k), computed in its stable product form
    1 - \prod_{i=n-c+1}^{n} (1 - k/i), and 1 where fewer than k samples are wrong. Shape: (problems,).

    Raises:
        UserError: k is not within 1..n, or `correct` is no (problems, samples) matrix of 0 and 1.
    """
    x = _matrix(correct)
    n = x.shape[1]
    if not 1 <= k <= n:
        raise UserError(f"is not allowed: Pass@k from {n} samples needs 1 <= k <= {n}", argument="k", value=k)
    c = x.sum(axis=1).astype(int)
    return np.array([1.0 if n - ci < k else 1.0 - np.prod(1.0 - k / np.arange(n - ci + 1, n + 1)) for ci in c])


def pass_at_k(correct: ArrayLike, k: int) -> float:
    """Return Pass@k: the mean over problems of `pass_at_k_per_problem`; k=1 is Avg@n.

    >>> pass_at_k([[1, 0, 0, 0], [0, 0, 0, 0]], k=2)
    0.25
    """
    return float(pass_at_k_per_problem(correct, k).mean())

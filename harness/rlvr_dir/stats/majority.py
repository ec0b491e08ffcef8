"""Compute Maj@k: how often the most frequent of k answers is right."""

from collections.abc import Hashable, Sequence
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError

DRAWS = 1000


def maj_at_k(
    answers: Sequence[Sequence[Hashable | None]],
    correct: Sequence[Sequence[bool]],
    k: int | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> float:
    """Return the mean over problems of the probability that a majority vote of k samples is right.

    Equal answers vote together. None (no answer) does not vote, and a vote without voters is wrong. A tie is broken at
    random, so its winners share the point. With k = n there is one vote per problem. For smaller k, all subsets of k
    samples are used if there are at most `draws`, otherwise that many random ones from a fixed seed.

    Args:
        answers: (problems, samples) answers, as comparable text or classes.
        correct: (problems, samples) whether each is right.
        k: The number of votes; by default all samples.
        draws: Subsets per problem when k is smaller than the number of samples.
        seed: The seed of the subsets.

    Raises:
        UserError: The shapes differ, a problem has another number of samples, or k is out of range.

    >>> maj_at_k([["7", "7", "3"], ["1", "2", None]], [[1, 1, 0], [1, 0, 0]])
    0.75
    """
    widths = {len(row) for row in answers} | {len(row) for row in correct}
    if len(answers) != len(correct) or len(widths) != 1 or not answers or widths == {0}:
        raise UserError("answers and correct differ in shape", accepted="two complete (problems, samples) tables")
    n = widths.pop()
    k = n if k is None else k
    if not 1 <= k <= n:
        raise UserError(f"is not allowed: Maj@k from {n} samples needs 1 <= k <= {n}", argument="k", value=k)
    return float(maj_at_k_per_problem([numbered(row) for row in answers], correct, k, draws=draws, seed=seed).mean())


def maj_at_k_per_problem(
    votes: ArrayLike, correct: ArrayLike, k: int, *, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Return the values whose mean is `maj_at_k`, one per problem, for answers that are numbered from 0 (-1: none).

    `votes` and `correct` are (problems, samples). An answer is right if any of its samples is.
    """
    table, right = np.asarray(votes, dtype=np.int64), np.asarray(correct, dtype=bool)
    problems, n = table.shape
    every = list(combinations(range(n), k)) if comb(n, k) <= draws else None
    random = np.random.default_rng(seed)
    scores = np.zeros(problems)
    for i, (row, ok) in enumerate(zip(table, right, strict=True)):
        classes = int(row.max()) + 1
        subsets = row[every] if every else random.permuted(np.tile(row, (draws, 1)), axis=1)[:, :k]
        n_subsets = len(subsets)
        places = subsets + 1 + (classes + 1) * np.arange(n_subsets)[:, None]  # column 0 is for those without an answer
        counts = np.bincount(places.ravel(), minlength=n_subsets * (classes + 1)).reshape(n_subsets, -1)[:, 1:]
        most = counts.max(axis=1, keepdims=True, initial=0)
        winners = (counts == most) & (most > 0)
        solved = np.isin(np.arange(classes), row[ok])
        scores[i] = ((winners & solved).sum(axis=1) / np.maximum(1, winners.sum(axis=1))).mean()
    return scores


def numbered(answers: Sequence[Hashable | None]) -> list[int]:
    """Number the different answers in the order they appear, from 0; -1 for none."""
    numbers: dict[Hashable, int] = {}
    return [-1 if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]

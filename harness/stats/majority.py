"""Maj@k: how often the commonest of k answers is the right one."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from harness.errors import UserError

DRAWS = 1000


def maj_at_k(
    answers: Sequence[Sequence[Hashable | None]],
    correct: Sequence[Sequence[bool]],
    k: int | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> float:
    """Return the mean over problems of the chance that a majority vote of k samples is right.

    Equal answers vote together; None (no answer) does not vote, and a vote nobody takes part in is wrong. A tie is
    broken at random: its winners share the point. With k = n there is one vote a problem; for smaller k, `draws`
    subsets of k samples from a fixed seed.

    Args:
        answers: (problems, samples) answers, as comparable text or classes.
        correct: (problems, samples) whether each is right.
        k: votes; default all samples.
        draws: subsets a problem when k is smaller than the number of samples.
        seed: of the subsets.

    Raises:
        UserError: shapes differ, a problem has another number of samples, or k is out of range.

    >>> maj_at_k([["7", "7", "3"], ["1", "2", None]], [[1, 1, 0], [1, 0, 0]])
    0.75
    """
    widths = {len(row) for row in answers} | {len(row) for row in correct}
    if len(answers) != len(correct) or len(widths) != 1 or not answers or widths == {0}:
        raise UserError("answers and correct differ in shape; accepted: two complete (problems, samples) tables")
    n = widths.pop()
    k = n if k is None else k
    if not 1 <= k <= n:
        raise UserError(f"k={k} is refused: Maj@k from {n} samples needs 1 <= k <= {n}")
    random = np.random.default_rng(seed)
    scores = []
    for row, right in zip(answers, correct, strict=True):
        if k == n:
            scores.append(_vote(row, right))
        else:
            subsets = (random.permutation(n)[:k] for _ in range(draws))
            scores.append(float(np.mean([_vote([row[i] for i in s], [right[i] for i in s]) for s in subsets])))
    return float(np.mean(scores))


def _vote(answers: Sequence[Hashable | None], correct: Sequence[bool]) -> float:
    """Return the share of the winning answers that are right."""
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == most]
    right = {answer for answer, ok in zip(answers, correct, strict=True) if ok}
    return sum(answer in right for answer in winners) / len(winners)

"""Simulate problems with families, and compare intervals that treat problems as independent with those over families.

`python -m benchmarks.intervals --only related` and similar commands print them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr

from benchmarks.laws import LAWS, Random, expected, families, holds, pair_of, shared_by, within
from rlvr_dir import stats

SIZES_OF_FAMILIES = ("5 each", "1 to 12", "a quarter is one")
RELATED = ((30, 32), (60, 8), (240, 8))


def _cells(
    random: Random, runs: int, once: Callable[[int, int, np.ndarray, float], dict[str, float]], sizes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Take the mean of what `once` finds, in each cell of sizes of families, problems and shared variance."""
    for kind in sizes:
        for n, k in RELATED:
            for shared in (0.0, 0.5, 1.0):
                found = [once(n, k, families(n, kind, random), shared) for _ in range(runs)]
                means = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
                yield {"families": kind, "problems": n, "samples": k, "shared in a family": shared, **means}


def difference_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate problems that share the gain of a setting: differences over independent problems, and over families."""

    def once(n: int, k: int, labels: np.ndarray, shared: float) -> dict[str, float]:
        p = random.beta(2, 2, n) * 0.6 + 0.2
        a, b = pair_of(p, np.clip(p + 0.15 * shared_by(labels, shared, random), 0, 1), k, 0.8, random)
        return _before_after(stats.paired_difference(b, a), stats.paired_difference(b, a, families=[*labels]))

    yield from _cells(random, runs, once, SIZES_OF_FAMILIES)


def _before_after(before: stats.PairedDifference, after: stats.PairedDifference) -> dict[str, float]:
    ends = {"before": (before.low, before.high), "after": (after.low, after.high)}
    covered = {name: float(holds(interval, 0.0)) for name, interval in ends.items()}
    return {**covered, "false claims after": float(after.p < 0.05), **_widths(ends)}


def _widths(ends: dict[str, tuple[float, float]]) -> dict[str, float]:
    return {f"width {name}": high - low for name, (low, high) in ends.items()}


def score_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate problems that share their difficulty: scores over independent problems, and over families."""
    for law in ("middle, 40 %", "hard, 3 %", "easy, 95 %"):
        [(_, a, b)] = LAWS[law]

        def once(
            n: int, k: int, labels: np.ndarray, shared: float, law: str = law, a: float = a, b: float = b
        ) -> dict[str, float]:
            p = betaincinv(a, b, ndtr(shared_by(labels, shared, random)))
            correct = random.random((n, k)) < p[:, None]
            ends = {"before": stats.score_interval(correct), "after": stats.score_interval(correct, families=[*labels])}
            return {name: float(holds(interval, expected(law))) for name, interval in ends.items()} | _widths(ends)

        for row in _cells(random, runs, once, SIZES_OF_FAMILIES[:2]):
            yield {"law": law, **row}


def share_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate problems that share how many of their tokens are of a kind: shares as if independent, and over
    families."""
    for law, (a, b) in {"6 %": (2.0, 30.0), "1 %, few problems": (0.5, 49.5)}.items():

        def once(n: int, k: int, labels: np.ndarray, shared: float, a: float = a, b: float = b) -> dict[str, float]:
            p, tokens = betaincinv(a, b, ndtr(shared_by(labels, shared, random))), random.integers(50, 400, size=n)
            hits = random.binomial(tokens, p)
            ends = {"before": stats.token_share(hits, tokens), "after": stats.token_share(hits, tokens, [*labels])}
            return {name: float(within(share, a / (a + b))) for name, share in ends.items()}

        for row in _cells(random, runs, once, SIZES_OF_FAMILIES[:2]):
            yield {"law": law, **{name: value for name, value in row.items() if name != "samples"}}


def training_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate two methods with three seeds each and no mean gain; families share one's gain on a problem."""

    def once(n: int, k: int, labels: np.ndarray, shared: float) -> dict[str, float]:
        p, gain = random.beta(2, 2, n) * 0.6 + 0.2, 0.15 * shared_by(labels, shared, random)
        sides = [
            {
                seed: (random.random((n, k)) < np.clip(p + more + random.normal(0, 0.03), 0, 1)[:, None]) * 1.0
                for seed in range(3)
            }
            for more in (gain, 0 * gain)
        ]
        before, after = (
            stats.difference_over_runs([(sides[0], sides[1])], families=[own]) for own in (None, [*labels])
        )
        return _before_after(before, after)

    yield from _cells(random, runs, once, SIZES_OF_FAMILIES[:2])

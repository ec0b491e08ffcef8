"""Compare the tokens that each criterion selects at equal number, and the tokens that RL would write in their place."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from rlvr_dir.evals.traces import trace_of
from rlvr_dir.records import Row

CRITERIA = ("entropy_base", "kl", "delta_logp")  # the criteria that the paper compares
BELOW = ("delta_logp",)


@dataclass(slots=True)
class Selection:
    """Hold one criterion at its threshold: the tokens of base that it selects, and RL's tokens in their place.

    `placed` contains expected counts from RL's nucleus at the position, without the token that base proposed.
    """

    criterion: str
    tau: float
    positions: int = 0
    picked: Counter[int] = field(default_factory=Counter)
    placed: Counter[int] = field(default_factory=Counter)


def selections(read: Callable[[], Iterable[Row]], ratio: float, top_p: float) -> tuple[list[Selection], int]:
    """Select base's own tokens at one ratio by every criterion; return the selections and the number of tokens.

    `read` is called twice, for the thresholds and for the tokens. It must return the same rollouts both times, with
    traces that list RL's most likely tokens. A nucleus longer than this list is truncated to it.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in CRITERIA}
    for rollout in read():
        for name, values in parts.items():
            values.append(trace_of(rollout).fact(name))
    values = {name: np.concatenate(rows) for name, rows in parts.items()}
    chosen = [Selection(name, threshold(values[name], ratio, below=name in BELOW)) for name in CRITERIA]
    for rollout in read():
        trace = trace_of(rollout)
        proposed, (ids, logp) = trace.proposed, trace.likeliest("rl")
        for selection in chosen:
            fact = trace.fact(selection.criterion)
            at = np.flatnonzero(fact < selection.tau if selection.criterion in BELOW else fact > selection.tau)
            selection.positions += at.size
            selection.picked.update(proposed[at].tolist())
            weights = nucleus(np.exp(logp[at].astype(float)), top_p)  # (positions, listed tokens)
            placed = (weights > 0) & (ids[at] != proposed[at, None])
            tokens, index = np.unique(ids[at][placed], return_inverse=True)
            sums = np.bincount(index, weights[placed], minlength=len(tokens))
            for token, weight in zip(tokens.tolist(), sums.tolist(), strict=True):
                selection.placed[token] += weight
    return chosen, int(values[CRITERIA[0]].size)


def threshold(values: np.ndarray, ratio: float, *, below: bool) -> float:
    """Return the threshold at which the criterion, a strict inequality, holds for the share `ratio`.

    If values tie, it holds for the nearest possible share that is not larger.
    """
    ordered = np.sort(values if below else -values)
    tau = ordered[min(ordered.size - 1, round(ratio * ordered.size))]
    return float(tau if below else -tau)


def nucleus(p: np.ndarray, top_p: float) -> np.ndarray:
    """Truncate listed probabilities, falling along the last axis, to the fewest that reach `top_p`; normalise them.

    >>> nucleus(np.array([0.6, 0.3, 0.1]), 0.7).round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    kept = np.where(np.cumsum(p, axis=-1) - p < top_p, p, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    return kept / np.where(total, total, 1.0)

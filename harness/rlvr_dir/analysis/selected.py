"""Which tokens each criterion picks when all of them pick equally many, and what RL would put in their place."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from rlvr_dir.evals.traces import trace_of
from rlvr_dir.records import Row

CRITERIA = ("entropy_base", "kl", "delta_logp")  # those the paper compares
BELOW = ("delta_logp",)


@dataclass(slots=True)
class Selection:
    """One criterion at its threshold: tokens of base that it picks, and tokens of RL that come instead.

    `placed` is in expected counts: RL's nucleus at the position, without what base proposed anyway.
    """

    criterion: str
    tau: float
    positions: int = 0
    picked: Counter[int] = field(default_factory=Counter)
    placed: Counter[int] = field(default_factory=Counter)


def selections(read: Callable[[], Iterable[Row]], ratio: float, top_p: float) -> tuple[list[Selection], int]:
    """Select base's own tokens at one ratio by every criterion; return the selections and the number of tokens.

    `read` is called twice, for the thresholds and for the tokens: it must give the same rollouts, with traces that list
    RL's most likely tokens. A nucleus longer than the list is cut to it.
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

    Where values tie, it holds for as many as come nearest from below.
    """
    ordered = np.sort(values if below else -values)
    tau = ordered[min(ordered.size - 1, round(ratio * ordered.size))]
    return float(tau if below else -tau)


def nucleus(p: np.ndarray, top_p: float) -> np.ndarray:
    """Cut listed probabilities, falling along the last axis, to the fewest whose sum reaches `top_p`; sum them to 1.

    >>> nucleus(np.array([0.6, 0.3, 0.1]), 0.7).round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    kept = np.where(np.cumsum(p, axis=-1) - p < top_p, p, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    return kept / np.where(total, total, 1.0)

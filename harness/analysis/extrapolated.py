"""Compare the logits of a real later checkpoint with those that two earlier ones extrapolate to, token by token.

With checkpoints after s1 < s2 < t steps, the extrapolated logits are l_s2 + γ (l_s2 − l_s1), γ = (t − s2) / (s2 − s1):
what l_t would be if logits moved in a straight line at one speed. With base as s1 this is the paper's π_extra.

Logits that differ by a constant are one distribution, so all logits are centred first, over the tokens that are looked
at. `compare` is arithmetic alone; `estimates` puts its numbers together over problems.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.stats import Estimate, token_mean, token_share

TOP = 10  # likeliest tokens of the later checkpoint
NUCLEUS = 0.95  # top-p of the later checkpoint
SETS = ("all", "top", "nucleus")  # over which tokens of the vocabulary logits are compared
ROWS = 64  # positions at once
MOST = 6  # checkpoints, base among them, of which all triples are compared; of more, neighbours


def strength(early: float, late: float, real: float) -> float:
    """Return γ of three steps, (t − s2) / (s2 − s1).

    >>> strength(0, 4, 8), strength(2, 6, 8)
    (1.0, 0.5)
    """
    return (real - late) / (late - early)


def triples(steps: Sequence[float]) -> list[tuple[int, int, int]]:
    """Return which checkpoints, by index, are extrapolated to which: all of up to six, of more only neighbours.

    >>> triples([0, 2, 4, 8])
    [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    >>> triples(range(7))[:3]
    [(0, 1, 2), (0, 2, 3), (0, 3, 4)]
    """
    n = len(steps)
    every = [(i, j, k) for k in range(n) for j in range(k) for i in range(j)]
    return sorted(each for each in every if n <= MOST or (each[2] == each[1] + 1 and each[0] in (0, each[1] - 1)))


def compare(early: np.ndarray, late: np.ndarray, real: np.ndarray, gamma: float) -> dict[str, np.ndarray]:
    """Compare logits of n positions, each (n, vocab).

    Returns:
        `kl_late` and `kl_extrapolated`, (n,): KL in nats from the real later distribution to that of l_s2, and to the
        extrapolated one. By name of `SETS`, (n, 5): sums of squares over its tokens, of centred logits:
        `total` of l_t; `late` of l_t − l_s2; `extrapolated` of l_t minus the extrapolated ones; `before` of
        l_s2 − l_s1; and `along`, the product of l_t − l_s2 with l_s2 − l_s1. NaN where a set has one token alone.
    """
    parts = []
    for at in range(0, len(real), ROWS):
        rows = slice(at, at + ROWS)
        parts.append(_compared(early[rows].astype(float), late[rows].astype(float), real[rows].astype(float), gamma))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _compared(early: np.ndarray, late: np.ndarray, real: np.ndarray, gamma: float) -> dict[str, np.ndarray]:
    hat = late + gamma * (late - early)
    log_real = _log_softmax(real)
    p = np.exp(log_real)
    found = {
        "kl_late": (p * (log_real - _log_softmax(late))).sum(axis=1),
        "kl_extrapolated": (p * (log_real - _log_softmax(hat))).sum(axis=1),
    }
    for name, chosen in _sets(p).items():
        size = chosen.sum(axis=1, keepdims=True)

        def centred(x: np.ndarray, chosen: np.ndarray = chosen, size: np.ndarray = size) -> np.ndarray:
            return np.where(chosen, x - (x * chosen).sum(axis=1, keepdims=True) / size, 0.0)

        change, before = centred(real - late), centred(late - early)
        of = (centred(real) ** 2, change**2, centred(real - hat) ** 2, change * before, before**2)
        sums = np.stack([each.sum(axis=1) for each in of], axis=1)
        found[name] = np.where(size > 1, sums, np.nan)
    return found


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _sets(p: np.ndarray) -> dict[str, np.ndarray]:
    """Return which tokens are in each set, (n, vocab) flags, by the later checkpoint's probabilities."""
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    inside = ranked.cumsum(axis=1) - ranked < NUCLEUS  # the token that crosses top-p is still in
    nucleus, top = np.zeros(p.shape, dtype=bool), np.zeros(p.shape, dtype=bool)
    np.put_along_axis(nucleus, order, inside, axis=1)
    np.put_along_axis(top, order[:, :TOP], True, axis=1)
    return {"all": np.ones(p.shape, dtype=bool), "top": top, "nucleus": nucleus}


def estimates(found: dict[str, np.ndarray], problems: Sequence[str]) -> list[dict[str, Any]]:
    """Put positions together, with intervals over problems: a row a set of tokens (`over`) and what is estimated.

    - `r2_late`, `r2`: the mean over positions of R², 1 − Σ (l_t − l)² / Σ l_t², of l_s2 as it is, and of the
      extrapolated logits; `r2_added` is the second minus the first, position by position;
    - `explained`: the share of the change from s2 to t that extrapolation gets right, 1 − Σ (l_t − extrapolated)² /
      Σ (l_t − l_s2)², summed over positions: 1 is all, 0 as good as staying at l_s2, below 0 is worse than staying;
    - `worse`: the share of positions at which extrapolation is further from l_t than l_s2 is;
    - `best_gamma`: the γ with the least squares over all positions, to be held against that of the steps.

    Over all tokens also `kl_late`, `kl`, `kl_added`: the means of KL(π_t ‖ π) and of the second minus the first, in
    nats.
    """
    names, groups = np.unique(np.asarray(problems), return_inverse=True)

    def mean(values: np.ndarray, weights: np.ndarray | None = None) -> Estimate:
        known = np.isfinite(values)
        ones = np.ones_like(values) if weights is None else weights
        sums, tokens = (np.bincount(groups[known], each[known], len(names)) for each in (values, ones))
        return token_mean(sums, tokens)

    rows: list[dict[str, Any]] = []

    def add(over: str, positions: int, **estimates: Estimate) -> None:
        for what, one in estimates.items():
            about = {"over": over, "what": what, "positions": positions}
            rows.append({**about, "value": one.value, "low": one.low, "high": one.high})

    late, kl = found["kl_late"], found["kl_extrapolated"]
    add("all", len(problems), kl_late=mean(late), kl=mean(kl), kl_added=mean(kl - late))
    for name in SETS:
        known = np.isfinite(found[name][:, 0]) & (found[name][:, 0] > 0)
        total, late, hat, along, before = np.where(known[:, None], found[name], np.nan).T
        missed = mean(hat, late)
        left = {end: None if (value := getattr(missed, of)) is None else 1 - value for end, of in _FLIPPED.items()}
        worse, of = (np.bincount(groups[known], each, len(names)) for each in ((hat > late).astype(float)[known], None))
        add(
            name,
            int(known.sum()),
            r2_late=mean(1 - late / total),
            r2=mean(1 - hat / total),
            r2_added=mean((late - hat) / total),
            explained=Estimate(**left),
            worse=token_share(worse, of),
            best_gamma=mean(along, before),
        )
    return rows


_FLIPPED = {"value": "value", "low": "high", "high": "low"}  # the ends of 1 minus an estimate

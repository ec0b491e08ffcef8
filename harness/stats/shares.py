"""Shares of tokens with intervals by resampling problems: the tokens of one problem are no independent evidence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Share:
    """A share of tokens, or a ratio of two, and its 95 % interval, None where one problem says nothing of others."""

    value: float
    low: float | None
    high: float | None


def token_share(hits: ArrayLike, tokens: ArrayLike, seed: int = 0) -> Share:
    """Return the sum of `hits` over that of `tokens`, each (problems,); the percentile bootstrap over problems."""
    hits, tokens = np.asarray(hits, dtype=float), np.asarray(tokens, dtype=float)
    if not tokens.sum():
        return Share(0.0, None, None)
    drawn = _weights(hits.size, seed)
    return _estimate(hits.sum() / tokens.sum(), (drawn @ hits) / np.maximum(drawn @ tokens, 1e-12), hits.size)


def share_ratio(a: tuple[ArrayLike, ArrayLike], b: tuple[ArrayLike, ArrayLike], seed: int = 0) -> Share:
    """Return the share of `a` over the share of `b`, both (hits, tokens) by problem, in the same order of problems.

    A problem is drawn with both of its generations. Half a token is added to either side's hits, so that a tail that
    holds nothing gives a large ratio, not an infinite one.
    """
    (ah, at), (bh, bt) = ((np.asarray(h, dtype=float), np.asarray(t, dtype=float)) for h, t in (a, b))
    if not at.sum() or not bt.sum():
        return Share(float("nan"), None, None)
    drawn = _weights(ah.size, seed)
    top, bottom = (drawn @ ah + 0.5) / (drawn @ at), (drawn @ bh + 0.5) / (drawn @ bt)
    return _estimate(((ah.sum() + 0.5) / at.sum()) / ((bh.sum() + 0.5) / bt.sum()), top / bottom, ah.size)


def _weights(problems: int, seed: int) -> np.ndarray:
    """Draw how often each problem is in each resample: (resamples, problems) integers."""
    return np.random.default_rng(seed).multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES)


def _estimate(value: float, drawn: np.ndarray, problems: int) -> Share:
    if problems < 2:
        return Share(float(value), None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Share(float(value), float(low), float(high))

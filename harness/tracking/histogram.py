"""Δ log p in fixed symmetric bins: counts, not values, so that histograms of shards add up to that of the whole."""

from collections.abc import Mapping
from typing import Any

import numpy as np

HIGH, BINS = 20.0, 400  # nats: bins of 0.1 from -20 to 20, zero on an edge
NEAR = 1e-3


class Histogram:
    """Counts of Δ log p = log π_RL − log π_Base over tokens, in nats; values outside the bins have counts, too."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.tokens = self.zeros = self.near_zero = self.below = self.above = self.nan = 0

    def add(self, delta_logp: np.ndarray) -> None:
        """Counts an array of any length."""
        x = np.asarray(delta_logp, dtype=np.float64)
        self.tokens += x.size
        self.nan += int(np.isnan(x).sum())
        self.zeros += int((x == 0).sum())
        self.near_zero += int((np.abs(x) < NEAR).sum())
        self.below += int((x < -HIGH).sum())
        self.above += int((x >= HIGH).sum())
        inside = x[(x >= -HIGH) & (x < HIGH)]
        bins = np.minimum(((inside + HIGH) * (BINS / (2 * HIGH))).astype(np.int64), BINS - 1)
        self.counts += np.bincount(bins, minlength=BINS)


def as_json(histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    """Histograms by name, with their bins: bin i holds low + i·width <= Δ log p < low + (i+1)·width."""
    return {
        "low": -HIGH,
        "high": HIGH,
        "bins": BINS,
        "near": NEAR,
        **{
            name: {
                "tokens": h.tokens,
                "zeros": h.zeros,
                "near_zero": h.near_zero,
                "below": h.below,
                "above": h.above,
                "nan": h.nan,
                "counts": h.counts.tolist(),
            }
            for name, h in histograms.items()
        },
    }

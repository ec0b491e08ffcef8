"""Values in fixed bins: counts, not values, so that histograms of shards add up to that of the whole."""

from collections.abc import Mapping
from typing import Any

import numpy as np

HIGH, BINS = 20.0, 400  # nats: of Δ log p; bins of 0.1 from -20 to 20, zero on an edge
NEAR = 1e-3


class Histogram:
    """Counts over tokens; values outside the bins have counts, too. The default bins are those of Δ log p, in nats."""

    def __init__(self, low: float = -HIGH, high: float = HIGH, bins: int = BINS) -> None:
        self.low, self.high = low, high
        self.counts = np.zeros(bins, dtype=np.int64)
        self.tokens = self.zeros = self.near_zero = self.below = self.above = self.nan = 0

    @property
    def edges(self) -> np.ndarray:
        """(bins + 1,)"""
        return np.linspace(self.low, self.high, len(self.counts) + 1)

    def add(self, values: np.ndarray) -> None:
        """Count an array of any length."""
        x = np.asarray(values, dtype=np.float64)
        bins = len(self.counts)
        self.tokens += x.size
        self.nan += int(np.isnan(x).sum())
        self.zeros += int((x == 0).sum())
        self.near_zero += int((np.abs(x) < NEAR).sum())
        self.below += int((x < self.low).sum())
        self.above += int((x >= self.high).sum())
        inside = x[(x >= self.low) & (x < self.high)]
        places = ((inside - self.low) * (bins / (self.high - self.low))).astype(np.int64)
        self.counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another shard.

        Raises:
            ValueError: its bins are others.
        """
        if (self.low, self.high, len(self.counts)) != (other.low, other.high, len(other.counts)):
            raise ValueError("histograms of different bins cannot be merged")
        self.counts += other.counts
        for name in ("tokens", "zeros", "near_zero", "below", "above", "nan"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain JSON values, without the bins' edges."""
        return {
            "tokens": self.tokens,
            "zeros": self.zeros,
            "near_zero": self.near_zero,
            "below": self.below,
            "above": self.above,
            "nan": self.nan,
            "counts": self.counts.tolist(),
        }


def as_json(histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    """Write histograms of the same bins by name: bin i holds low + i·width <= value < low + (i+1)·width."""
    first = next(iter(histograms.values()))
    bins = {"low": first.low, "high": first.high, "bins": len(first.counts), "near": NEAR}
    return {**bins, **{name: histogram.facts() for name, histogram in histograms.items()}}

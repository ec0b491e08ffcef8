"""Count values in fixed bins. Only counts are stored, so histograms of shards add up to that of the whole."""

import numpy as np

NEAR = 1e-3  # nats: tokens with a smaller |value| are counted separately


class Histogram:
    """Hold counts over tokens. `tokens` includes the values outside the bins."""

    def __init__(self, low: float, high: float, bins: int) -> None:
        self.edges = np.linspace(low, high, bins + 1)
        self.counts = np.zeros(bins, dtype=np.int64)
        self.tokens = self.near_zero = 0

    def add(self, values: np.ndarray) -> None:
        """Count the values of an array of any length."""
        x = np.asarray(values, dtype=np.float64)
        self.tokens += x.size
        self.near_zero += int((np.abs(x) < NEAR).sum())
        low, high, bins = self.edges[0], self.edges[-1], len(self.counts)
        inside = x[(x >= low) & (x < high)]
        places = ((inside - low) * (bins / (high - low))).astype(np.int64)
        self.counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)

    def rows(self) -> list[dict[str, float | int]]:
        """Return the bins that are not empty: `from` <= value < `to`."""
        return [
            {"from": float(self.edges[i]), "to": float(self.edges[i + 1]), "tokens": int(self.counts[i])}
            for i in np.flatnonzero(self.counts)
        ]

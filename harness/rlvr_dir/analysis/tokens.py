"""Count the statistics of the tokens of one generation, one rollout at a time, without storing rollouts.

    generation = Generation("base")
    for rollout in rollouts(work, records):
        generation.add(rollout)

Statistics that need an interval are counted by problem. The others are counted once.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from rlvr_dir.analysis.histogram import Histogram
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.policy.advantages import gradient_coefficient
from rlvr_dir.records import Row

# The bins of each statistic, in nats.
BINS = {
    "delta_logp": (-20.0, 20.0, 400),
    "entropy_base": (0.0, 12.0, 240),
    "entropy_rl": (0.0, 12.0, 240),
    "kl": (0.0, 30.0, 300),
    "kl_rl_base": (0.0, 30.0, 300),
    "kl_base_rl": (0.0, 30.0, 300),
}
DELTA_EDGES = (-4.0, -2.0, -1.0, -0.5, -0.1, 0.1, 0.5, 1.0, 2.0, 4.0)  # the outer two bins have no end
PROBABILITY_EDGES = tuple(round(0.1 * i, 1) for i in range(11))


class Generation:
    """Hold the counts over one model's own responses, which both models scored. `who` wrote them (`base` or `rl`)."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.histograms = {name: Histogram(*bins) for name, bins in BINS.items()}
        self.problems: dict[str, ProblemCounts] = {}
        self.words: dict[int, np.ndarray] = {}  # id -> count, sums of delta log p, p of base, p of RL

    def add(self, rollout: Row) -> None:
        """Count one rollout.

        Raises:
            ValueError: It was decoded without a trace.
        """
        trace = trace_of(rollout)
        columns = {name: trace.fact(name).astype(np.float64) for name in BINS}
        for name, histogram in self.histograms.items():
            histogram.add(columns[name])
        p_base, p_rl = np.exp(trace.fact("logp_base").astype(float)), np.exp(trace.fact("logp_rl").astype(float))
        problem = self.problems.setdefault(rollout.problem, ProblemCounts())
        problem.add(columns, p_base, p_rl, p_rl if self.role == "rl" else p_base)
        values = np.stack([np.ones_like(p_base), columns["delta_logp"], p_base, p_rl], axis=1)
        for token, value in zip(trace.proposed.tolist(), values, strict=True):
            if token in self.words:
                self.words[token] += value
            else:
                self.words[token] = value.copy()

    @property
    def tokens(self) -> int:
        """Return the number of tokens counted."""
        return sum(problem.tokens for problem in self.problems.values())

    def add_all(self, rollouts: Iterable[Row]) -> "Generation":
        """Count many rollouts; return this generation."""
        for rollout in rollouts:
            self.add(rollout)
        return self

    def by_problem(self, name: str, order: Iterable[str]) -> np.ndarray:
        """Return a count of each problem, stacked in the given order; zeros for a problem without rollouts."""
        empty = ProblemCounts()
        return np.stack([np.asarray(getattr(self.problems.get(key, empty), name)) for key in order])

    def likelier(self, least: int, most: int) -> list[dict[str, Any]]:
        """Return the tokens whose probability RL raised most, by mean delta log p.

        Only tokens that occurred `least` times or more are included. `most` is the length of the list.
        """
        words = [
            {"id": token, "count": int(n), "delta_logp": delta / n, "p_base": base / n, "p_rl": rl / n}
            for token, (n, delta, base, rl) in self.words.items()
            if n >= least and delta > 0
        ]
        return sorted(words, key=lambda word: (-word["delta_logp"], word["id"]))[:most]


class ProblemCounts:
    """Hold the counts of one problem."""

    def __init__(self) -> None:
        self.tokens = 0
        self.in_bin = np.zeros((len(DELTA_EDGES) + 1, 3))  # tokens, sums of p of base and of RL, by bin of delta log p
        self.mass = np.zeros((len(PROBABILITY_EDGES) - 1, 2))  # tokens and gradient mass, by probability

    def add(self, columns: dict[str, np.ndarray], p_base: np.ndarray, p_rl: np.ndarray, p_own: np.ndarray) -> None:
        """Count the tokens of one response. `p_own` is their probability under the policy that wrote them."""
        self.tokens += p_base.size
        bins = np.digitize(columns["delta_logp"], DELTA_EDGES)
        for column, weights in enumerate((None, p_base, p_rl)):
            self.in_bin[:, column] += np.bincount(bins, weights, minlength=len(self.in_bin))
        places = np.minimum((p_own * 10).astype(int), len(self.mass) - 1)
        self.mass[:, 0] += np.bincount(places, minlength=len(self.mass))
        logp = torch.from_numpy(np.log(np.maximum(p_own, 1e-300)))
        mass = gradient_coefficient(logp, torch.ones(1, dtype=torch.float64)).numpy()  # |w| = 1: nothing was trained
        self.mass[:, 1] += np.bincount(places, mass, minlength=len(self.mass))

"""Count what a step's log line contains beside TRL's metrics: sums over all that the step generated and learned
from."""

import math
import time
from typing import Any

import torch

from rlvr_dir.policy.advantages import gradient_coefficient, sums_by_probability

BINS = 10  # of the probability of a token


class Tally:
    """Sum over one step. `pop_record` returns the record and begins the next one."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.responses = self.graded = self.tokens = self.truncated = 0
        self.right = self.reward = 0.0
        self.rounds = self.kept = self.dropped = self.empty = 0
        self.learned = self.weight = 0.0
        self.mass = torch.zeros(BINS, dtype=torch.float64)
        self.counts = torch.zeros(BINS, dtype=torch.float64)
        self.reweighting_seconds = 0.0
        self.start()

    def start(self) -> None:
        """Start the clock of the step."""
        self.began = time.perf_counter()

    def generated(self, rewards: torch.Tensor, weights: torch.Tensor, lengths: list[int], truncated: int) -> None:
        """Count one round of responses.

        Args:
            rewards: (responses, reward functions), the first is the accuracy; NaN for ungraded.
            weights: (reward functions,).
        """
        graded = ~rewards[:, 0].isnan()
        self.responses += len(rewards)
        self.graded += int(graded.sum())
        self.right += float(rewards[graded, 0].sum())
        self.reward += float((rewards[graded] * weights).sum())
        self.tokens += sum(lengths)
        self.truncated += truncated
        self.rounds += 1

    def groups(self, kept: int, dropped: int, empty: int) -> None:
        """Count groups: learned from, dropped because they are uniform, and places that stayed empty."""
        self.kept, self.dropped, self.empty = kept, dropped, empty

    def learning(
        self,
        logp: torch.Tensor,
        advantages: torch.Tensor,
        weight: torch.Tensor | None,
        ratio: torch.Tensor,
        flows: torch.Tensor,
        mask: torch.Tensor,
    ) -> None:
        """Count the tokens of one backward pass, all (n, tokens). `flows` is true where the clipped loss has a
        gradient."""
        inside = mask.bool() & (advantages != 0)
        mass, counts = sums_by_probability(logp, gradient_coefficient(logp, advantages, ratio) * flows, inside, BINS)
        self.mass += mass.cpu()
        self.counts += counts.cpu()
        self.learned += float(inside.sum())
        self.weight += float(inside.sum() if weight is None else weight[inside].double().sum())

    def pop_record(self) -> dict[str, Any]:
        """Return the record of the step: means, and the shares of tokens and of gradient mass by probability bin."""
        tokens, mass = max(1.0, float(self.counts.sum())), float(self.mass.sum()) or 1.0
        record = {
            "accuracy": _mean(self.right, self.graded),
            "reward": _mean(self.reward, self.graded),
            "length": _mean(self.tokens, self.responses),
            "truncated": _mean(self.truncated, self.responses),
            "responses": self.responses,
            "ungraded": self.responses - self.graded,
            "groups": {"rounds": self.rounds, "kept": self.kept, "dropped": self.dropped, "empty": self.empty},
            "weight": _mean(self.weight, self.learned),
            "token_share": [round(float(count) / tokens, 6) for count in self.counts],
            "gradient_share": [round(float(part) / mass, 6) for part in self.mass],
            "seconds": round(time.perf_counter() - self.began, 3),
            "reweighting_seconds": round(self.reweighting_seconds, 6),
        }
        self._clear()
        return record


def _mean(total: float, count: float) -> float | None:
    return round(total / count, 6) if count and math.isfinite(total) else None

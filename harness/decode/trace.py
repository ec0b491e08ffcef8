"""The statistics of every token of a rollout, where a request asked for them."""

from dataclasses import dataclass

import numpy as np

from harness.policy.trace import FACTS, TOP_FACTS, columns

MAX_TOP = 10  # of each model's likeliest tokens: vLLM is told to return as many numbers a token


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """`table` is (tokens, columns) float32, the columns those of `harness.policy.trace`: facts of the proposed token
    and of the position it was proposed at. Measured, like `delta_logp`: the last bits depend on the batch."""

    table: np.ndarray

    def __post_init__(self) -> None:
        if (
            self.table.ndim != 2
            or (self.table.shape[1] - len(FACTS)) % len(TOP_FACTS)
            or self.table.shape[1] < len(FACTS)
        ):
            raise ValueError(f"a trace of shape {self.table.shape} has no known columns")

    @property
    def top(self) -> int:
        """How many of each model's likeliest tokens are listed."""
        return (self.table.shape[1] - len(FACTS)) // len(TOP_FACTS)

    def fact(self, name: str) -> np.ndarray:
        """Return one of `FACTS`, or the value of a criterion that these give (`spike/32`): (tokens,) float32.

        Raises:
            KeyError: there is no such fact.
        """
        match name:
            case "delta_logp":
                return self.fact("logp_rl") - self.fact("logp_base")
            case "abs_delta_logp":
                return np.abs(self.fact("delta_logp"))
            case "nll_rl":
                return -self.fact("logp_rl")
            case "kl":
                return 0.5 * (self.fact("kl_rl_base") + self.fact("kl_base_rl"))
            case "ce":
                return self.fact("entropy_base") + self.fact("kl_base_rl")
            case _ if name.startswith("spike/"):
                return over_mean_before(self.fact("ce"), int(name.removeprefix("spike/")))
        if name not in FACTS:
            raise KeyError(name)
        return self.table[:, FACTS.index(name)]

    @property
    def proposed(self) -> np.ndarray:
        """(tokens,) int64: the proposed tokens."""
        return self.fact("proposed").astype(np.int64)

    def likeliest(self, model: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the likeliest tokens of a model (`base`, `rl`): ids (tokens, top) int64 and log-probabilities."""
        first = len(FACTS) + TOP_FACTS.index(f"{model}_id")
        step = len(TOP_FACTS)
        return self.table[:, first::step].astype(np.int64), self.table[:, first + 1 :: step]


def over_mean_before(values: np.ndarray, span: int) -> np.ndarray:
    """Return each value as a multiple of the mean of those before it, at most `span`: (tokens,) -> (tokens,) float32.

    0 where there is none before, or the value is 0: what `policy.Past.spike` says, of a whole response.
    """
    x = values.astype(np.float64)
    sums = np.concatenate([[0.0], np.cumsum(x)])
    at = np.arange(x.size)
    first = np.maximum(at - span, 0)
    before = (sums[at] - sums[first]) / np.maximum(at - first, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((at == first) | (x == 0), 0.0, x / before).astype(np.float32)


__all__ = ["MAX_TOP", "Trace", "columns"]

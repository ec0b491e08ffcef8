"""Provide the statistics of every token of a rollout, if its request asked for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Gate, sign_of
from rlvr_dir.policy.statistics import STATISTICS
from rlvr_dir.policy.trace import FACTS, TOP_FACTS, columns, known

PROPOSAL = 2  # numbers stored with a changed token: the proposed token, and Δ log p of the written one
MAX_TOP = 10  # of each model's most likely tokens; vLLM returns as many numbers per token


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Store the statistics of each token: `table` is (tokens, columns) float32 with the columns of
    `rlvr_dir.policy.trace`.

    They describe the proposed token and the position it was proposed at. Like `delta_logp` they are measured, so the
    last bits depend on the batch.
    """

    table: np.ndarray

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or not known(self.table.shape[1]):
            raise ValueError(f"a trace of shape {self.table.shape} has no known columns")

    @property
    def top(self) -> int:
        """Return how many of each model's most likely tokens are listed."""
        return (self.table.shape[1] - len(FACTS)) // len(TOP_FACTS)

    def fact(self, name: str) -> np.ndarray:
        """Return one of `FACTS`, or a statistic that they determine (`delta_logp`, `kl`, `ce`, ...): (tokens,) float32.

        Raises:
            KeyError: There is no such statistic.
        """
        return _Replay(self.table).stat(name)

    def value(self, gate: Gate) -> np.ndarray:
        """Return the values that a gate compares with its threshold at every token: (tokens,) float32.

        The value is infinite, and beyond no threshold, where Δ log p does not have the sign that the gate requires.

        Raises:
            UserError: The gate needs more than a trace contains.
        """
        import torch  # imported here because only criteria need it, not reading a trace

        try:
            value = gate.value(_Replay(self.table, torch.from_numpy)).numpy()  # pyright: ignore[reportArgumentType]
        except KeyError as error:
            raise UserError(
                f"reads {error.args[0]}, which traces do not contain",
                argument="criterion",
                value=gate.words,
                accepted="a criterion that only needs what traces contain",
                hint="In a sweep, give thresholds instead of ratios",
            ) from None
        if sign := sign_of(gate):
            never = np.inf if getattr(gate, "holds_below", False) else -np.inf
            value = np.where(sign * self.fact("delta_logp") > 0, value, never).astype(np.float32)
        return value

    @property
    def proposed(self) -> np.ndarray:
        """Return (tokens,) int64: the proposed tokens."""
        return self.fact("proposed").astype(np.int64)

    def likeliest(self, model: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a model's (`base`, `rl`) most likely tokens: ids (tokens, top) int64 and log-probabilities."""
        first = len(FACTS) + TOP_FACTS.index(f"{model}_id")
        step = len(TOP_FACTS)
        return self.table[:, first::step].astype(np.int64), self.table[:, first + 1 :: step]


class _Replay:
    """Present a whole response to a gate as one step whose rows are its positions."""

    def __init__(self, table: np.ndarray, kind: Callable[[np.ndarray], Any] = np.asarray) -> None:
        self._table, self._kind = table, kind  # converts an array to the type of the statistics

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def stat(self, name: str) -> Any:
        """Return a statistic of every position."""
        if name in FACTS:
            return self._kind(np.ascontiguousarray(self._table[:, FACTS.index(name)]))
        if name == "ce":
            return self.stat("entropy_base") + self.stat("kl_base_rl")
        if name not in STATISTICS:
            raise KeyError(name)
        return STATISTICS[name](self)  # pyright: ignore[reportArgumentType]

    @property
    def written(self) -> Any:
        """Return the number of tokens before each position."""
        return self._kind(np.arange(len(self._table)))


__all__ = ["MAX_TOP", "PROPOSAL", "Trace", "columns"]

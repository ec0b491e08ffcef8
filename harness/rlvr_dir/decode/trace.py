"""The statistics of every token of a rollout, where a request asked for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Gate, sign_of
from rlvr_dir.policy.statistics import STATISTICS
from rlvr_dir.policy.trace import FACTS, TOP_FACTS, columns, known

PROPOSAL = 2  # numbers of a changed token that travel with it: what was proposed, and Δ log p of the written token
MAX_TOP = 10  # of each model's most likely tokens: vLLM is told to return as many numbers a token


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """`table` is (tokens, columns) float32, the columns those of `rlvr_dir.policy.trace`: facts of the proposed token
    and of the position it was proposed at. Measured, like `delta_logp`: the last bits depend on the batch."""

    table: np.ndarray

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or not known(self.table.shape[1]):
            raise ValueError(f"a trace of shape {self.table.shape} has no known columns")

    @property
    def top(self) -> int:
        """Return how many of each model's most likely tokens are listed."""
        return (self.table.shape[1] - len(FACTS)) // len(TOP_FACTS)

    def fact(self, name: str) -> np.ndarray:
        """Return one of `FACTS`, or a statistic that these give (`delta_logp`, `kl`, `ce`, ...): (tokens,) float32.

        Raises:
            KeyError: there is no such fact.
        """
        return _Replay(self.table).stat(name)

    def value(self, gate: Gate) -> np.ndarray:
        """Return what a gate compares with its threshold at every token: (tokens,) float32.

        Where Δ log p has not the sign that the gate asks for it is infinite, and beyond no threshold.

        Raises:
            UserError: it looks at more than a trace has.
        """
        import torch  # which only criteria need: reading a trace does not wait for it

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
        """(tokens,) int64: the proposed tokens."""
        return self.fact("proposed").astype(np.int64)

    def likeliest(self, model: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the most likely tokens of a model (`base`, `rl`): ids (tokens, top) int64 and log-probabilities."""
        first = len(FACTS) + TOP_FACTS.index(f"{model}_id")
        step = len(TOP_FACTS)
        return self.table[:, first::step].astype(np.int64), self.table[:, first + 1 :: step]


class _Replay:
    """Show a gate a whole response as one step: its positions are the rows."""

    def __init__(self, table: np.ndarray, kind: Callable[[np.ndarray], Any] = np.asarray) -> None:
        self._table, self._kind = table, kind  # what makes an array what the statistics are asked for as

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
        """Count the tokens that come before each."""
        return self._kind(np.arange(len(self._table)))


__all__ = ["MAX_TOP", "PROPOSAL", "Trace", "columns"]

"""Compile the rules of the running requests when requests are added or removed, so that a step only reads them.

A steady step, which has the same requests as the previous one, copies nothing to the device and waits for nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from rlvr_dir.decode.types import Plan
from rlvr_dir.policy.rule import Rule, Rules, to_device
from rlvr_dir.policy.step import Requests

_NOTHING = Rule()  # for a slot whose request is not ours; its decision is computed but not written


@dataclass(frozen=True)
class StepBatch:
    """Hold the rows of one step, in the order of its logits. They do not change while the same requests run."""

    rules: Rules
    keys: torch.Tensor  # (n,) int64, keys of the noise
    starts: torch.Tensor  # (n,) int64, absolute
    decided: torch.Tensor | None  # (n,) bool, whether a row is ours; None if all are
    rows: list[Plan | None]

    def at(self, positions: torch.Tensor) -> Requests:
        """Return the requests of the rows, each about to write the token at its position: (n,) int64."""
        return Requests(self.keys, positions, self.starts)

    @property
    def end(self) -> int | None:
        """Return a token that ends a response, the same for all requests of an engine; None if its models have none."""
        return next((row.end for row in self.rows if row), None)

    @cached_property
    def traced_alike(self) -> list[tuple[int, torch.Tensor]]:
        """Return the traced rows by how many most likely tokens they list, as (top, indices into the traced rows)."""
        tops = [self.rules.rules[i].trace for i in self.rules.traced.rows]
        return [
            (
                top,
                to_device([i for i, top_of_row in enumerate(tops) if top_of_row == top], torch.long, self.keys.device),
            )
            for top in sorted({top for top in tops if top is not None})
        ]


class SlotTable:
    """Hold the running requests by slot."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.rows: dict[int, Plan] = {}  # slot -> request; V2 does not report that one has ended
        self._last: tuple[bytes, StepBatch] | None = None  # by its slots, while the same requests run

    def put(self, slot: int, row: Plan | None) -> None:
        """Assign a slot to a request; None stands for a request that is not ours."""
        self.rows.pop(slot, None)
        if row is not None:
            self.rows[slot] = row
        self._last = None

    def batch(self, slots: np.ndarray) -> StepBatch:
        """Return the batch whose n rows are these slots: (n,) integers.

        It is the same object while the same requests run in the same order, so nothing is copied to the device.
        """
        if self._last is not None and self._last[0] == slots.tobytes():
            return self._last[1]
        rows = [self.rows.get(slot) for slot in slots.tolist()]
        ours = [row is not None for row in rows]
        numbers = [(row.key, row.start) if row else (0, 0) for row in rows]
        keys, starts = to_device(numbers, torch.long, self.device).reshape(len(rows), 2).unbind(1)
        batch = StepBatch(
            rules=Rules.compile([row.rule if row else _NOTHING for row in rows], self.device),
            keys=keys.clone(),  # own memory, because `contiguous` gives one row an address for which Triton recompiles
            starts=starts.clone(),
            decided=None if all(ours) else to_device(ours, torch.bool, self.device),
            rows=rows,
        )
        self._last = slots.tobytes(), batch
        return batch

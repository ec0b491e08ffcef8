"""Compiles what the running requests ask for when requests come and go; a step reads it.

A steady step, one that has the requests of the step before, copies nothing to the device and waits for nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from rlvr_dir.decode.types import Plan
from rlvr_dir.policy.rule import Rule, Rules, to_device
from rlvr_dir.policy.step import Requests

_NOTHING = Rule()  # the rule of a slot whose request is not ours: decided like any other, and then not written


@dataclass(frozen=True)
class StepBatch:
    """The rows of one step, in the order of its logits: what does not change while the same requests run."""

    rules: Rules
    keys: torch.Tensor  # (n,) int64, of the noise
    starts: torch.Tensor  # (n,) int64, absolute
    decided: torch.Tensor | None  # (n,) bool, which rows are ours; None: all of them
    rows: list[Plan | None]

    def at(self, positions: torch.Tensor) -> Requests:
        """Return where the rows stand, each about to write the token at its position: (n,) int64."""
        return Requests(self.keys, positions, self.starts)

    @property
    def end(self) -> int | None:
        """A token that ends a response, the same for every request of an engine; None: its models have none."""
        return next((row.end for row in self.rows if row), None)

    @cached_property
    def traced_alike(self) -> list[tuple[int, torch.Tensor]]:
        """The traced rows by how many most likely tokens they list: (top, indices into those that are traced)."""
        tops = [self.rules.rules[i].trace for i in self.rules.traced.rows]
        return [
            (
                top,
                to_device([i for i, top_of_row in enumerate(tops) if top_of_row == top], torch.long, self.keys.device),
            )
            for top in sorted({top for top in tops if top is not None})
        ]


class SlotTable:
    """The requests that run, by slot."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.rows: dict[int, Plan] = {}  # slot -> request; V2 never says that one has ended
        self._last: tuple[bytes, StepBatch] | None = None  # by its slots, while the same requests run

    def put(self, slot: int, row: Plan | None) -> None:
        """Give a slot to a request, or to one that is not ours (None)."""
        self.rows.pop(slot, None)
        if row is not None:
            self.rows[slot] = row
        self._last = None

    def batch(self, slots: np.ndarray) -> StepBatch:
        """Return the batch whose n rows are these slots: (n,) integers.

        The same object as before, while the same requests run in the same order: then nothing is copied to the device.
        """
        if self._last is not None and self._last[0] == slots.tobytes():
            return self._last[1]
        rows = [self.rows.get(slot) for slot in slots.tolist()]
        ours = [row is not None for row in rows]
        numbers = [(row.key, row.start) if row else (0, 0) for row in rows]
        keys, starts = to_device(numbers, torch.long, self.device).reshape(len(rows), 2).unbind(1)
        batch = StepBatch(
            rules=Rules.compile([row.rule if row else _NOTHING for row in rows], self.device),
            keys=keys.clone(),  # memory of its own: `contiguous` gives one row an address that Triton compiles anew for
            starts=starts.clone(),
            decided=None if all(ours) else to_device(ours, torch.bool, self.device),
            rows=rows,
        )
        self._last = slots.tobytes(), batch
        return batch

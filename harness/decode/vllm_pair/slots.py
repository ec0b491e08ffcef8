"""Compiles what the running requests ask for when requests come and go; a step reads it.

A steady step, one that has the requests of the step before, copies nothing to the device and waits for nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from harness.decode.types import Plan
from harness.policy.memory import Memory
from harness.policy.rule import Rule, Rules, to_device
from harness.policy.step import Requests

LAYOUTS = 16  # of rows that are kept, where many are verified in several calls
_NOTHING = Rule()  # the rule of a slot whose request is not ours: decided like any other, and then not written


@dataclass(frozen=True)
class StepBatch:
    """The rows of one step, in the order of its logits: what does not change while the same requests run."""

    rules: Rules
    keys: torch.Tensor  # (n,) int64, of the noise
    starts: torch.Tensor  # (n,) int64, absolute
    decided: torch.Tensor | None  # (n,) bool, which rows are ours; None: all of them
    rows: list[Plan | None]
    memory: Memory | None = None  # where a rule looks back
    cells: torch.Tensor | None = None

    def at(self, positions: torch.Tensor) -> Requests:
        """Return where the rows stand, each about to write the token at its position: (n,) int64."""
        return Requests(self.keys, positions, self.starts, self.memory, self.cells)

    @property
    def end(self) -> int | None:
        """A token that ends a response, the same for every request of an engine; None: its models have none."""
        return next((row.end for row in self.rows if row), None)

    @cached_property
    def traced_alike(self) -> list[tuple[int, torch.Tensor]]:
        """The traced rows by how many likeliest tokens they list: (top, indices into those that are traced)."""
        tops = [self.rules.rules[i].trace for i in self.rules.traced.rows]
        return [
            (top, to_device([i for i, each in enumerate(tops) if each == top], torch.long, self.keys.device))
            for top in sorted({top for top in tops if top is not None})
        ]


class Cells:
    """Know which cell of the memory each request has that looks back, whether it is in a slot or was preempted.

    A preempted request comes back before others are admitted, and there are never more than a step can hold. So twice
    `capacity` cells are enough, if the one whose request left its slot longest ago is given away first: nobody says
    whether a request that left has ended. Should a number be missing all the same, its response is refused.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.memory = Memory(2 * capacity, device)
        self._cells: OrderedDict[str, int] = OrderedDict()

    def leave(self, request: str | None) -> None:
        """Hear that a request has left its slot."""
        if request in self._cells:
            self._cells.move_to_end(request)

    def of(self, requests: Sequence[str | None], present: Iterable[str | None]) -> list[int]:
        """Return each request's cell, a new and empty one where it has none; the spare one for None.

        Those of requests that are `present` in a slot are not given away.
        """
        busy, fresh = set(present), []
        for request in requests:
            if request is None or request in self._cells:
                continue
            cell = len(self._cells)
            if cell == self.memory.spare:
                gone = next(each for each in self._cells if each not in busy)
                cell = self._cells.pop(gone)
            self._cells[request] = cell
            fresh.append(cell)
        if fresh:
            device = self.memory.device
            self.memory.clear(to_device(fresh, torch.long, device))
        return [self.memory.spare if request is None else self._cells[request] for request in requests]


class SlotTable:
    """The requests that run, by slot."""

    def __init__(self, capacity: int, device: torch.device | str) -> None:
        self.device, self._capacity = torch.device(device), capacity
        self.rows: dict[int, Plan] = {}  # slot -> request; V2 never says that one has ended
        self._cells: Cells | None = None  # made when a rule first looks back
        self._batches: dict[bytes, StepBatch] = {}  # by their slots, while the same requests run

    def put(self, slot: int, row: Plan | None) -> None:
        """Give a slot to a request, or to one that is not ours (None)."""
        before = self.rows.pop(slot, None)
        if before is not None and self._cells is not None:
            self._cells.leave(before.memory)
        if row is not None:
            self.rows[slot] = row
        self._batches.clear()

    def batch(self, slots: np.ndarray) -> StepBatch:
        """Return the batch whose n rows are these slots: (n,) integers.

        The same object as before, while the same requests run in the same order: then nothing is copied to the device.
        """
        if (known := self._batches.get(slots.tobytes())) is not None:
            return known
        rows = [self.rows.get(slot) for slot in slots.tolist()]
        ours = [row is not None for row in rows]
        numbers = [(row.key, row.start) if row else (0, 0) for row in rows]
        keys, starts = to_device(numbers, torch.long, self.device).reshape(len(rows), 2).unbind(1)
        memory = cells = None
        if any(row and row.memory for row in rows):
            self._cells = self._cells or Cells(self._capacity, self.device)
            memory = self._cells.memory
            held = self._cells.of([row and row.memory for row in rows], (row.memory for row in self.rows.values()))
            cells = to_device(held, torch.long, self.device)
        batch = StepBatch(
            rules=Rules.compile([row.rule if row else _NOTHING for row in rows], self.device),
            keys=keys.contiguous(),
            starts=starts.contiguous(),
            decided=None if all(ours) else to_device(ours, torch.bool, self.device),
            rows=rows,
            memory=memory,
            cells=cells,
        )
        if len(self._batches) == LAYOUTS:
            self._batches.clear()
        self._batches[slots.tobytes()] = batch
        return batch

"""What the running requests ask for, as a table on the device: written when requests come, read at every step.

A steady step, one that has the requests of the step before, copies nothing to the device and waits for nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from harness.policy import COLUMNS, History, Past, Rule, RuleRow
from harness.policy.rule import to_device

_NOTHING = RuleRow()  # the rule of a slot whose request is not ours: decided like any other, and then not written


class SlotRow:
    """One request: its rule, its noise key, and how it is traced (`trace` likeliest tokens; None: not at all).

    Model runner V1 says where a request is by its prompt's length and the list of what it has written.
    """

    __slots__ = ("end", "key", "output", "prompt_length", "request", "rule", "trace", "vocab_size")

    def __init__(self, fields: dict[str, Any], prompt_length: int = 0, output: Sequence[int] = ()) -> None:
        """Read the fields that `extra_args` wrote; raises ValueError for a gate or a primary that is not known."""
        self.rule = RuleRow(**{name: fields[name] for name in RuleRow.__slots__})
        self.rule.columns()
        self.key, self.vocab_size, self.trace = fields["key"], fields["vocab_size"], fields["trace"]
        self.end = fields["end"]
        self.request: str | None = fields.get("request")  # of those that look back
        self.prompt_length, self.output = prompt_length, output


@dataclass(frozen=True)
class StepBatch:
    """The rows of one step, in the order of its logits: what does not change while the same requests run."""

    rule: Rule
    keys: torch.Tensor  # (n,) int64, of the noise
    decided: torch.Tensor | None  # (n,) bool, which rows are ours; None: all of them
    rows: list[SlotRow | None]
    device: torch.device
    past: Past | None = None  # where a rule looks back

    @property
    def vocab_size(self) -> int | None:
        """Real tokens, the same for every request of an engine."""
        return next((row.vocab_size for row in self.rows if row), None)

    @property
    def end(self) -> int | None:
        """A token that ends a response, the same for every request of an engine; None: its models have none."""
        return next((row.end for row in self.rows if row), None)

    @cached_property
    def traced(self) -> torch.Tensor | None:
        """(m,) int64, the rows whose statistics are wanted; None: no row's."""
        wanted = [i for i, row in enumerate(self.rows) if row and row.trace is not None]
        return to_device(wanted, torch.long, self.device) if wanted else None

    @cached_property
    def traced_alike(self) -> list[tuple[int, torch.Tensor]]:
        """The traced rows by how many likeliest tokens they list: (top, indices into `traced`)."""
        tops = [row.trace for row in self.rows if row and row.trace is not None]
        return [
            (top, to_device([i for i, each in enumerate(tops) if each == top], torch.long, self.device))
            for top in sorted(set(tops))
        ]


class Cells:
    """Which cell of the history each request has that looks back, whether it is in a slot or was preempted.

    A preempted request comes back before others are admitted, and there are never more than a step can hold. So twice
    `capacity` cells are enough, if the one whose request left its slot longest ago is given away first: nobody says
    whether a request that left has ended. Should a number be missing all the same, its response is refused.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.history = History(2 * capacity, device)
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
            if cell == self.history.spare:
                gone = next(each for each in self._cells if each not in busy)
                cell = self._cells.pop(gone)
            self._cells[request] = cell
            fresh.append(cell)
        if fresh:
            device = self.history.device
            self.history.clear(to_device(fresh, torch.long, device))
        return [self.history.spare if request is None else self._cells[request] for request in requests]


class SlotTable:
    """The rules and noise keys of up to `capacity` requests, by slot."""

    def __init__(self, capacity: int, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.rows: dict[int, SlotRow] = {}  # slot -> request; V2 never says that one has ended
        self._changed = set(range(capacity))  # slots to be written
        self._columns = torch.zeros(capacity, len(COLUMNS), dtype=torch.float64, device=self.device)
        self._keys = torch.zeros(capacity, dtype=torch.long, device=self.device)
        self._capacity = capacity
        self._cells: Cells | None = None  # made when a rule first looks back
        self._cell = torch.full((capacity,), 2 * capacity, dtype=torch.long, device=self.device)
        self._batch: tuple[np.ndarray, StepBatch] | None = None
        self.flush()

    def put(self, slot: int, row: SlotRow | None) -> None:
        """Give a slot to a request, or to one that is not ours (None); on the device from the next `flush` on."""
        before = self.rows.pop(slot, None)
        if before is not None and self._cells is not None:
            self._cells.leave(before.request)
        if row is not None:
            self.rows[slot] = row
        self._changed.add(slot)
        self._batch = None

    def flush(self) -> None:
        """Write what has changed to the device, without waiting for it."""
        if not self._changed:
            return
        slots = sorted(self._changed)
        self._changed.clear()
        rows = [self.rows.get(slot) for slot in slots]
        index = to_device(slots, torch.long, self.device)
        rules = [(row.rule if row else _NOTHING).columns() for row in rows]
        self._columns.index_copy_(0, index, to_device(rules, torch.float64, self.device))
        self._keys.index_copy_(0, index, to_device([row.key if row else 0 for row in rows], torch.long, self.device))
        requests = [row.request if row else None for row in rows]
        if self._cells is None and any(requests):
            self._cells = Cells(self._capacity, self.device)
        if self._cells is not None:
            cells = self._cells.of(requests, (row.request for row in self.rows.values()))
            self._cell.index_copy_(0, index, to_device(cells, torch.long, self.device))

    def batch(self, slots: np.ndarray, on_device: torch.Tensor | None = None) -> StepBatch:
        """Return the batch whose n rows are these slots: (n,) integers, given on the host and perhaps on the device.

        The same object as before, while the same requests run in the same order.
        """
        if self._batch is not None and np.array_equal(self._batch[0], slots):
            return self._batch[1]
        self.flush()
        index = to_device(slots.tolist(), torch.long, self.device) if on_device is None else on_device
        rows = [self.rows.get(slot) for slot in slots.tolist()]
        ours = [row is not None for row in rows]
        batch = StepBatch(
            rule=Rule.known(self._columns.index_select(0, index), [row.rule if row else _NOTHING for row in rows]),
            keys=self._keys.index_select(0, index),
            decided=None if all(ours) else to_device(ours, torch.bool, self.device),
            rows=rows,
            device=self.device,
            past=None if self._cells is None else Past(self._cells.history, self._cell.index_select(0, index)),
        )
        self._batch = slots.copy(), batch
        return batch

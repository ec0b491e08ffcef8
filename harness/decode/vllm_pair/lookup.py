"""Looks drafts up in what was written for the same prompt: the row's own text, and its siblings', running or finished.

A draft is what followed the longest run of tokens (LEAST to MOST) that a text shares with the end of the row's own. Of
runs of one length the row's own text comes first, then the greatest position. Nothing here waits for the device, and
nothing can change a token: a wrong draft is cut.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.decode.vllm_pair.step import decision_path
from harness.policy.rule import to_device

LEAST, MOST = 2, 8  # tokens of a shared run
SIBLINGS = 64  # texts that a row looks into, its own among them: the latest
A_SLOT = 8  # texts that are kept for each row of a batch: its own, what is expected of it, and finished ones
_BLOCK = 512  # positions that a kernel looks at together


@dataclass(frozen=True)
class Rows:
    """Describe the n rows of a step, as long as they stay the same."""

    own: Tensor  # (n,) int64, each row's text
    among: Tensor  # (n, siblings) int64, the texts it looks into; -1 where there are fewer
    fresh: Tensor  # rows whose text is not here yet: (fresh,) int64


class Texts:
    """Hold texts on the device: `tokens` (texts, length) int32, of each text the first `lengths` (texts,)."""

    def __init__(self, slots: int, length: int, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.tokens = torch.zeros(A_SLOT * slots, length, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(A_SLOT * slots, dtype=torch.int64, device=device)
        self._groups: OrderedDict[int, Hashable] = OrderedDict((text, None) for text in range(len(self.tokens)))
        self._in: dict[int, int] = {}  # slot -> text
        self._fresh: set[int] = set()  # slots
        self._rows: tuple[np.ndarray, Rows] | None = None

    def add(self, slot: int, group: Hashable, expected: Sequence[int] = ()) -> None:
        """Give a slot to a request of a group, and to its group a text that it is expected to be like."""
        if expected:
            text = self._take(group)
            written = to_device(expected, torch.int32, self.device)[: self.tokens.shape[1]]
            self.tokens[text, : len(written)] = written
            self.lengths[text] = len(written)
        self._in.pop(slot, None)  # what it wrote stays, a sibling, until its place is needed
        self._in[slot] = self._take(group)
        self._fresh.add(slot)
        self._rows = None

    def _take(self, group: Hashable) -> int:
        """Return the place of the text that was begun longest ago and is in no slot."""
        busy = set(self._in.values())
        text = next(text for text in self._groups if text not in busy)
        self._groups[text] = group
        self._groups.move_to_end(text)
        return text

    def rehearse(self) -> None:
        """Look up once, so that no step has to wait until the kernel is compiled."""
        self.drafts(Rows(*(to_device(each, torch.long, self.device) for each in ([0], [[0]], []))), 1)

    def knows(self, slots: np.ndarray) -> bool:
        """Tell whether requests are in all of these slots."""
        return all(slot in self._in for slot in slots.tolist())

    def rows(self, slots: np.ndarray) -> Rows:
        """Return the rows of a step in these slots, (n,) integers; the same object while nothing changes."""
        if self._rows is not None and np.array_equal(self._rows[0], slots):
            return self._rows[1]
        named = slots.tolist()
        own = [self._in[slot] for slot in named]
        members: dict[Hashable, list[int]] = {self._groups[text]: [] for text in own}
        for text, group in reversed(self._groups.items()):
            if group in members and len(members[group]) < SIBLINGS:
                members[group].append(text)
        width = max(map(len, members.values()))
        among = []
        for text in own:
            others = [each for each in members[self._groups[text]] if each != text][: SIBLINGS - 1]
            among.append([text, *others, *[-1] * (width - len(others) - 1)])
        fresh = [i for i, slot in enumerate(named) if slot in self._fresh]
        made = [to_device(each, torch.long, self.device) for each in (own, among, fresh)]
        known = Rows(made[0], made[1], made[2][:0])
        self._fresh -= set(named)
        self._rows = slots.copy(), known
        return Rows(*made)

    def follow(self, rows: Rows, written: Tensor, lengths: Tensor, slots: Tensor, step: int) -> None:
        """Take over what the rows have written since the last step.

        Args:
            written: (slots, length) tokens of all slots, of which the rows' `slots` (n,) have `lengths` (n,).
            step: how many tokens a row writes in a step, at most.
        """
        if len(rows.fresh):
            self.tokens.index_copy_(0, rows.own[rows.fresh], written[slots[rows.fresh]])
        back = torch.arange(1, step + 1, device=self.device)
        at = (lengths[:, None] - back).clamp_(min=0)
        self.tokens[rows.own[:, None], at] = written[slots[:, None], at]
        self.lengths[rows.own] = lengths

    def drafts(self, rows: Rows, k: int) -> Tensor:
        """Return k drafts a row, (n, k) int64: where nothing is found the row's last token."""
        fused = self.device.type != "cpu" or decision_path("cpu") == "triton"  # the reference takes gigabytes
        find = longest_fused if fused else longest
        found = find(self.tokens, self.lengths, rows).amax(1)
        length, siblings = self.tokens.shape[1], rows.among.shape[1]
        place = (found // siblings).remainder(length)
        text = rows.among.gather(1, (siblings - 1 - found.remainder(siblings))[:, None])
        at = place[:, None] + torch.arange(k, device=self.device)
        known = (found > 0)[:, None] & (at < self.lengths[text])
        last = self.tokens[rows.own, self.lengths[rows.own] - 1]
        return torch.where(known, self.tokens[text, at.clamp_(max=length - 1)], last[:, None]).long()


def longest(tokens: Tensor, lengths: Tensor, rows: Rows) -> Tensor:
    """Find the best place of each text that a row looks into: (n, siblings) int64, 0 where there is none.

    Greater is better: run, whether it is the row's own text, position of what followed, and which of the texts. This is
    the kernel's reference; it makes tensors of (n, siblings, length).
    """
    siblings, length = rows.among.shape[1], tokens.shape[1]
    texts, ends = tokens[rows.among], lengths[rows.among]
    place = torch.arange(length, device=tokens.device)
    alive = (place >= 1) & (place < ends[..., None]) & (rows.among >= 0)[..., None]
    run, own_length = torch.zeros_like(alive, dtype=torch.long), lengths[rows.own]
    for back in range(1, MOST + 1):
        want = tokens[rows.own, (own_length - back).clamp(min=0)]
        same = texts.roll(back, -1) == want[:, None, None]
        alive = alive & same & (place >= back) & (own_length >= back)[:, None, None]
        run += alive
    own = torch.arange(siblings, device=tokens.device) == 0
    score = ((2 * run + own[:, None]) * length + place).where(run >= LEAST, 0).amax(-1)
    return (score * siblings + siblings - 1 - torch.arange(siblings, device=tokens.device)).where(score > 0, 0)


def longest_fused(tokens: Tensor, lengths: Tensor, rows: Rows) -> Tensor:
    """Find the same as `longest` with a kernel that reads each text once."""
    from harness.decode.vllm_pair.lookup_kernel import find

    n, siblings = rows.among.shape
    found = torch.empty(n, siblings, dtype=torch.int64, device=tokens.device)
    length = tokens.shape[1]
    find[n, siblings](tokens, lengths, rows.own, rows.among, found, length, siblings, LEAST, MOST, _BLOCK)
    return found

"""Exact drafting: the primary runs ahead by some tokens, the other model reads them all at once, the rest is cut.

Lock-step reads two models a token. Here the primary proposes k tokens one by one, as if no criterion held; the other
model then scores all k in one forward, and what follows the first position where the criterion does hold is thrown
away. The noise is counter-based, so the tokens are those of lock-step, to the last one: nothing is accepted or
rejected by chance, as in speculative sampling, and nothing is approximated.

At a replacement ratio r a round emits (1 - (1 - r)^k) / r tokens for k + 1 forwards. That pays where a forward costs
the reading of weights and cache, few rows or long contexts, since k tokens then cost the other model what one does.
Where it costs arithmetic, drafts that are cut are waste, and k = 1 is best: lock-step.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from harness.decode.lock_step import LockStep, Models, facts_of
from harness.decode.plan import Plan
from harness.decode.progress import Progress
from harness.decode.types import Rollout
from harness.policy import Decision, Noise, decide, propose

MOST = 16  # tokens of a draft, where the pace is free
LOGITS = 2**28  # numbers of one round's logits a model, 1 GiB: what bounds drafts of many rows
PROBE_EVERY = 24  # rounds after which another k is tried, so that what is known of the costs stays true
FORGET = 0.98  # weight of a round after the next one


def expected_tokens(k: int, ratio: float) -> float:
    """Return how many tokens a round of k drafts emits on average: (1 - (1 - r)^k) / r, k at r = 0."""
    return float(k) if ratio <= 0 else (1 - (1 - ratio) ** k) / ratio


@dataclass
class Counts:
    """What drafting did, over all batches: `reads` of a model's weights, by lock-step two a token (of every row)."""

    rounds: int = 0
    drafted: int = 0  # forwards of the primary
    verified: int = 0  # forwards of the other model
    positions: int = 0  # looked at by it
    tokens: int = 0  # emitted
    row_rounds: int = 0  # rows of each round, summed
    row_drafts: int = 0  # rows of each of the primary's forwards, summed

    @property
    def reads_per_token(self) -> float:
        """Forwards of either model a token of a row; 2 in lock-step."""
        return (self.row_drafts + self.row_rounds) / max(1, self.tokens)


class Pace:
    """How many tokens to draft: as asked, or what should be fastest at the ratio and the costs seen so far.

    A round costs k forwards of the primary and one forward of the other model over k tokens, a + b k; the three are
    followed as they are measured, older rounds counting less. The choice changes how fast tokens come, never which.
    """

    def __init__(self, wanted: int | Literal["auto"]) -> None:
        self.fixed = None if wanted == "auto" else wanted
        self.fired, self.looked = 0.0, 0.0
        self.draft = [0.0, 0.0]  # seconds, forwards
        self.verify = np.zeros((2, 2)), np.zeros(2)  # normal equations of a + b k
        self.rounds = 0

    def saw(self, k: int, draft_seconds: float, verify_seconds: float, fired: int, looked: int) -> None:
        """Learn from a round: k drafts, and how many of the positions that count were redrawn."""
        self.fired, self.looked = FORGET * self.fired + fired, FORGET * self.looked + looked
        self.draft = [FORGET * self.draft[0] + draft_seconds, FORGET * self.draft[1] + k]
        left, right = self.verify
        x = np.array([1.0, k])
        self.verify = FORGET * left + np.outer(x, x), FORGET * right + x * verify_seconds
        self.rounds += 1

    @property
    def ratio(self) -> float:
        """The replacement ratio so far; before anything is seen that of the paper's middle settings."""
        return (self.fired + 1) / (self.looked + 20)

    def choose(self, most: int) -> int:
        """Choose the number of tokens to draft next, at most `most`."""
        if self.fixed is not None:
            return min(self.fixed, most)
        if self.rounds < 4:  # two different k are needed before costs can be told apart
            return min(most, 2 if self.rounds % 2 else 4)
        best = self._best(most)
        if self.rounds % PROBE_EVERY == 0:
            return min(most, best + 2) if best == 1 or self.rounds % (2 * PROBE_EVERY) else max(1, best // 2)
        return best

    def _best(self, most: int) -> int:
        forward = self.draft[0] / self.draft[1]
        first, each = np.linalg.lstsq(*self.verify, rcond=None)[0]
        each = max(float(each), 0.0)
        ratio = self.ratio
        return min(range(1, most + 1), key=lambda k: (k * forward + first + each * k) / expected_tokens(k, ratio))


class Drafted(LockStep):
    """A batch whose primary drafts; all its plans have the same one."""

    def __init__(self, engine: Models, plans: Sequence[Plan], pace: Pace, counts: Counts) -> None:
        super().__init__(engine, plans)
        self.pace, self.counts = pace, counts
        self.primary = plans[0].row.primary
        self.other = "rl" if self.primary == "base" else "base"
        # what a busy machine gives to others is no cost of ours; on a device only the wall clock knows
        self.clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        self.eos = torch.tensor(sorted(engine.checkpoints.eos_token_ids), device=self.device)

    def prepare_rows(self) -> None:
        """Add to lock-step's tables how much each row has written, which differs from row to row."""
        super().prepare_rows()
        self.count = torch.tensor([len(self.written[i]) for i in self.running], device=self.device)
        self.room = torch.tensor([self.plans[i].max_new_tokens for i in self.running], device=self.device)

    def decode(self, bar: Progress) -> Iterator[Rollout]:
        """Yield the rollouts as they finish; see `LockStep.decode`."""
        bar.now("prefilling")
        vocab = self.engine.checkpoints.vocab_size
        while self.running:
            most = max(
                1, min(MOST if self.pace.fixed is None else self.pace.fixed, LOGITS // (len(self.running) * vocab))
            )
            yield from self._round(self.pace.choose(most))
            self.report(bar)
            self.check()
            self.compact()
            self._close_holes()

    def _round(self, k: int) -> Iterator[Rollout]:
        """Draft up to k tokens a row, score them, write what stands."""
        began, prefill = self.clock(), self.input.shape[1] > 1
        drafts, depth, own = self._draft(k)
        drafted = self.clock()
        k = drafts.shape[1]
        tokens = torch.cat([self.input, drafts[:, :-1]], dim=1)
        mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), k - 1)], dim=1)
        other = self.read(self.other, tokens, mask, keep=k)
        at = torch.arange(k, device=self.device)
        counts = at < depth[:, None]  # (rows, k): positions that a row has really drafted
        index = counts.flatten().nonzero().squeeze(1)
        rows = index // k
        logits = {self.primary: own, self.other: other}
        traced = None if self.traced is None else torch.isin(rows, self.traced).nonzero().squeeze(1)
        decision = decide(
            logits["base"].flatten(0, 1)[index],
            logits["rl"].flatten(0, 1)[index],
            self.rule.take(rows),
            self._noise(rows, index % k),
            vocab_size=self.engine.checkpoints.vocab_size,
            proposed=drafts.flatten()[index],
            traced=traced,
            top=self.top,
            past=None if self.past is None else self.past.take(rows),
        )
        fired = torch.zeros_like(counts)
        fired.view(-1)[index] = decision.replaced
        stands = torch.where(fired.any(1), fired.int().argmax(1) + 1, depth)  # tokens a row has now
        final = drafts.flatten()
        final[index] = decision.token
        yield from self._write_round(decision, rows, index % k, stands, traced)
        seconds = self.clock() - drafted
        self.counts.rounds += 1
        self.counts.drafted += k
        self.counts.verified += 1
        self.counts.positions += len(index)
        self.counts.row_rounds += len(depth)
        self.counts.row_drafts += k * len(depth)
        if not prefill:
            kept = at < stands[:, None]
            self.pace.saw(k, drafted - began, seconds, int((fired & kept).sum()), int(kept.sum()))
        self.count = self.count + stands
        self.input = final.view(-1, k).gather(1, stands[:, None] - 1)
        read = (at[: k - 1] < stands[:, None] - 1).long()  # drafts that a row keeps in its caches
        unread = k - 1 - int(read.sum(1).max()) if k > 1 else 0
        if unread:
            for cache in self.caches.values():
                cache.crop(-unread)
            read = read[:, : k - 1 - unread]
        self.mask = torch.cat([self.mask, read, read.new_ones(len(read), 1)], dim=1)

    def _noise(self, rows: torch.Tensor, at: torch.Tensor) -> Noise:
        """Return the noise of `rows` (m,) at the `at`-th token (m,) from where each row stands."""
        return Noise.at(self.keys[rows], (self.lengths + self.count)[rows] + at)

    def _draft(self, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw the primary's next tokens, as if no criterion held.

        Returns:
            proposed (rows, k') int64, with k' <= k; depth (rows,) int64, how many of them a row has use for: none after
            its end, or after a token that is known to be redrawn; the primary's logits (rows, k', vocab).
        """
        n = len(self.running)
        rows = torch.arange(n, device=self.device)
        tokens, mask = self.input, self.mask
        ended = torch.tensor([i in self.finished for i in self.running], device=self.device)
        depth = torch.ones(n, dtype=torch.long, device=self.device)
        drafts: list[torch.Tensor] = []
        logits: list[torch.Tensor] = []
        for i in range(k):
            logits.append(self.read(self.primary, tokens, mask)[:, -1])
            noise = self._noise(rows, torch.full_like(rows, i))
            proposed, fired = propose(logits[-1], self.rule, noise, vocab_size=self.engine.checkpoints.vocab_size)
            drafts.append(proposed)
            ended = ended | fired | torch.isin(proposed, self.eos) | (self.count + i + 1 >= self.room)
            if i + 1 == k or bool(ended.all()):
                break
            depth = depth + (~ended).long()
            tokens = proposed[:, None]
            mask = torch.cat([mask, mask.new_ones(n, 1)], dim=1)
        return torch.stack(drafts, 1), depth, torch.stack(logits, 1)

    def _write_round(
        self,
        decision: Decision,
        rows: torch.Tensor,
        at: torch.Tensor,
        stands: torch.Tensor,
        traced: torch.Tensor | None,
    ) -> Iterator[Rollout]:
        tables: dict[int, np.ndarray] = {}
        if traced is not None and decision.trace is not None:
            tables = dict(zip(traced.tolist(), decision.trace.cpu().numpy(), strict=True))
        limit = stands.tolist()
        for n, (row, position, facts) in enumerate(zip(rows.tolist(), at.tolist(), facts_of(decision), strict=True)):
            i = self.running[row]
            if position < limit[row] and i not in self.finished:
                self.counts.tokens += 1
                done = self.append(i, facts, tables.get(n))
                if done is not None:
                    yield done

    def _close_holes(self) -> None:
        """Move what is masked out between a row's tokens to its left, once that is a fifth of the caches."""
        if not self.running:
            return
        cached = self.mask[:, : -self.input.shape[1]]
        needed = int(cached.sum(1).max())
        if cached.shape[1] <= 1.25 * needed + 16:
            return
        order = cached.argsort(dim=1, stable=True)[:, -needed:]  # a row's own tokens come last, in their order
        for cache in self.caches.values():
            for layer in cache.layers:
                index = order[:, None, :, None]
                layer.keys = layer.keys.gather(2, index.expand(-1, layer.keys.shape[1], -1, layer.keys.shape[3]))
                layer.values = layer.values.gather(
                    2, index.expand(-1, layer.values.shape[1], -1, layer.values.shape[3])
                )
        self.mask = torch.cat([cached.gather(1, order), self.mask[:, cached.shape[1] :]], dim=1)

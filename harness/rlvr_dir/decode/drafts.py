"""Decode one batch of the reference engine with drafts: base writes k tokens alone, and the others read them at once.

A block of k positions takes k passes of base, each over one token, and one pass of every other model, over k tokens.
Then all k positions are decided as in lock-step. A row keeps the block up to the first written token that differs from
its draft. The noise of a token depends only on its request and its position, so the tokens are those of lock-step.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rlvr_dir.decode.lock_step import LockStep, Models, facts_of
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.types import Plan, Rollout
from rlvr_dir.policy.algorithm import decide
from rlvr_dir.policy.combine import cut
from rlvr_dir.policy.gates import GateError
from rlvr_dir.policy.noise import PROPOSE
from rlvr_dir.policy.nucleus import draw
from rlvr_dir.policy.rule import Rules
from rlvr_dir.policy.step import Requests
from rlvr_dir.policy.target import Policies, weights

_HOLES = 1.5  # columns of the caches per token of the longest row, at which dropped drafts are removed from them


class Drafting(LockStep):
    """Decode the rows of a batch in blocks of up to `k` positions.

    Rows keep different parts of a block. A draft that a row drops stays in its caches as a hole: the mask hides it, and
    positions do not count it.
    """

    def __init__(self, engine: Models, plans: Sequence[Plan], k: int) -> None:
        super().__init__(engine, plans)
        self.k = k
        self.ends = torch.tensor(sorted(engine.checkpoints.eos_token_ids), device=self.device)
        self.drafter = "recipient" if "recipient" in self.models else "base"  # the first of the two policies

    def prepare_rows(self) -> None:
        """Make the tables of the current rows; those of a block are made for its length."""
        super().prepare_rows()
        self._blocks: dict[int, Rules] = {}

    def decode(self, bar: Progress) -> Iterator[Rollout]:
        """Yield the rollouts as they finish; see `LockStep.decode`."""
        bar.set_phase("prefilling")
        while self.running:
            left = [self.plans[i].max_new_tokens - len(self.written[i]) for i in self.running if i not in self.finished]
            k = min(self.k, max(left))
            written = torch.tensor([len(self.written[i]) for i in self.running], device=self.device)
            at = (self.lengths + written)[:, None] + torch.arange(k, device=self.device)  # (n, k) positions
            logits, drafts = self.read_block(at)
            k = drafts.shape[1]
            positions = at[:, :k].flatten()
            requests = Requests(self.keys.repeat_interleave(k), positions, self.starts.repeat_interleave(k))
            try:
                decision = decide(logits, self._rules_of(k), requests, self.combination)
            except GateError as error:
                raise error.with_hint("Responses that were finished before are kept.") from None
            table = None if decision.trace is None else decision.trace.cpu().numpy()
            tables = {} if table is None else dict(zip(self._rules_of(k).traced.rows, table, strict=True))
            facts, drafted, kept = facts_of(decision), drafts.flatten().tolist(), list[int]()
            for row, i in enumerate(self.running):
                kept.append(1)
                for place in range(row * k, row * k + k if i not in self.finished else 0):
                    kept[row] = place - row * k + 1
                    if (done := self.append(i, facts[place], tables.get(place))) is not None:
                        yield done
                    if i in self.finished or facts[place][0] != drafted[place]:
                        break
            self.report(bar)
            self.check()
            self.keep(torch.tensor(kept, device=self.device), decision.token.view(-1, k))
            self.compact()

    def read_block(self, at: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Draft a block and let every model read it. It is shorter if every row's draft ends before.

        Args:
            at: (n, k) int64, the positions of the block.

        Returns:
            By role, the logits at these positions, (n * k, vocab); and the drafts, (n, k) int64.
        """
        tokens, own, drafts = self.input, list[Tensor](), list[Tensor]()
        ended = torch.zeros(len(at), dtype=torch.bool, device=self.device)
        for positions in at.unbind(1):
            if drafts:
                tokens = drafts[-1][:, None]
                self.mask = torch.cat([self.mask, torch.ones_like(tokens)], dim=1)
            own.append(self.read(self.drafter, tokens, self.mask)[:, -1])
            drafts.append(self.propose(own[-1], positions))
            ended |= torch.isin(drafts[-1], self.ends)
            if ended.all():
                break
        block = torch.cat([self.input, *(draft[:, None] for draft in drafts[:-1])], dim=1)
        logits = {
            role: self.read(role, block, self.mask, keep=len(drafts)) if role != self.drafter else torch.stack(own, 1)
            for role in self.models
        }
        return {role: each.flatten(0, 1) for role, each in logits.items()}, torch.stack(drafts, 1)

    def propose(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Draw what the drafter alone would write at a position: (n, padded vocab), (n,) int64 -> (n,) int64."""
        own = cut(logits, self.engine.checkpoints.shared)
        policies = Policies(own, own, self.rules)
        noise = Requests(self.keys, positions, self.starts).noise(PROPOSE)
        return draw(weights(policies.primary, self.rules), self.rules.top_p, noise)

    def keep(self, kept: Tensor, tokens: Tensor) -> None:
        """Hide the drafts that rows dropped, and set the next input.

        Args:
            kept: (n,) int64, how many positions of the block each row wrote.
            tokens: (n, k) int64, the tokens that were decided.
        """
        k, most = tokens.shape[1], int(kept.max())
        if k > most:  # columns that no row keeps
            self.mask = self.mask[:, : most - k]
            for cache in self.caches.values():
                cache.crop(most - k)
        if most > 1:
            places = torch.arange(1, most, device=self.device)
            self.mask[:, 1 - most :] *= places < kept[:, None]
        self.close_holes()
        self.input = tokens.gather(1, kept[:, None] - 1)
        self.mask = torch.cat([self.mask, torch.ones_like(self.input)], dim=1)

    def close_holes(self) -> None:
        """Remove hidden columns from the caches once they are a third of them; every row stays aligned on the right."""
        width = int(self.mask.sum(1).max())
        if self.mask.shape[1] <= _HOLES * width:
            return
        order = self.mask.argsort(dim=1, stable=True)[:, -width:]  # hidden columns first, the others in their order
        for cache in self.caches.values():
            for layer in cache.layers:
                for name in ("keys", "values"):
                    tensor = getattr(layer, name)
                    index = order[:, None, :, None].expand(-1, tensor.shape[1], -1, tensor.shape[3])
                    setattr(layer, name, tensor.gather(2, index))
        self.mask = self.mask.gather(1, order)

    def _rules_of(self, k: int) -> Rules:
        """Return the rules of a block, each row's `k` times."""
        if k not in self._blocks:
            rules = [self.plans[i].rule for i in self.running for _ in range(k)]
            self._blocks[k] = Rules.compile(rules, self.device)
        return self._blocks[k]

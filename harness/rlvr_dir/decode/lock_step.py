"""Decode one batch of the reference engine in lock-step: both models read a token, and the next one is decided.

Prompts are padded on the left and prefilled by both models. Finished rows are dropped. A row's noise does not depend on
the other rows of the batch.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch

from rlvr_dir.checkpoints.read import Checkpoints
from rlvr_dir.config import Pair
from rlvr_dir.decode.plan import broken_logits, rollout
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.trace import columns
from rlvr_dir.decode.types import Plan, Rollout
from rlvr_dir.policy.algorithm import Decision, decide
from rlvr_dir.policy.combine import combination_of
from rlvr_dir.policy.gates import GateError
from rlvr_dir.policy.rule import Rules
from rlvr_dir.policy.step import Requests

# For each token: id, replaced, changed, delta log p of the proposal, the proposal's id, delta log p of the token.
Facts = tuple[int, bool, bool, float, int, float]


class Models(Protocol):
    """List what a batch needs: the models of a `TransformersPair` that has been started."""

    device: torch.device
    pair: Pair
    dtype: str
    checkpoints: Checkpoints
    models: dict[str, Any]  # by role

    @property
    def tokenizer(self) -> Any:
        """Return the RL model's tokenizer."""
        ...

    def new_cache(self) -> Any:
        """Make an empty cache for one model and batch."""
        ...


class LockStep:
    """Decode the rows of a batch that are not finished, with their caches and written tokens."""

    def __init__(self, engine: Models, plans: Sequence[Plan]) -> None:
        self.engine, self.plans, self.device = engine, plans, engine.device
        n, longest = len(plans), max(len(plan.token_ids) for plan in plans)
        self.input = torch.zeros(n, longest, dtype=torch.long)  # the tokens that both models read next
        self.mask = torch.zeros(n, longest, dtype=torch.long)  # covers what they have read and `input`
        for i, plan in enumerate(plans):  # pad on the left, so that every row ends at the same column
            self.input[i, longest - len(plan.token_ids) :] = torch.tensor(plan.token_ids)
            self.mask[i, longest - len(plan.token_ids) :] = 1
        self.input, self.mask = self.input.to(self.device), self.mask.to(self.device)
        self.models, checkpoints = engine.models, engine.checkpoints
        self.caches = {role: engine.new_cache() for role in self.models}
        self.combination = combination_of(self.models, checkpoints.vocab_size, checkpoints.shared)
        self.written: list[list[Facts]] = [[] for _ in plans]
        self.traces: dict[int, list[np.ndarray]] = {}
        self.running = list(range(n))  # row -> index into plans
        self.finished: set[int] = set()
        self.broken: list[int] = []  # plans whose last token comes from logits that do not form a distribution
        self.prepare_rows()

    def prepare_rows(self) -> None:
        """Make the tables of the current rows: rules, noise keys and lengths."""
        plans = [self.plans[i] for i in self.running]
        self.rules = Rules.compile([plan.rule for plan in plans], self.device)
        self.keys = torch.tensor([plan.key for plan in plans], device=self.device)
        self.starts = torch.tensor([plan.start for plan in plans], device=self.device)
        self.lengths = torch.tensor([len(plan.token_ids) for plan in plans], device=self.device)

    def decode(self, bar: Progress) -> Iterator[Rollout]:
        """Yield the rollouts as they finish. `bar` is updated with the phase and the tokens.

        Raises:
            BrokenLogits: A model's logits do not form a distribution. Finished rollouts are yielded before.
        """
        step = 0
        bar.set_phase("prefilling")
        while self.running:
            logits = {role: self.read(role, self.input, self.mask)[:, -1] for role in self.models}
            requests = Requests(self.keys, self.lengths + step, self.starts)
            try:
                decision = decide(logits, self.rules, requests, self.combination)
            except GateError as error:
                raise error.with_hint("Responses that were finished before are kept.") from None
            yield from self._write(decision)
            self.report(bar)
            self.check()
            self.input = decision.token[:, None]
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
            self.compact()
            step += 1

    def report(self, bar: Progress) -> None:
        """Update the bar, and from time to time count the tokens of unfinished responses for it."""
        bar.set_phase("generating")
        if bar.looks:
            bar.show(len(self.written[i]) for i in self.running if i not in self.finished)

    @torch.inference_mode()
    def read(self, role: str, tokens: torch.Tensor, mask: torch.Tensor, keep: int = 1) -> torch.Tensor:
        """Let a model read `tokens` (n, new) into its cache; return the logits after the last `keep` of them.

        `mask` (n, cached + new) marks the tokens that each row may attend to. A row's positions count only its own
        tokens.

        Returns:
            (n, keep, vocab).
        """
        tokens = as_known(self.engine.checkpoints, role, tokens)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        return self.models[role](
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.caches[role],
            use_cache=True,
            logits_to_keep=keep,
        ).logits

    def _write(self, decision: Decision) -> Iterator[Rollout]:
        tables: dict[int, np.ndarray] = {}
        if decision.trace is not None:
            tables = dict(zip(self.rules.traced.rows, decision.trace.cpu().numpy(), strict=True))
        for row, facts in enumerate(facts_of(decision)):
            if self.running[row] not in self.finished:
                done = self.append(self.running[row], facts, tables.get(row))
                if done is not None:
                    yield done

    def append(self, i: int, facts: Facts, table: np.ndarray | None) -> Rollout | None:
        """Append one token to plan `i`. Return its rollout if that was the last token."""
        plan, written = self.plans[i], self.written[i]
        if math.isnan(facts[3]):
            self.finished.add(i)
            self.broken.append(i)
            return None
        written.append(facts)
        if table is not None:
            self.traces.setdefault(i, []).append(table[: columns(plan.request.trace or 0)])
        if facts[0] in self.engine.checkpoints.eos_token_ids or self._stopped(plan, i):
            reason: Literal["stop", "length"] = "stop"
        elif len(written) == plan.max_new_tokens:
            reason = "length"
        else:
            return None
        self.finished.add(i)
        trace = np.stack(self.traces.pop(i)) if i in self.traces else None
        ids, replaced, changed, delta_logp, proposed, of_written = zip(*written, strict=True)
        tokenizer = self.engine.tokenizer
        return rollout(plan, tokenizer, ids, replaced, changed, delta_logp, reason, proposed, of_written, trace)

    def check(self) -> None:
        """Raise an error if a response is broken. Each model reads it once more to find out whose logits are the cause.

        Raises:
            BrokenLogits: A response is broken.
        """
        if not self.broken:
            return
        i = self.broken[0]
        plan, written, vocab = self.plans[i], self.written[i], self.engine.checkpoints.vocab_size
        ids = torch.tensor([[*plan.token_ids, *(facts[0] for facts in written)]], device=self.device)
        with torch.inference_mode():
            last = {
                role: model(as_known(self.engine.checkpoints, role, ids)).logits[0, -1, :vocab].float()
                for role, model in self.models.items()
            }
        roles = [role for role, logits in last.items() if bool(torch.log_softmax(logits, 0).isnan().any())]
        raise broken_logits(plan, self.engine.pair, self.engine.dtype, plan.begun + len(written), roles)

    def _stopped(self, plan: Plan, i: int) -> bool:
        """Return whether a stop string was just completed. A character has at most a few tokens."""
        if not plan.request.stop:
            return False
        tail = [facts[0] for facts in self.written[i][-8 - 4 * max(map(len, plan.request.stop)) :]]
        text = self.engine.tokenizer.decode(tail, skip_special_tokens=True)
        return any(stop in text for stop in plan.request.stop)

    def compact(self) -> None:
        """Drop finished rows once an eighth of the batch is finished. Copying the caches every time would cost more."""
        alive = [row for row, i in enumerate(self.running) if i not in self.finished]
        if len(alive) == len(self.running) or (alive and len(alive) > len(self.running) * 7 / 8):
            return
        self.running = [self.running[row] for row in alive]
        if not alive:
            return
        index = torch.tensor(alive, device=self.device)
        self.input, self.mask = self.input[index], self.mask[index]
        for cache in self.caches.values():
            cache.batch_select_indices(index)
        self.prepare_rows()


def as_known(checkpoints: Checkpoints, role: str, tokens: torch.Tensor) -> torch.Tensor:
    """Return tokens as a model reads them, int64. For base, each token that only RL has is replaced by one that it
    knows."""
    if role != "base" or checkpoints.shared == checkpoints.vocab_size:
        return tokens
    return tokens.where(tokens < checkpoints.shared, checkpoints.stand_in)


def facts_of(decision: Decision) -> list[Facts]:
    """Return a decision's facts, row by row."""
    columns = (
        decision.token, decision.replaced, decision.changed, decision.delta_logp,
        decision.proposed, decision.delta_logp_written,
    )  # fmt: skip
    return list(zip(*(column.tolist() for column in columns), strict=True))

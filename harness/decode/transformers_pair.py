"""The reference engine: two Hugging Face models in lock-step, one token at a time. Readable, and the oracle.

A batch of prompts is padded on the left and prefilled by both models; then, token by token, both give logits, the
decision function picks a token for every row, and both read it. Finished rows leave; their noise does not depend on
who else is in the batch.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from harness.decode.pair_engine import PairEngine
from harness.decode.plan import Plan, plan_requests, rollout
from harness.decode.progress import Progress
from harness.decode.trace import columns
from harness.decode.types import Request, Rollout
from harness.errors import UserError
from harness.policy import Decision, Noise, Rule, decide
from harness.spec import EngineSpec, Pair


class TransformersPair(PairEngine):
    """Both models as `transformers` causal language models on one device; implements `Engine`."""

    def __init__(self, pair: Pair, spec: EngineSpec | None = None) -> None:
        """Checks the checkpoints; `start` loads them.

        Raises:
            UserError: the checkpoints do not fit together, or a setting is one that only vLLM can serve.
        """
        spec = spec or EngineSpec()
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            if getattr(spec, name) != 1:
                raise UserError(f"{name}={getattr(spec, name)} is refused by backend='transformers'; accepted: 1")
        super().__init__(pair, spec)
        self.device = torch.device(spec.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def load(self) -> None:
        """Loads both models; see `start`."""
        from transformers import AutoModelForCausalLM

        pair = self.pair

        def load(name: str, revision: str | None) -> Any:
            model = AutoModelForCausalLM.from_pretrained(
                name,
                revision=revision,
                dtype=getattr(torch, self.dtype),
                trust_remote_code=pair.trust_remote_code,
            )
            return model.to(self.device).eval()

        with _quiet(self.checkpoints.small):
            self.base_model = load(pair.base, pair.base_revision)
            self.rl_model = load(pair.rl, pair.rl_revision)

    def generate(self, requests: Iterable[Request], *, progress: bool | Progress = False) -> Iterator[Rollout]:
        """Yields rollouts as they finish, `max_num_seqs` requests at a time; see `Engine.generate`."""
        plans = plan_requests(requests, self.checkpoints, self.max_model_len)
        self.start()
        return self._generate(plans, progress)

    def _generate(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        bar = Progress.of(progress, len(plans))
        try:
            for start in range(0, len(plans), self.spec.max_num_seqs):
                for done in _Batch(self, plans[start : start + self.spec.max_num_seqs]).decode():
                    bar.finished(done)
                    yield done
        finally:
            bar.close()

    @torch.inference_mode()
    def logits(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Teacher-forced logits of base and RL after each token: (tokens,) -> two (tokens, vocab) float32."""
        self.start()
        ids = torch.tensor([token_ids], device=self.device)
        return self.base_model(ids).logits[0].float(), self.rl_model(ids).logits[0].float()

    def info(self) -> dict[str, Any]:
        """What was run; see `Engine.info`."""
        import transformers

        return self.facts(backend="transformers", transformers=transformers.__version__, device=self.device.type)

    def close(self) -> None:
        """Drops both models."""
        self.base_model = self.rl_model = None


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    """Without transformers' loading bars, for models that load at once."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    if quiet:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if quiet and shown:
            logging.enable_progress_bar()


class _Batch:
    """One batch on its way: the rows still alive, their caches, and what each has written so far."""

    def __init__(self, engine: TransformersPair, plans: list[Plan]) -> None:
        from transformers import DynamicCache

        self.engine, self.plans, self.device = engine, plans, engine.device
        n, longest = len(plans), max(len(plan.prompt_token_ids) for plan in plans)
        self.input = torch.zeros(n, longest, dtype=torch.long)
        self.mask = torch.zeros(n, longest, dtype=torch.long)
        for i, plan in enumerate(plans):  # padded on the left, so that every row ends at the same column
            length = len(plan.prompt_token_ids)
            self.input[i, longest - length :] = torch.tensor(plan.prompt_token_ids)
            self.mask[i, longest - length :] = 1
        self.input, self.mask = self.input.to(self.device), self.mask.to(self.device)
        self.caches = DynamicCache(), DynamicCache()
        self.written: list[list[tuple[int, bool, bool, float]]] = [[] for _ in plans]
        self.traces: dict[int, list[np.ndarray]] = {}
        self.running = list(range(n))  # row -> index into plans
        self.finished: set[int] = set()
        self._prepare_rows()

    def _prepare_rows(self) -> None:
        plans = [self.plans[i] for i in self.running]
        self.rule = Rule([plan.row for plan in plans], self.device)
        self.keys = torch.tensor([plan.key for plan in plans], device=self.device)
        self.lengths = torch.tensor([len(plan.prompt_token_ids) for plan in plans], device=self.device)
        traced = [row for row, plan in enumerate(plans) if plan.request.trace is not None]
        self.traced = torch.tensor(traced, device=self.device) if traced else None

    def decode(self) -> Iterator[Rollout]:
        step = 0
        while self.running:
            base_logits, rl_logits = self._forward()
            noise = Noise.at(self.keys, self.lengths + step)
            decision = decide(
                base_logits,
                rl_logits,
                self.rule,
                noise,
                vocab_size=self.engine.checkpoints.vocab_size,
                traced=self.traced,
                top=max((plan.request.trace or 0 for plan in self.plans), default=0),
            )
            yield from self._write(decision)
            self.input = decision.token[:, None]
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
            self._compact()
            step += 1

    @torch.inference_mode()
    def _forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both models read `input` (n, new tokens) and give the logits of the next token, (n, vocab) each."""
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -self.input.shape[1] :]
        models = self.engine.base_model, self.engine.rl_model
        base, rl = (
            model(
                input_ids=self.input,
                attention_mask=self.mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            for model, cache in zip(models, self.caches, strict=True)
        )
        return base, rl

    def _write(self, decision: Decision) -> Iterator[Rollout]:
        facts_of = (decision.token, decision.replaced, decision.changed, decision.delta_logp)
        if self.traced is not None:
            tables = decision.trace.cpu().numpy()
            for row, table in zip(self.traced.tolist(), tables, strict=True):
                if self.running[row] not in self.finished:
                    i = self.running[row]
                    self.traces.setdefault(i, []).append(table[: columns(self.plans[i].request.trace)])
        for row, facts in enumerate(zip(*(column.tolist() for column in facts_of), strict=True)):
            i = self.running[row]
            if i in self.finished:
                continue
            self.written[i].append(facts)
            plan, count = self.plans[i], len(self.written[i])
            if facts[0] in self.engine.checkpoints.eos_token_ids or self._stopped(plan, i):
                reason = "stop"
            elif count == plan.max_new_tokens:
                reason = "length"
            else:
                continue
            self.finished.add(i)
            trace = np.stack(self.traces.pop(i)) if i in self.traces else None
            yield rollout(plan, self.engine.tokenizer, *zip(*self.written[i], strict=True), reason, trace)

    def _stopped(self, plan: Plan, i: int) -> bool:
        """Whether a stop string has just been completed; a character is at most a few tokens long."""
        if not plan.request.stop:
            return False
        tail = [facts[0] for facts in self.written[i][-8 - 4 * max(map(len, plan.request.stop)) :]]
        text = self.engine.tokenizer.decode(tail, skip_special_tokens=True)
        return any(stop in text for stop in plan.request.stop)

    def _compact(self) -> None:
        """Drops finished rows once an eighth of the batch is done; copying the caches every time would cost more."""
        alive = [row for row, i in enumerate(self.running) if i not in self.finished]
        if len(alive) == len(self.running) or (alive and len(alive) > len(self.running) * 7 / 8):
            return
        self.running = [self.running[row] for row in alive]
        if not alive:
            return
        index = torch.tensor(alive, device=self.device)
        self.input, self.mask = self.input[index], self.mask[index]
        for cache in self.caches:
            cache.batch_select_indices(index)
        self._prepare_rows()

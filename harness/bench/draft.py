"""Where drafting pays: the transformers pair in lock-step and with drafts, over batch sizes and context lengths.

The same loaded models decode the same requests each way in turn, round by round, from a prompt read before: what is
timed is the processor's time for the new tokens. Ratios are medians over rounds of the ratio within a round.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import copy
from datetime import date
from pathlib import Path
from typing import Any

from harness.bench.decode import machine
from harness.errors import UserError
from harness.spec import Decoding, EngineSpec, Pair, Sampling

DRAFTS: tuple[Any, ...] = (None, 4, "auto")  # None: lock-step
NEVER = -100.0  # a tau that Δlog p, clamped to 30 nats, never gets under
CHUNK = 512  # tokens of the prompt read at once: what bounds the memory of a long one


def bench_draft(
    *,
    pair: Pair | None = None,
    batches: Sequence[int] = (1, 4, 16, 64),
    contexts: Sequence[int] = (64,),
    ratios: Sequence[float] = (0.02, 0.1),
    tokens: int = 96,
    rounds: int = 3,
    threads: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure every batch size at every context length and ratio.

    Args:
        pair: checkpoints to run; default a random pair of 8 layers, 768 wide (0.3 GB each), made for the run.
        batches: responses decoded at once; contexts: tokens of their prompts.
        ratios: of replacement, near enough: tau of `delta_logp` is their quantile of what base alone writes there.
        tokens: new tokens of each.
        rounds: measured, after one that warms up.

    Returns:
        A plain object: `cells`, each with batch, context, tau, ratio (of replacement, as it came out), `speedup` over
        lock-step, `reads` of a model a token and row by draft, and what the `formula` expects of four drafts at that
        ratio, `same` (tokens equal to lock-step's); `machine`, `settings`.

    Raises:
        UserError: a context is too long for the models.
    """
    import torch

    from harness.decode.transformers_pair import TransformersPair

    torch.set_num_threads(threads)
    cells = []
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-") as scratch:
        if pair is None:
            from harness.bench.random_pair import random_pair

            say("making a random pair")
            length = max(contexts) + tokens + 1
            pair = random_pair(Path(scratch), vocab=1004, hidden=768, layers=8, positions=max(1024, length))
        spec = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=max(batches))
        with TransformersPair(pair, spec) as engine:
            if max(contexts) + tokens > engine.max_model_len:
                raise UserError(f"contexts={max(contexts)} is refused: the models read {engine.max_model_len} tokens")
            engine.start()
            for context in contexts:
                say(f"{context} tokens of context: reading them")
                prompt = _Prompt(engine, context, tokens)
                for ratio, tau in zip(ratios, prompt.taus(ratios), strict=True):
                    for batch in batches:
                        say(f"{context} tokens of context, about {ratio:.0%} replaced, {batch} responses")
                        cells.append(_cell(prompt, tau, batch, rounds))
                        say(f"  {cells[-1]['speedup']}, replaced {cells[-1]['ratio']:.1%}")
    return {
        "cells": cells,
        "limit": "lock-step reads 2 models a token; drafting at ratio r and k drafts (k + 1) r / (1 - (1 - r)^k)",
        "settings": {
            "tokens": tokens,
            "ratios": list(ratios),
            "rounds": rounds,
            "threads": threads,
            "pair": pair.model_dump(),
        },
        "machine": machine(),
        "date": date.today().isoformat(),
    }


class _Prompt:
    """A context that both models have read, and responses to it that start from there."""

    def __init__(self, engine: Any, context: int, tokens: int) -> None:
        from harness.decode.lock_step import LockStep

        self.engine, self.tokens = engine, tokens
        text = engine.tokenizer.encode("Let a be the sum of the first integers. " * context)
        self.ids = tuple(text[:context])
        batch = LockStep(engine, self.plans(1, 0.0))
        for start in range(0, context - 1, CHUNK):
            end = min(start + CHUNK, context - 1)  # the last token is for the response to read
            for role in batch.models:
                batch.read(role, batch.input[:, start:end], batch.mask[:, :end])
        self.caches = batch.caches

    def taus(self, ratios: Sequence[float]) -> list[float]:
        """Return the tau of each replacement ratio, from the Δlog p of what base writes when nothing is replaced."""
        import numpy as np

        deltas = np.concatenate([one.delta_logp for one in self.respond(4, NEVER, None)[1]])
        return [round(float(tau), 4) for tau in np.quantile(deltas, ratios)]

    def plans(self, n: int, tau: float) -> list[Any]:
        """Plan `n` responses that differ in their noise."""
        from harness.decode import Request
        from harness.decode.plan import plan_requests

        decoding, sampling = Decoding(mode="replace", tau=tau), Sampling(max_tokens=self.tokens, top_p=0.95)
        requests = [Request("", f"bench/{i}", 0, decoding, sampling, self.ids) for i in range(n)]
        return plan_requests(requests, self.engine.checkpoints, self.engine.context)

    def respond(self, n: int, tau: float, draft: Any) -> tuple[float, list[Any], float]:
        """Decode `n` responses; return seconds, rollouts, and reads of a model a token."""
        import torch

        from harness.decode.drafting import Counts, Drafted, Pace
        from harness.decode.lock_step import LockStep
        from harness.decode.progress import Progress

        plans, counts = self.plans(n, tau), Counts()
        batch = LockStep(self.engine, plans) if draft is None else Drafted(self.engine, plans, Pace(draft), counts)
        batch.input = batch.input[:, -1:]
        batch.caches = {role: _rows(cache, n) for role, cache in self.caches.items()}
        if n > 1:  # a column of padding: prompts of one batch differ in length, and no mask is a case of its own
            batch.mask = torch.cat([batch.mask.new_zeros(n, 1), batch.mask], dim=1)
        began = time.process_time()
        done = list(batch.decode(Progress(0, False)))
        spent = time.process_time() - began
        done.sort(key=lambda one: one.request.problem)
        return spent, done, counts.reads_per_token if draft else 2.0


def _rows(cache: Any, n: int) -> Any:
    """Repeat a cache of one row `n` times, behind a column of padding where `n` > 1; `cache` itself stays as it is."""
    from torch.nn.functional import pad

    rows = copy(cache)
    rows.layers = [copy(layer) for layer in cache.layers]  # a cache grows by new tensors, never in place
    rows.batch_repeat_interleave(n)
    if n > 1:
        for layer in rows.layers:
            layer.keys, layer.values = pad(layer.keys, (0, 0, 1, 0)), pad(layer.values, (0, 0, 1, 0))
    return rows


def _cell(prompt: _Prompt, tau: float, batch: int, rounds: int) -> dict[str, Any]:
    from harness.decode.drafting import expected_tokens

    times: dict[str, list[float]] = {str(draft): [] for draft in DRAFTS}
    reads, written = {}, {}
    done: list[Any] = []
    for number in range(rounds + 1):
        for draft in DRAFTS:
            spent, done, reads[str(draft)] = prompt.respond(batch, tau, draft)
            written[str(draft)] = [one.token_ids for one in done]
            if number:
                times[str(draft)].append(spent)
    tokens = sum(map(len, written["None"]))
    ratio = sum(one.n_replaced for one in done) / tokens
    return {
        "batch": batch,
        "context": len(prompt.ids),
        "tau": tau,
        "tokens": tokens,
        "ratio": round(ratio, 4),
        "same": all(each == written["None"] for each in written.values()),
        "seconds": {name: round(statistics.median(each), 3) for name, each in times.items()},
        "speedup": {
            name: round(statistics.median(a / b for a, b in zip(times["None"], each, strict=True)), 3)
            for name, each in times.items()
            if name != "None"
        },
        "reads": {name: round(each, 3) for name, each in reads.items()},
        "formula": round(5 / expected_tokens(4, ratio), 3),
    }

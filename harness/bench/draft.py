"""Where drafting pays: the transformers pair in lock-step and with drafts, over batch sizes and context lengths.

The same loaded models decode the same requests each way in turn, round by round. What is timed is the processor's time
for the tokens after the first: without reading the prompt. Ratios are medians over rounds of the ratio within a round.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from harness.bench.decode import machine
from harness.errors import UserError
from harness.spec import Decoding, EngineSpec, Pair, Sampling

DRAFTS: tuple[Any, ...] = (None, 4, "auto")  # None: lock-step


def bench_draft(
    *,
    pair: Pair | None = None,
    batches: Sequence[int] = (1, 4, 16, 64),
    contexts: Sequence[int] = (64,),
    tokens: int = 96,
    tau: float = -0.3,
    rounds: int = 3,
    threads: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures every batch size at every context length.

    Args:
        pair: checkpoints to run; default a random pair of 8 layers, 768 wide (0.3 GB each), made for the run.
        batches: responses decoded at once; contexts: tokens of their prompts.
        tokens: new tokens of each, the first of which is not timed.
        tau: of the criterion, `delta_logp`; it sets the replacement ratio.
        rounds: measured, after one that warms up.

    Returns:
        A plain object: `cells`, each with batch, context, ratio (of replacement), `speedup` over lock-step and
        `reads` of a model a token and row by draft, `same` (tokens equal to lock-step's); `machine`, `settings`.

    Raises:
        UserError: a context is too long for the models.
    """
    import torch

    from harness.decode import Request
    from harness.decode.drafting import Counts
    from harness.decode.transformers_pair import TransformersPair

    torch.set_num_threads(threads)
    cells = []
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-") as scratch:
        if pair is None:
            from harness.bench.random_pair import random_pair

            say("making a random pair")
            length = max(contexts) + tokens + 1
            pair = random_pair(Path(scratch), vocab=1004, hidden=768, layers=8, positions=max(1024, length))
        engine = TransformersPair(pair, EngineSpec(backend="transformers", dtype="float32", max_num_seqs=max(batches)))
        if max(contexts) + tokens > engine.max_model_len:
            raise UserError(f"contexts={max(contexts)} is refused: the models read {engine.max_model_len} tokens")
        plain = engine.spec
        prompt = engine.tokenizer.encode("Let a be the sum of the first integers. " * max(contexts))

        def run(draft: Any, batch: int, context: int, most: int) -> tuple[float, dict[int, tuple[int, ...]], int]:
            engine.spec, engine.drafting = plain.replace(draft=draft), Counts()
            decoding, sampling = Decoding(mode="replace", tau=tau), Sampling(max_tokens=most, top_p=0.95)
            requests = [
                Request("", f"bench/{i}", 0, decoding, sampling, tuple(prompt[i : i + context])) for i in range(batch)
            ]
            began = time.process_time()
            done = {r.request.problem: r for r in engine.generate(requests)}
            spent = time.process_time() - began
            return spent, {name: r.token_ids for name, r in done.items()}, sum(r.n_replaced for r in done.values())

        for context in contexts:
            for batch in batches:
                say(f"{batch} responses, {context} tokens of context")
                times: dict[str, list[float]] = {str(draft): [] for draft in DRAFTS}
                reads, outputs = {}, {}
                for number in range(rounds + 1):
                    for draft in DRAFTS:
                        first, _, _ = run(draft, batch, context, 1)
                        spent, outputs[str(draft)], replaced = run(draft, batch, context, tokens)
                        reads[str(draft)] = engine.drafting.reads_per_token if draft else 2.0
                        if number:
                            times[str(draft)].append(spent - first)
                written = sum(map(len, outputs["None"].values()))
                cells.append(
                    {
                        "batch": batch,
                        "context": context,
                        "tokens": written,
                        "ratio": round(replaced / written, 4),
                        "same": all(each == outputs["None"] for each in outputs.values()),
                        "seconds": {name: round(statistics.median(each), 3) for name, each in times.items()},
                        "speedup": {
                            name: round(statistics.median(a / b for a, b in zip(times["None"], each, strict=True)), 3)
                            for name, each in times.items()
                            if name != "None"
                        },
                        "reads": {name: round(each, 3) for name, each in reads.items()},
                    }
                )
                say(f"  {cells[-1]['speedup']}, replaced {cells[-1]['ratio']:.1%}")
        engine.close()
    return {
        "cells": cells,
        "limit": "lock-step reads 2 models a token; drafting at ratio r and k drafts (k + 1) r / (1 - (1 - r)^k)",
        "settings": {"tokens": tokens, "tau": tau, "rounds": rounds, "threads": threads, "pair": pair.model_dump()},
        "machine": machine(),
        "date": date.today().isoformat(),
    }

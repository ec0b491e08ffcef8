"""Implement the checks of `benchmarks.checklist`, each of which runs in its own process:

    python -m benchmarks.checks NAME PAIR SETTINGS

The last line of output is JSON: `ok` (None if it only measures) and numbers. Further numbers help to distinguish
causes.
"""

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count as counted_from
from itertools import product
from typing import Any

import numpy as np

from benchmarks.steps import Findings
from rlvr_dir.bench.worker import TEXT
from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling, check_together, parse_decoding
from rlvr_dir.config.decoding import Mode
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.errors import UserError

# Every criterion, target and window.
RULES = (
    "base", "rl", "replace,tau=-0.05", "extrapolate,primary=rl,tau=-0.02,gamma=0.1",
    "replace,criterion=delta_logp,tau=0.2,side=above", "replace,criterion=abs_delta_logp,tau=0.2",
    "replace,criterion=nll_rl,tau=2", "replace,criterion=ce,tau=2", "replace,criterion=entropy_base,tau=1",
    "replace,criterion=entropy_rl,tau=1", "extrapolate,criterion=kl,tau=0.02,gamma=0.5",
    "resample,criterion=kl_rl_base,tau=0.02,primary=rl", "replace,criterion=kl_base_rl,tau=0.02",
    "veto,tau=-0.05", "veto,criterion=kl,tau=0.02,gamma=0.5,primary=rl",
    "reject,tau=-0.05", "reject,criterion=kl,tau=0.02,sign=negative,primary=rl",
    "replace,criterion=random,tau=0.2", "extrapolate,criterion=always,gamma=-0.5",
    "extrapolate,criterion=js,tau=0.01,gamma=2,window=2:",
    "extrapolate,criterion=coupling,gamma=0.3,window=:60%",
)  # fmt: skip
SAMPLINGS: tuple[Findings, ...] = (
    {"top_p": 0.95}, {"top_p": 1.0}, {"temperature": 0}, {"temperature": 1.3},
)  # fmt: skip
PROMPT = 76  # tokens: few enough that vLLM reads a prompt in a CUDA graph, alone or together with decoded tokens
CLOSE = {"float32": 1e-3, "bfloat16": 1.5}  # nats of Δ log p against transformers in float32 on the same weights
OF_DELTA = {"float32": 0.01, "bfloat16": 0.2}  # the mean error as a share of the mean |Δ log p|
LIKELY = 1e-4  # below this p the distribution of the draws counts as wrong


def logits(pair: Pair, settings: Findings) -> Findings:
    """Compare Δ log p of decoded tokens with transformers, teacher-forced, in three ways; base and RL alternate.

    `alone`: one prompt of PROMPT tokens at a time. `joining`: a prompt every few steps, read in steps in which others
    decode. `together`: 16 prompts in one step. `first` tokens come from the step that read the prompt.
    """
    import torch

    from rlvr_dir.decode.progress import Progress
    from rlvr_dir.decode.transformers_pair import TransformersPair

    dtype = settings.get("dtype", "float32")
    with _open(pair, settings) as engine:
        began = time.monotonic()
        routes = {
            "alone": [r for request in _prompts(engine, "alone", 8, 24) for r in engine.generate([request])],
            "joining": list(engine.serve(_Arrivals(_prompts(engine, "joining", 24, 32), every=7), Progress(0, False))),
            "together": list(engine.generate(_prompts(engine, "together", 16, 24))),
        }
        decoded, facts = time.monotonic() - began, _facts(engine)
    errors: dict[str, dict[str, float]] = {}
    sizes, worst, total, count = 0.0, 0.0, 0.0, 0
    with TransformersPair(pair, EngineSpec(backend="transformers", dtype=dtype)) as reference:
        reference.start()
        for model in reference.models.values():
            model.float()  # the engine's weights, in exact arithmetic
        vocab = reference.checkpoints.vocab_size
        for route, rollouts in routes.items():
            first, later = 0.0, 0.0
            for r in rollouts:
                both = reference.logits([*r.prompt_token_ids, *r.token_ids[:-1]])
                base, rl = (torch.log_softmax(x[len(r.prompt_token_ids) - 1 :, :vocab], -1).cpu() for x in both)
                true = (rl - base).gather(1, torch.tensor(r.token_ids)[:, None])[:, 0]
                error = (torch.tensor(r.delta_logp) - true).abs()
                first, later = max(first, float(error[0])), max(later, *error[1:].tolist(), 0.0)
                sizes, total, count = sizes + float(true.abs().sum()), total + float(error.sum()), count + len(error)
            errors[route] = {"first": round(first, 6), "later": round(later, 6)}
            worst = max(worst, first, later)
    share = total / sizes
    return {
        "ok": worst <= CLOSE[dtype] and share <= OF_DELTA[dtype], "largest_error": worst, "by_route": errors,
        "mean_error": total / count, "mean_delta": sizes / count, "tokens": count, "decoded_s": round(decoded, 1),
        "engine": facts,
    }  # fmt: skip


def gates(pair: Pair, settings: Findings) -> Findings:
    """Compare the responses of every decoding, all in one batch, with transformers; `least` is the required share.

    If vLLM counts preemptions (`disable_log_stats`), requests must have been preempted.
    """
    requests = every_rule()
    with _open(pair, settings) as engine:
        ours = {r.request.problem: r for r in engine.generate(requests)}
        facts, counted = _facts(engine), "disable_log_stats" in settings.get("vllm_args", {})
        metrics = engine._llm.get_metrics() if counted else ()
    with open_engine(pair, EngineSpec(backend="transformers", dtype="float32")) as reference:
        theirs = {r.request.problem: r for r in reference.generate(requests)}
    other = [
        name for name, r in ours.items()
        if r.token_ids != theirs[name].token_ids or (r.replaced != theirs[name].replaced).any()
    ]  # fmt: skip
    preemptions = next((each.value for each in metrics if each.name == "vllm:num_preemptions"), None)
    return {
        "ok": len(other) <= (1 - settings["least"]) * len(ours) and preemptions != 0, "same": len(ours) - len(other),
        "of": len(ours), "other": other[:9], "preemptions": preemptions, "engine": facts,
    }  # fmt: skip


def every_rule() -> list[Any]:
    """Make a request for each of `RULES` with each of `SAMPLINGS` that fits it; some are traced."""
    requests = []
    for i, (rule, way) in enumerate(product(RULES, SAMPLINGS)):
        decoding, sampling = parse_decoding(rule), Sampling(max_tokens=24, **way)
        with suppress(UserError):  # greedy `random`
            check_together(decoding, sampling)
            trace = 5 if decoding.gated and i % 3 == 0 else None
            requests.append(Request(TEXT.format(i, 3 + i), f"{rule} {way}", 0, decoding, sampling, trace=trace))
    return requests


def self_test(pair: Pair, settings: Findings) -> Findings:
    """Start the engine with its own self-test, which a correct engine must pass."""
    with _open(pair, {**settings, "self_test": True}) as engine:
        return {"ok": engine.self_test != "off", "compared_with": engine.self_test, "engine": _facts(engine)}


def law(pair: Pair, settings: Findings) -> Findings:
    """Test 6,000 one-token draws of a replacement and of an extrapolation against their closed form by chi-square."""
    from scipy import stats

    from benchmarks.closed_form import distribution
    from rlvr_dir.decode.plan import rule_of
    from rlvr_dir.decode.transformers_pair import TransformersPair
    from rlvr_dir.policy.rule import Rules

    found: Findings = {}
    count = settings.get("draws", 6000)
    sampling = Sampling(temperature=2.5, top_p=0.98, max_tokens=1)  # flat enough for many kinds of token
    rules = {
        "replace": Decoding(mode="replace", tau=-0.1),
        "extrapolate": Decoding(mode="extrapolate", tau=0.0, gamma=0.5),
    }
    with _open(pair, settings) as engine:
        draws = {
            name: [r.token_ids[0] for r in engine.generate(_texts(count, decoding, sampling, kinds=1))]
            for name, decoding in rules.items()
        }
        prompt, vocab = engine.tokenizer.encode(TEXT.format(0, 3)), engine.checkpoints.vocab_size
        facts = _facts(engine)
    with TransformersPair(pair, EngineSpec(backend="transformers", dtype="float32")) as reference:
        base, rl = (x[-1:, :vocab].cpu() for x in reference.logits(prompt))
    for name, decoding in rules.items():
        expected, _ = distribution({"base": base, "rl": rl}, Rules.compile([rule_of(decoding, sampling)]))
        expected = expected[0].double().numpy() * count
        counts = np.bincount(draws[name], minlength=vocab)
        order = np.argsort(-expected)
        cells = max(2, int((expected >= 5).sum()))  # the last one holds all that is rarer
        wanted, observed = ([*x[order][: cells - 1], x[order][cells - 1 :].sum()] for x in (expected, counts))
        p = float(stats.chisquare(observed, wanted).pvalue)
        found[name] = {"p": p, "cells": cells, "impossible": int(counts[expected == 0].sum())}
    good = all(one["p"] > LIKELY and not one["impossible"] for one in found.values())
    return {"ok": bool(good), **found, "engine": facts}


def shuffle(pair: Pair, settings: Findings) -> Findings:
    """Count the requests that give the same tokens in another order and beside others; `least` is the required
    share."""
    sampling = Sampling(top_p=0.95, max_tokens=96)
    requests = _texts(192, Decoding(mode="extrapolate", tau=-0.1, gamma=0.2), sampling)
    with _open(pair, settings) as engine:
        first = {r.request.problem: r.token_ids for r in engine.generate(requests)}
        random.Random(0).shuffle(requests)
        mixed = [*requests[:96], *[replace(r, problem=f"other/{r.problem}") for r in requests[:64]], *requests[96:]]
        second = {r.request.problem: r.token_ids for r in engine.generate(mixed)}
        facts = _facts(engine)
    same = sum(second[name] == ids for name, ids in first.items())
    return {"ok": same >= settings["least"] * len(first), "same": same, "of": len(first), "engine": facts}


def speed(pair: Pair, settings: Findings) -> Findings:
    """Measure the pair's tokens per second and replacement ratio, and the size of its KV cache."""
    began = time.monotonic()
    with _open(pair, settings) as engine:
        started, prompts = time.monotonic() - began, _long_prompts(engine.tokenizer, settings)
        seeds = counted_from(1)

        def decode(count: int, seed: int | None = None) -> tuple[int, int]:
            decoding = Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)
            sampling = Sampling(max_tokens=settings["tokens"], seed=next(seeds) if seed is None else seed)
            texts = enumerate(_texts(count, decoding, sampling))
            done = list(engine.generate(replace(each, prompt_token_ids=tuple(prompts[i % 30])) for i, each in texts))
            return sum(r.n_tokens for r in done), sum(r.n_replaced for r in done)

        found: Findings = {"ok": None, "sizes": _timed(decode, settings["sequences"])}
        return {**found, "start_s": round(started, 1), **_cache(engine._llm, 2), "engine": _facts(engine)}


def memory(pair: Pair, settings: Findings) -> Findings:
    """Decode as many rows as possible, all traced: vLLM's memory profile must have included what they need."""
    requests = _texts(settings["max_num_seqs"], Decoding(mode="replace", tau=-0.3), Sampling(max_tokens=16))
    with _open(pair, settings) as engine:
        count = sum(r.n_tokens for r in engine.generate(replace(request, trace=10) for request in requests))
        found, limit = engine.ask_worker("rlvr_memory"), engine.spec.gpu_memory_utilization + 0.02
        return {"ok": found["held"] <= limit * found["device"] if found else None, "tokens": count, **found,
                "engine": _facts(engine)}  # fmt: skip


def serve(pair: Pair, settings: Findings) -> Findings:
    """Send requests to the tiny pair's server in 20 streams at once, and then to its engine, for the same tokens."""
    from benchmarks.streams import ask_server, made_requests, running_server
    from rlvr_dir.tiny import tiny_pair

    requests = made_requests(60, 48)
    with running_server(1, "--kv-cache-gib", "0.5") as (_, url):
        load = asyncio.run(ask_server(url, requests, 20, stream=True))
    with open_engine(tiny_pair(), EngineSpec(backend="vllm", kv_cache_gib=0.5)) as engine:
        ours = {(r.request.problem, r.request.sample): [*r.token_ids] for r in engine.generate(requests)}
    same = sum(load.answers[key] == ids for key, ids in ours.items())
    return {
        "ok": same >= 0.98 * len(ours), "same": same, "of": len(ours), "seconds_of_streams": round(load.seconds, 2),
        "slowest_first_token_s": round(max(load.first), 3),
    }  # fmt: skip


def plain_speed(pair: Pair, settings: Findings) -> Findings:
    """Measure the tokens per second of RL alone in plain vLLM, without our code except the weights."""
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    from rlvr_dir.decode.vllm_pair.arguments import DEFAULT_GRAPHS

    began = time.monotonic()
    if current_platform.is_cpu():  # as our engine does there: in this process, with a cache that does not take it all
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        settings["vllm_args"]["kv_cache_memory_bytes"] = 2**30
    elif settings["max_num_seqs"] > DEFAULT_GRAPHS:  # as our engine does: a graph for every full batch
        settings["vllm_args"]["max_cudagraph_capture_size"] = -(-settings["max_num_seqs"] // 16) * 16
    arguments = {name: settings[name] for name in ("dtype", "max_num_seqs", "max_model_len", "enforce_eager")}
    llm = LLM(pair.rl, disable_log_stats=True, **arguments, **settings["vllm_args"])
    started = time.monotonic() - began
    prompts: list[Any] = [{"prompt_token_ids": ids} for ids in _long_prompts(llm.get_tokenizer(), settings)]

    def decode(top_p: float) -> Callable[[int], tuple[int, int]]:
        params = SamplingParams(temperature=1.0, top_p=top_p, max_tokens=settings["tokens"], detokenize=False)

        def run(count: int) -> tuple[int, int]:
            done = llm.generate([prompts[i % 30] for i in range(count)], params, use_tqdm=False)
            return sum(len(output.outputs[0].token_ids) for output in done), 0

        return run

    sizes = _timed(decode(1.0), settings["sequences"])  # no nucleus, so no sampler is slow
    truncated = _timed(decode(0.7), settings["sequences"])
    return {"ok": None, "sizes": sizes, "sizes_top_p": truncated, "start_s": round(started, 1), **_cache(llm, 1)}


def decision(pair: Pair, settings: Findings) -> Findings:
    """Check the kernels of Algorithm 1 and time them and torch; without a GPU check them in Triton's interpreter."""
    import torch

    from benchmarks.kernels import kernels_right, on_gpu

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
        found = kernels_right(32, 500, 12, torch.float32, "cpu")
        return {"ok": found["right"], **found}
    found = on_gpu(rows=tuple(settings["rows"]), say=lambda text: print(text, file=sys.stderr, flush=True))
    return {"ok": found["right"], **found}


CHECKS: dict[str, Callable[[Pair, Findings], Findings]] = {
    each.__name__: each
    for each in (logits, gates, self_test, law, shuffle, speed, plain_speed, memory, serve, decision)
}


# Shared functions ------------------------------------------------------------------------------------------------


def _open(pair: Pair, settings: Findings) -> Any:
    fields = {name: value for name, value in settings.items() if name in EngineSpec.model_fields}
    return open_engine(pair, EngineSpec(**{"backend": "vllm", "dtype": "float32", "self_test": False, **fields}))


def _texts(count: int, decoding: Decoding, sampling: Sampling, kinds: int = 30) -> list[Any]:
    """Make `count` requests of `kinds` different prompts, each with its own noise."""
    return [Request(TEXT.format(i % kinds, 3 + i % kinds), f"check/{i}", 0, decoding, sampling) for i in range(count)]


def _long_prompts(tokenizer: Any, settings: Findings) -> list[list[int]]:
    """Make 30 prompts, each repeated up to the tokens of `prompt`, where that is set."""
    texts = [tokenizer.encode(TEXT.format(i, 3 + i)) for i in range(30)]
    return [(ids * -(-length // len(ids)))[:length] for ids in texts if (length := settings.get("prompt") or len(ids))]


def _prompts(engine: Any, name: str, count: int, tokens: int) -> list[Any]:
    """Make `count` requests of PROMPT random tokens, base and RL in turn."""
    draw = np.random.default_rng(len(name))
    ids = [tuple(draw.integers(4, engine.checkpoints.vocab_size, PROMPT).tolist()) for _ in range(count)]
    modes: tuple[Mode, ...] = ("base", "rl")
    sampling = Sampling(top_p=0.95, max_tokens=tokens)
    return [
        Request("", f"{name}/{i}", 0, Decoding(mode=modes[i % 2]), sampling, prompt_token_ids=each)
        for i, each in enumerate(ids)
    ]


class _Arrivals:
    """Return requests one by one: an engine asks once per step, and gets one every so many steps."""

    def __init__(self, requests: list[Any], every: int) -> None:
        self.requests, self.every, self.asked = iter(requests), every, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if self.asked % self.every != 1:
            raise StopIteration
        return next(self.requests)


def _facts(engine: Any) -> Findings:
    """Describe what ran: the engine's own facts, and what vLLM chose."""
    config = engine._engine.vllm_config
    compilation = config.compilation_config
    return {
        **engine.info(),
        "runner": "V2" if getattr(config, "use_v2_model_runner", False) else "V1",
        "cudagraph_mode": str(compilation.cudagraph_mode),
        "largest_graph": compilation.max_cudagraph_capture_size,
    }


def _timed(decode: Callable[[int], tuple[int, int]], sequences: list[int]) -> dict[int, Findings]:
    """Measure tokens per second by number of sequences; the first round of each compiles kernels and is not counted."""
    sizes = {}
    for count in sequences:
        decode(count)
        began = time.perf_counter()
        written, replaced = decode(count)
        spent = time.perf_counter() - began
        sizes[count] = {
            "tokens": written, "seconds": round(spent, 3), "tokens_per_second": round(written / spent, 1),
            "ms_a_step": round(1000 * spent * count / written, 2), "replaced": round(replaced / written, 4),
        }  # fmt: skip
    return sizes


def _cache(llm: Any, models: int) -> Findings:
    """Describe vLLM's KV cache: tokens, and bytes per token according to the shapes."""
    config = llm.llm_engine.vllm_config
    model, cache = config.model_config.hf_config, config.cache_config
    head = getattr(model, "head_dim", None) or model.hidden_size // model.num_attention_heads
    size = 4 if "float32" in str(config.model_config.dtype) else 2
    token = models * model.num_hidden_layers * 2 * model.num_key_value_heads * head * size
    room = (cache.num_gpu_blocks or 0) * cache.block_size
    return {"kv_bytes_a_token": token, "kv_tokens": room, "kv_gib": round(room * token / 2**30, 2)}


def _end_with_parent() -> None:
    """Kill this process and those it started when the checklist is gone, for whatever reason."""
    import signal

    os.read(0, 1)  # nothing is ever written: it returns when the other end, the checklist's, is closed
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")  # engines print to standard output
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = 0
    try:
        outcome = CHECKS[sys.argv[1]](Pair.model_validate_json(sys.argv[2]), json.loads(sys.argv[3]))
        print(json.dumps(outcome), file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)  # so that nothing at the end of the process can lose the answer

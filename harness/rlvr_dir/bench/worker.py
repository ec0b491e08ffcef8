"""Run one engine in one process, which receives its work round by round.

    python -m rlvr_dir.bench.worker {single|pair|transformers|stock|calls} BASE RL TOKENS

It reads a round's number and a number of sequences per line from standard input and replies with one JSON line: tokens,
CPU seconds (user + system of this process and those it started) and wall seconds of that round's generation, without
loading.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling

PROMPTS = 30
TEXT = "Problem {}: let a be the sum of the first {} integers. What is a squared? Reason step by step, then answer."
DECODING = Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)


def main(kind: str, base: str, rl: str, tokens: int) -> None:
    """Load the engine, report that, and serve rounds until the input closes."""
    answers = os.fdopen(os.dup(1), "w")  # engines print to standard output
    os.dup2(2, 1)
    start = {"single": _single, "pair": _engine, "transformers": _engine, "stock": _engine, "calls": _calls}[kind]
    run = start(kind, Pair(base=base, rl=rl), tokens)
    print(json.dumps({"ready": kind}), file=answers, flush=True)
    for line in sys.stdin:
        before, clock = _cpu_seconds(), time.monotonic()
        generated = run(*map(int, line.split()))
        tick = 1 / os.sysconf("SC_CLK_TCK")  # the system's unit of CPU time; less than one tick is read as 0
        cpu, wall = max(tick, _cpu_seconds() - before), time.monotonic() - clock
        print(json.dumps({"tokens": generated, "cpu": cpu, "wall": wall}), file=answers, flush=True)


def _cpu_seconds() -> float:
    """Return the processor seconds of this process and its living children."""
    import psutil

    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(used.user + used.system for used in times)


def _settings(kind: str) -> EngineSpec:
    return EngineSpec(
        backend="transformers" if kind in ("transformers", "stock") else "vllm",
        dtype="float32",
        max_num_seqs=256,
        enforce_eager=True,
        block_size=32 if kind not in ("transformers", "stock") else None,
        device="cpu",
        self_test=False,
    )


def _engine(kind: str, pair: Pair, tokens: int) -> Callable[[int, int], int]:
    from rlvr_dir.decode import Request, open_engine

    engine = _stock(pair, _settings(kind)) if kind == "stock" else open_engine(pair, _settings(kind))

    def run(number: int, sequences: int) -> int:
        sampling = Sampling(max_tokens=tokens, seed=number)
        requests = [
            Request(TEXT.format(i % PROMPTS, 3 + i % PROMPTS), f"bench/{i % PROMPTS}", i // PROMPTS, DECODING, sampling)
            for i in range(sequences)
        ]
        return sum(rollout.n_tokens for rollout in engine.generate(requests))

    return run


def _stock(pair: Pair, spec: EngineSpec) -> Any:
    """Build the transformers pair with transformers' own attention and caches, the simplest such loop."""
    from transformers import DynamicCache

    from rlvr_dir.decode.transformers_pair import TransformersPair

    class Stock(TransformersPair):
        def prepare(self, model: Any) -> Any:
            return model

        def new_cache(self) -> Any:
            return DynamicCache()

    engine = Stock(pair, spec)
    engine.start()
    return engine


def _llm(kind: str, checkpoint: str) -> Any:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    from rlvr_dir.decode.vllm_pair.engine import ALONE

    spec = _settings(kind)
    return LLM(
        checkpoint,
        distributed_executor_backend=ALONE,  # otherwise processes that wait for each other would count as decoding
        dtype=spec.dtype,
        max_num_seqs=spec.max_num_seqs,
        enforce_eager=bool(spec.enforce_eager),
        block_size=spec.block_size,
        kv_cache_memory_bytes=2**30,  # half the pair's, for as many tokens
        disable_log_stats=True,
        max_logprobs=50,
    )


def _prompts(tokenizer: Any, sequences: int) -> list[list[int]]:
    texts = [tokenizer.encode(TEXT.format(i, 3 + i)) for i in range(PROMPTS)]
    return [texts[i % PROMPTS] for i in range(sequences)]


def _single(kind: str, pair: Pair, tokens: int) -> Callable[[int, int], int]:
    """Load the RL model alone, as in plain vLLM: its own sampler, without statistics."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    llm = _llm(kind, pair.rl)
    from vllm import SamplingParams

    def run(number: int, sequences: int) -> int:
        prompts = [{"prompt_token_ids": ids} for ids in _prompts(llm.get_tokenizer(), sequences)]
        params = SamplingParams(temperature=1.0, top_p=0.7, max_tokens=tokens, detokenize=False)
        return sum(len(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False))

    return run


def _calls(kind: str, pair: Pair, tokens: int) -> Callable[[int, int], int]:
    """Load two engines for the published method: a call requests one token and the 50 largest log-probabilities from
    each.

    It decodes a quarter of the tokens. Its calls become more expensive with length, so this favours it, and it is slow.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"  # two engines do not fit into one process
    llms = [_llm(kind, checkpoint) for checkpoint in (pair.base, pair.rl)]
    import numpy as np
    from vllm import SamplingParams

    def run(number: int, sequences: int) -> int:
        texts = [list(ids) for ids in _prompts(llms[0].get_tokenizer(), sequences)]
        draw, written = np.random.default_rng(number), 0
        for _ in range(max(1, tokens // 4)):
            params = SamplingParams(temperature=1.0, top_p=0.7, max_tokens=1, logprobs=50, detokenize=False)
            prompts = [{"prompt_token_ids": ids} for ids in texts]
            base, rl = ([output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)] for llm in llms)
            for ids, proposal, target in zip(texts, base, rl, strict=True):
                token = proposal.token_ids[0]
                ours, second = (
                    {i: logprob.logprob for i, logprob in out.logprobs[0].items()} for out in (proposal, target)
                )
                if token not in second or second[token] - ours[token] < DECODING.tau:
                    names = np.array([i for i in second if i in ours] or [token])
                    beyond = np.array([second.get(i, 0) + DECODING.gamma * (second.get(i, 0) - ours[i]) for i in names])
                    weights = np.exp(beyond - beyond.max())
                    order = np.argsort(-weights)
                    kept = order[: 1 + np.searchsorted(np.cumsum(weights[order]), 0.7 * weights.sum())]
                    token = int(draw.choice(names[kept], p=weights[kept] / weights[kept].sum()))
                ids.append(token)
                written += 1
        return written

    return run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

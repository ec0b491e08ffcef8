"""One engine in one process, told round by round what to decode.

    python -m harness.bench.worker {single|pair|transformers} BASE RL SEQUENCES TOKENS

Reads a round's number per line from standard input and answers with one JSON line: tokens, CPU seconds (user +
system of this process) and wall seconds of that round's generation, loading excluded.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable

from harness.spec import Decoding, EngineSpec, Pair, Sampling

PROMPTS = 30
TEXT = "Problem {}: let a be the sum of the first {} integers. What is a squared? Reason step by step, then answer."
DECODING = Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)


def main(kind: str, base: str, rl: str, sequences: int, tokens: int) -> None:
    """Loads the engine, says so, and serves rounds until its input closes."""
    answers = os.fdopen(os.dup(1), "w")  # engines print to standard output
    os.dup2(2, 1)
    start = {"single": _single, "pair": _engine, "transformers": _engine}[kind]
    run = start(kind, Pair(base=base, rl=rl), sequences, tokens)
    print(json.dumps({"ready": kind}), file=answers, flush=True)
    for line in sys.stdin:
        before, clock = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        generated = run(int(line))
        after, wall = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - clock
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(json.dumps({"tokens": generated, "cpu": cpu, "wall": wall}), file=answers, flush=True)


def _settings(kind: str, sequences: int) -> EngineSpec:
    return EngineSpec(
        backend="transformers" if kind == "transformers" else "vllm",
        dtype="float32",
        max_num_seqs=min(sequences, 256),
        enforce_eager=True,
        block_size=32 if kind != "transformers" else None,
        device="cpu",
        self_test=False,
    )


def _engine(kind: str, pair: Pair, sequences: int, tokens: int) -> Callable[[int], int]:
    from harness.decode import Request, open_engine

    engine = open_engine(pair, _settings(kind, sequences))

    def run(number: int) -> int:
        sampling = Sampling(max_tokens=tokens, seed=number)
        requests = [
            Request(TEXT.format(i % PROMPTS, 3 + i % PROMPTS), f"bench/{i % PROMPTS}", i // PROMPTS, DECODING, sampling)
            for i in range(sequences)
        ]
        return sum(rollout.n_tokens for rollout in engine.generate(requests))

    return run


def _single(kind: str, pair: Pair, sequences: int, tokens: int) -> Callable[[int], int]:
    """The RL model alone, as one would run it in vLLM: its own sampler, no statistics asked for."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams

    spec = _settings(kind, sequences)
    llm = LLM(
        pair.rl,
        dtype=spec.dtype,
        max_num_seqs=spec.max_num_seqs,
        enforce_eager=spec.enforce_eager,
        block_size=spec.block_size,
        kv_cache_memory_bytes=2**30,  # half the pair's: as many tokens
        disable_log_stats=True,
    )
    tokenizer = llm.get_tokenizer()
    prompts = [
        {"prompt_token_ids": tokenizer.encode(TEXT.format(i % PROMPTS, 3 + i % PROMPTS))} for i in range(sequences)
    ]

    def run(number: int) -> int:
        params = SamplingParams(temperature=1.0, top_p=0.7, max_tokens=tokens, detokenize=False)
        return sum(len(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False))

    return run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))

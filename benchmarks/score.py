"""Scoring given texts by both engines: tokens per second of processor time, and how far their numbers are apart.

python -m benchmarks.score
python -m benchmarks.score --dtype bfloat16 --texts 50 --length 1500
"""

import time
from collections.abc import Callable
from datetime import date
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine


def bench_score(
    *,
    texts: int = 1000,
    length: int = 0,
    dtype: str = "float32",
    who: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Score responses of the tiny pair with transformers and by prefill in vLLM, each in this process.

    Args:
        texts: how many.
        length: tokens of each, made of responses that are joined and cut. 0: the responses to their prompts.
        dtype: what both engines compute in.
        who: whether likelihoods at other settings are computed, too.
        say: is told how far the run is.

    Returns:
        A plain object: tokens per second of processor time by engine (`speed`), and of vLLM's numbers less those of
        transformers the largest absolute difference, its 99.9 % quantile and the root mean square (`apart`), of Δ log p
        and of KL(RL ‖ base) in nats, with the share of ranks that are equal.
    """
    import os

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # or its time would be another process's
    import numpy as np
    import torch

    from rlvr_dir.analysis.who import settings_of
    from rlvr_dir.config import Decoding, EngineSpec, Sampling, parse
    from rlvr_dir.decode import Request, open_engine
    from rlvr_dir.decode.types import GivenText
    from rlvr_dir.policy.given import Scoring
    from rlvr_dir.policy.trace import FACTS
    from rlvr_dir.problems.data import preflight
    from rlvr_dir.tiny import tiny_pair

    torch.set_num_threads(1)
    scoring = Scoring(1.0, settings_of((1.0, 1.0)) if who else ())
    tables: dict[str, list[np.ndarray]] = {}
    speed: dict[str, int] = {}
    given: list[GivenText] = []
    for backend in ("transformers", "vllm"):
        spec = parse(EngineSpec, {"backend": backend, "dtype": dtype, "enforce_eager": True, "self_test": False})
        spec = spec if backend == "transformers" else spec.replace(max_num_seqs=min(256, texts))
        with open_engine(tiny_pair(), spec, lazily=True) as engine:
            if not given:
                say("writing")
                [benchmark] = preflight(["tiny_medium"], None).values()
                sampling, needed = Sampling(max_tokens=96), texts * length
                asked = [[{"role": "user", "content": problem["problem"]}] for problem in benchmark.problems]
                requests = [
                    Request(engine.chat_prompt(prompt), f"x/{i}", sample, Decoding(mode=mode), sampling)
                    for sample in range(max(needed // 20_000, texts // (2 * len(asked))) + 1)
                    for mode in ("base", "rl")
                    for i, prompt in enumerate(asked)
                ]
                done = list(engine.generate(requests))
                ids = [token for rollout in done for token in rollout.token_ids]
                ids = (ids * (needed // len(ids) + 1))[:needed]
                given = [
                    GivenText(f"line {i}", (1,), tuple(ids[i * length : (i + 1) * length]))
                    if length
                    else GivenText(f"line {i}", rollout.prompt_token_ids, rollout.token_ids)
                    for i, rollout in enumerate(done[:texts])
                ]
            list(engine.score(given[:3], scoring))
            say(f"scoring by {backend}")
            began = time.process_time()
            found = dict(engine.score(given, scoring))
            seconds, tokens = time.process_time() - began, sum(len(text.tokens) for text in given)
            speed[backend] = round(tokens / seconds)
            tables[backend] = [found[i] for i in range(len(given))]
    ours, theirs = (np.concatenate(tables[name]).astype(float) for name in ("vllm", "transformers"))
    column = {name: i for i, name in enumerate(FACTS)}
    off = ours - theirs
    apart = {
        "delta_logp": off[:, column["logp_rl"]] - off[:, column["logp_base"]],
        "kl_rl_base": off[:, column["kl_rl_base"]],
    }
    ranks = [column["rank_base"], column["rank_rl"]]
    return {
        "speed": speed,
        "tokens": sum(len(text.tokens) for text in given),
        "apart": {name: [float(f"{x:.2g}") for x in _sizes(values)] for name, values in apart.items()},
        "equal ranks": round(float((off[:, ranks] == 0).mean()), 6),
        "settings": {"texts": texts, "length": length, "dtype": dtype, "who": who},
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _sizes(values: Any) -> tuple[float, float, float]:
    """Return the largest absolute value, the 99.9 % quantile, and the root mean square."""
    import numpy as np

    size = np.abs(values)
    return float(size.max()), float(np.quantile(size, 0.999)), float(np.sqrt((size**2).mean()))


if __name__ == "__main__":
    run(bench_score)

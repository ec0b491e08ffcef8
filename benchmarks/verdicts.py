"""Count the verdicts on stale weights: step 4 of the tiny pair writes at top-p 0.7, and step 6 is claimed to have."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.script import run
from rlvr_dir.analysis.score import score
from rlvr_dir.analysis.who import settings_of, who_wrote
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import Decoding, EngineSpec, Sampling, parse
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.problems.data import preflight
from rlvr_dir.tiny import tiny_pair


def bench_verdicts(
    *,
    texts: int = 300,
    tests: int = 200,
    written: str = "bfloat16",
    scored: str = "bfloat16",
    backend: str = "vllm",
    top_p: float = 0.7,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Let step 4 write texts, score them with base, step 4 and step 6, and read them in random orders.

    Args:
        texts: how many are written.
        tests: random orders, in which texts are drawn with repetition.
        written, scored: the types of numbers in which the texts are written and scored.
        backend: of both.
        top_p: at which they are written.
        say: is told how far the run is.

    Returns:
        A plain object: how often each verdict was reached, and after how many tokens (median and 90 %).
    """
    whole = tiny_pair()
    steps = {name: str(Path(whole.base).with_name(name)) for name in ("step-4", "step-6")}
    [benchmark] = preflight(["tiny_medium"]).values()
    prompts = [problem["problem"] for problem in benchmark.problems]
    asked = [
        Request(prompts[i % len(prompts)], f"{i}", i, Decoding(mode="rl"), Sampling(max_tokens=128, top_p=top_p))
        for i in range(texts)
    ]
    claimed = 1.0, top_p
    with tempfile.TemporaryDirectory() as place:
        say("writing")
        engine = {"backend": backend, "enforce_eager": True}
        with open_engine(whole.replace(rl=steps["step-4"]), parse(EngineSpec, {**engine, "dtype": written})) as writer:
            rows = [
                {"prompt_ids": list(rollout.prompt_token_ids), "completion_ids": list(rollout.token_ids)}
                for rollout in writer.generate(asked)
            ]
        file = Path(place, "texts.jsonl")
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        say("scoring")
        pair, candidates = whole.replace(rl=steps["step-6"]), {"step-4": steps["step-4"]}
        how = {"candidates": candidates, "top_p": top_p, "engine": {**engine, "dtype": scored}}
        scores = score(pair, file, out=Path(place, "out"), **how)
    random, found = np.random.default_rng(0), list[Any]()
    for _ in range(tests):
        order = random.integers(0, len(scores.texts), len(scores.texts))
        models = {name: np.concatenate([each[i] for i in order]) for name, each in scores.likelihoods.items()}
        found.append(who_wrote(models, settings_of(claimed), claimed))
    counts = Counter(f"{verdict.kind}: {verdict.name}" for verdict in found)
    needed = [verdict.tokens for verdict in found if verdict.kind == "wrote"]
    middle = [int(np.quantile(needed, q)) for q in (0.5, 0.9)] if needed else []
    return {"verdicts": dict(counts), "tokens": middle, "machine": machine(), "date": date.today().isoformat()}


if __name__ == "__main__":
    run(bench_verdicts)

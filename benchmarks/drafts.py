"""Measure what drafts save: passes of each model for a token, by decoding and k, and the speed, all in one run."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Sampling
from rlvr_dir.config.pair import Pair
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.lock_step import LockStep
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import markdown_table
from rlvr_dir.problems.prompts import prompt_sets

DECODINGS = {
    "base": Decoding(mode="base"),
    "replace, τ = -0.3": Decoding(mode="replace", tau=-0.3),
    "reject, τ = -0.3": Decoding(mode="reject", tau=-0.3),
    "extrapolate on RL": Decoding(mode="extrapolate", primary="rl", tau=-0.1, gamma=0.1),
    "coupling": Decoding(mode="replace", criterion="coupling"),
    "rl": Decoding(mode="rl"),
}


def bench_drafts(
    *,
    pair: str = "tiny",
    task: str = "tiny_medium",
    limit: int = 60,
    tokens: int = 128,
    drafts: tuple[int, ...] = (0, 2, 4, 8, 16),
    rows: tuple[int, ...] = (1, 16, 60),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Decode the same problems in lock-step (0) and with drafts, and check that no token differs.

    Args:
        pair: a name, or a folder with `base` and `rl`.
        task: a benchmark.
        limit: problems of it, one sample each.
        tokens: the most of a response.
        drafts: values of k. The first is compared with.
        rows: responses decoded at once; the first is measured for each decoding alone, all for all decodings together.
        say: is told how far the run is.

    Raises:
        UserError: a token differs.
    """
    models = resolve(Pair.of_folder(pair) if pair != "tiny" else pair)
    counted, read = Counter[str](), LockStep.read
    found: list[dict[str, Any]] = []

    def counting(self: LockStep, role: str, *args: Any, **kwargs: Any) -> Any:
        counted[role] += 1
        return read(self, role, *args, **kwargs)

    LockStep.read = counting
    spec = EvalSpec(pair=models, tasks=(task,), limit=limit, decodings=tuple(DECODINGS.values()))
    asked = [(name, rows[0]) for name in DECODINGS] + [("all together", each) for each in rows]
    for name, size in asked:
        expected, speeds = None, dict[int, float]()
        for k in drafts:
            engine_spec = EngineSpec(backend="transformers", dtype="float32", draft=k, max_num_seqs=size)
            with open_engine(models, engine_spec) as engine:
                [prompts] = prompt_sets(spec, engine)
                ways = list(DECODINGS.values()) if name == "all together" else [DECODINGS[name]]
                requests = [
                    Request(text, f"{task}/{key}", 0, ways[i % len(ways)], Sampling(max_tokens=tokens, top_p=0.7))
                    for i, (key, text) in enumerate(prompts.prompts.items())
                ]
                engine.start()
                counted.clear()
                began = time.process_time()
                rollouts = list(engine.generate(requests))
                seconds = time.process_time() - began
            written = {rollout.request.problem: rollout.token_ids for rollout in rollouts}
            if expected is not None and written != expected:
                raise UserError("changes a token", argument="draft", value=k)
            expected, n = written, sum(rollout.n_tokens for rollout in rollouts)
            speeds[k] = n / seconds
            row = {
                "decoding": name,
                "rows": size,
                "k": k,
                "tokens": n,
                "speed": round(speeds[k] / speeds[drafts[0]], 2),
            }
            row |= {role: round(count * min(size, len(requests)) / n, 2) for role, count in counted.items()}
            row["changed"] = round(sum(rollout.n_changed for rollout in rollouts) / n, 3)
            found.append(row)
            say(str(row))
    LockStep.read = read
    return {"rows": found, "machine": machine(), "date": date.today().isoformat()}


def show(found: dict[str, Any]) -> str:
    """Return a table; passes are of a row, so a batch that ends raggedly has more than its tokens."""
    head = ["decoding", "rows", "k", "changed", "passes of base", "of RL", "together", "speed"]
    cells = [
        [
            row["decoding"], str(row["rows"]), str(row["k"]), f"{row['changed']:.1%}", f"{row['base']:.2f}",
            f"{row['rl']:.2f}", f"{row['base'] + row['rl']:.2f}", f"x{row['speed']:.2f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    return f"{found['machine']}, {found['date']}\n\n{markdown_table(head, cells, left=1)}"


if __name__ == "__main__":
    run(bench_drafts, show)

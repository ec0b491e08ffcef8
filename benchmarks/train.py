"""Measure the cost of reweighting advantages, compared with plain DAPO: trainings of the tiny base in turn, in one
run."""

import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import parse
from rlvr_dir.policy.reweighting import PLAIN, reweightings

COMPARED = tuple(name for name in reweightings() if name != PLAIN)
SIZES = {"steps": 3, "prompts": 8, "samples": 8, "minibatches": 2, "max_response_tokens": 64}


def bench_train(
    *,
    methods: Sequence[str] = COMPARED,
    rounds: int = 3,
    threads: int = 1,
    sizes: dict[str, int] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train plain DAPO and each method with alpha 0, which does exactly the same work, in turn.

    Args:
        rounds: Measured rounds, after one to warm up.
        threads: Torch's threads.
        sizes: The sizes of a training, as in `DapoSettings`; by default 3 steps of 8 x 8 responses.
        say: Called with the progress.

    Returns:
        A plain object: `shares` by method, the reweighting's part of the time of its trainings, measured inside;
            `ratios`, processor time of reweighted divided by that of plain trainings, including the machine's noise;
            `seconds` of processor time of both; `machine`, `settings`.
    """
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_dir.tiny import tiny_pair
    from rlvr_dir.tiny.problems import rl_problems
    from rlvr_dir.train import DapoSettings

    base, settings = tiny_pair().base, parse(DapoSettings, sizes or SIZES)
    found: dict[str, Any] = {"shares": {}, "ratios": {}, "seconds": {}}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    try:
        for method in methods:
            say(method)
            cost = reweighting_cost(
                lambda: AutoModelForCausalLM.from_pretrained(base),
                AutoTokenizer.from_pretrained(base),
                rl_problems(0, 200),
                settings,
                method=method,
                rounds=rounds,
            )
            found["shares"][method] = round(cost["inside"], 5)
            found["ratios"][method] = round(1 + cost["ratio"], 4)
            found["seconds"][method] = [round(cost[f"{kind}_seconds"], 2) for kind in ("plain", "reweighted")]
    finally:
        torch.set_num_threads(before)
        transformers.utils.logging.enable_progress_bar()
    asked = {**settings.model_dump(include=set(SIZES)), "rounds": rounds, "threads": threads}
    return {**found, "settings": asked, "machine": machine(), "date": date.today().isoformat()}


def reweighting_cost(
    load: Callable[[], Any],
    tokenizer: Any,
    problems: Sequence[dict[str, Any]],
    settings: Any,
    *,
    method: str = "low_prob",
    rounds: int = 3,
) -> dict[str, float]:
    """Train plain DAPO and `method` with alpha 0 in turn, `rounds` times, after one round to warm up.

    With alpha = 0 a reweighted run equals plain DAPO bit for bit, so the difference of their times is the reweighting
    and the noise of the machine. The time spent in the reweighting itself, measured inside, has little noise.

    Args:
        load: Returns a fresh copy of the model.

    Returns:
        `inside`: the reweighting's share of the time of its steps; `ratio`: processor time of the reweighted runs
            divided by that of the plain ones, minus 1; `plain_seconds` and `reweighted_seconds` of processor time.
    """
    from rlvr_dir.train.dapo import make_trainer

    plain = settings.replace(method="none")
    reweighted = plain.replace(method=method, alpha=0.0, clip_high=plain.clip_high)
    spent = {"none": 0.0, method: 0.0}
    inside = whole = 0.0
    for turn in range(rounds + 1):
        for each in (plain, reweighted):
            with tempfile.TemporaryDirectory() as scratch:
                trainer = make_trainer(load(), tokenizer, problems, each, scratch)
                began, wall = time.process_time(), time.perf_counter()
                trainer.train()
                if turn:
                    spent[each.method] += time.process_time() - began
                    if each is reweighted:
                        inside += trainer.tally.reweighting_seconds
                        whole += time.perf_counter() - wall
    return {
        "inside": inside / whole,
        "ratio": spent[method] / spent["none"] - 1,
        "plain_seconds": spent["none"],
        "reweighted_seconds": spent[method],
    }


if __name__ == "__main__":
    run(bench_train, without=("sizes",))

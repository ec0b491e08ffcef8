"""Cost of reweighting advantages beside plain DAPO: whole trainings of the tiny base in turn, in one run."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from benchmarks.script import run
from harness.bench.decode import machine
from harness.spec import parse

COMPARED = ("low_prob", "dominate", "ppl")
SIZES = {"steps": 3, "prompts": 8, "samples": 8, "minibatches": 2, "max_response_tokens": 64}


def bench_train(
    *,
    methods: Sequence[str] = COMPARED,
    rounds: int = 3,
    threads: int = 1,
    sizes: dict[str, int] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train plain DAPO and each method with alpha 0, which does the same work to the bit, in turn.

    Args:
        rounds: measured, after one that warms up.
        threads: of torch.
        sizes: of a training, as in `DapoSettings`; default 3 steps of 8 x 8 responses.
        say: is told how far the run is.

    Returns:
        A plain object: `shares` by method, the reweighting's part of the time of its trainings, measured inside;
        `ratios`, processor time of reweighted by that of plain trainings, with the machine's noise in it; `seconds` of
        processor time of both; `machine`, `settings`.
    """
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from harness.tiny import tiny_pair
    from harness.tiny.recipe import rl_problems
    from harness.train import DapoSettings, reweighting_cost

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


if __name__ == "__main__":
    run(bench_train, without=("sizes",))

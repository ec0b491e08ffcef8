"""What reweighting costs beside plain DAPO, measured in one run on the very same work.

With alpha = 0 a reweighted run follows plain DAPO to the bit: the same rollouts, the same updates. So the two are
trained in turn, and the difference of their times is the reweighting and the noise of the machine; the time spent in
the reweighting itself, taken inside, has little noise.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from harness.train.dapo import make_trainer
from harness.train.settings import DapoSettings


def reweighting_cost(
    load: Callable[[], PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[dict[str, Any]],
    settings: DapoSettings,
    *,
    method: str = "low_prob",
    rounds: int = 3,
) -> dict[str, float]:
    """Train plain DAPO and `method` with alpha 0 in turn, `rounds` times, after one round that warms up.

    Args:
        load: gives a fresh copy of the model.

    Returns:
        `inside`: the reweighting's share of the time of its steps; `ratio`: processor time of the reweighted runs by
        that of the plain ones, minus 1; `plain_seconds` and `reweighted_seconds` of processor time.
    """
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

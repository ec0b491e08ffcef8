"""Results without an engine: any decoding, seed and size."""

import numpy as np

from harness.evals import EvalResult
from harness.spec import Decoding, Sampling

EXTRA = Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)
GRID = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="replace", tau=-0.3),
    EXTRA,
    Decoding(mode="extrapolate", tau=-0.1, gamma=0.1),
)


def result(decoding=EXTRA, samples=4, problems=3, seed=0, task="aime24", **provenance):
    """One problem of three solved, nine tokens a response, one of them replaced where a criterion was asked."""
    zero = np.zeros((problems, samples), int)
    correct = zero.copy()
    correct[0] = 1
    pair = {"base": "Qwen/B", "rl": "org/R", "base_revision": None}
    return EvalResult(
        task=task,
        decoding=decoding,
        sampling=Sampling(samples=samples, seed=seed),
        problem_ids=tuple(f"p{i}" for i in range(problems)),
        values={"correct": correct},
        n_tokens=zero + 9,
        n_replaced=zero + int(decoding.gated),
        n_changed=zero,
        truncated=zero,
        no_box=zero,
        ungraded=zero,
        seconds=2.0,
        provenance={
            "engine": {"pair": pair},
            "data": "0123456789abcdef",
            "grader": "plain",
            "versions": {"rlvr-dir": "0.1.0"},
            "argv": ["bin/rlvr-dir", "eval", "--tasks", task],
            **provenance,
        },
    )

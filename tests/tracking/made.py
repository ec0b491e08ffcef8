"""Results without an engine: any decoding, seed and size."""

import numpy as np

from rlvr_dir.config import Decoding, Sampling
from tests.results.made import made

EXTRA = Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)
GRID = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="replace", tau=-0.3),
    EXTRA,
    Decoding(mode="extrapolate", tau=-0.1, gamma=0.1),
)


def result(decoding=EXTRA, samples=4, problems=3, seed=0, task="aime24", **provenance):
    """The first problem is solved, the others never."""
    correct = np.zeros((problems, samples), int)
    correct[0] = 1
    about = {
        "engine": {"pair": {"base": "Qwen/B", "rl": "org/R", "base_revision": None}}, "data": "0123456789abcdef",
        "grader": "plain", "versions": {"rlvr-dir": "0.1.0"}, "argv": ["bin/rlvr-dir", "eval", "--tasks", task],
    }  # fmt: skip
    how = {"task": task, "sampling": Sampling(samples=samples, seed=seed), "seconds": 2.0}
    return made(decoding, correct, provenance={**about, **provenance}, **how)

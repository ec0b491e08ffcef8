"""Results without an engine."""

import numpy as np

from rlvr_dir.config import Sampling
from rlvr_dir.results import EvalResult


def made(decoding, correct, **fields):
    """A result with these verdicts, (problems, samples): nine tokens a response, one replaced where there is a gate."""
    correct = np.asarray(correct)
    zero = np.zeros(correct.shape, int)
    usual = {
        "task": "aime24", "sampling": Sampling(samples=correct.shape[1]), "correct": correct,
        "problem_ids": tuple(f"p{i}" for i in range(len(correct))), "n_tokens": zero + 9,
        "n_replaced": zero + int(decoding.gated),
    }  # fmt: skip
    usual |= dict.fromkeys(("n_changed", "truncated", "no_box", "ungraded"), zero)
    return EvalResult(decoding=decoding, **{**usual, **fields})

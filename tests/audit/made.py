"""Frames whose numbers are known, in the shapes that claims read."""

from typing import Any

import numpy as np
import pandas
import torch

from rlvr_dir.audit.tokens import traced_tokens
from rlvr_dir.policy.trace import trace
from rlvr_dir.records import Row

VOCABULARY = 12
MARKS = tuple(range(6))  # ids of special tokens


def row(problem, sample, logits_base, logits_rl, proposed):
    """A traced response, and the log-probabilities of both models at each of its tokens."""
    lb, lr = (torch.log_softmax(logits.double(), -1) for logits in (logits_base, logits_rl))
    proposed = torch.as_tensor(proposed)
    table = trace(lb, lr, proposed, 10).numpy()
    delta = (lr - lb).gather(1, proposed[:, None])[:, 0].numpy()
    flags = np.zeros(len(delta), bool)
    made = Row.make(f"t/{problem}", sample, "", "stop", flags, flags, proposed.tolist(), (1,), delta, trace=table)
    return made, lb.numpy(), lr.numpy(), proposed.numpy()


def ten_tokens(seed=0, size=1.5):
    """Ten tokens of each model, in four responses to three problems: rows by owner, and what they are made of."""
    random = torch.Generator().manual_seed(seed)
    made = {"rl": [], "base": []}
    for owner in made:
        for problem, sample, n in (("a", 0, 3), ("a", 1, 2), ("b", 0, 4), ("c", 0, 1)):
            base = 2 * torch.randn(n, VOCABULARY, generator=random)
            rl = base + size * torch.randn(n, VOCABULARY, generator=random)
            proposed = torch.multinomial((rl if owner == "rl" else base).softmax(-1), 1, generator=random)[:, 0]
            made[owner].append(row(problem, sample, base, rl, proposed))
    right = {(owner, f"t/{problem}", sample): (problem, sample) in (("a", 0), ("c", 0)) for owner in made
             for problem, sample in (("a", 0), ("a", 1), ("b", 0), ("c", 0))}  # fmt: skip
    rows = {owner: [entry[0] for entry in of] for owner, of in made.items()}
    frame = traced_tokens(rows, right=right, marks=MARKS)
    return frame, {
        owner: [np.concatenate(part) for part in list(zip(*of, strict=True))[1:]] for owner, of in made.items()
    }


def responses(decoding, correct, *, tokens: Any = 10, no_box: Any = False, changed: Any = 0, replaced: Any = 0, **more):
    """Rows a response, as `rlvr_dir.responses` has them, of (problems, samples) verdicts."""
    correct = np.asarray(correct)
    problems, samples = np.indices(correct.shape)
    columns = {"correct": correct, "tokens": tokens, "no_box": no_box, "changed": changed, "replaced": replaced}
    columns |= {"truncated": False, "family": None, "vote": -1}
    values = {name: np.broadcast_to(value, correct.shape).ravel() for name, value in columns.items()}
    names = [f"p{i:03d}" for i in problems.ravel()]
    frame = {"decoding": decoding, "task": "t", "problem": names, "sample": samples.ravel(), **values, **more}
    return pandas.DataFrame(frame)

"""The tiny pair on the reference engine, and rollouts whose traces come straight from the definitions."""

import numpy as np
import pytest
import torch

from rlvr_dir.policy.trace import trace
from rlvr_dir.records import Row


@pytest.fixture(scope="session")
def tiny_engine():
    from rlvr_dir.config import EngineSpec
    from rlvr_dir.decode import open_engine
    from rlvr_dir.tiny import tiny_pair

    engine = open_engine(tiny_pair(), EngineSpec(backend="transformers"))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def made():
    """Twelve rollouts of four problems over a vocabulary of 30, and the log-probabilities behind each."""
    random = torch.Generator().manual_seed(0)
    rows = []
    for i in range(12):
        n = 5 + i
        logits = 2.5 * torch.randn(n, 30, generator=random)
        lb = torch.log_softmax(logits, -1)
        lr = torch.log_softmax(logits + 0.8 * torch.randn(n, 30, generator=random), -1)
        proposed = torch.multinomial(lb.exp(), 1, generator=random)[:, 0]
        flags = np.zeros(n, bool)
        table = trace(lb, lr, proposed, 10).numpy()
        delta = (lr - lb).gather(1, proposed[:, None])[:, 0].numpy()
        ids = tuple(proposed.tolist())
        rollout = Row.make(f"t/p{i % 4}", i // 4, "", "stop", flags, flags, ids, (1,), delta, trace=table)
        rows.append((rollout, lb, lr, proposed))
    return rows

"""What torch decides beside the kernels, on the `meta` device: shapes and operators as on a GPU, no numbers."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_dir.policy import fused
from rlvr_dir.policy.algorithm import Decision
from rlvr_dir.policy.fused import AT_ONCE, Work, decide_fused
from rlvr_dir.policy.rule import Rules
from rlvr_dir.policy.step import Requests
from tests.policy.rules import gate, rule

VOCAB = 3000
PLAIN = rule("delta_logp", tau=-0.1, gamma=0.1, top_p=0.9)
KINDS = {
    "js": replace(PLAIN, gate=gate("js", 0.1)),
    "coupling": replace(PLAIN, gate=gate("coupling")),
    "trace": replace(PLAIN, trace=3),
}


@pytest.fixture
def step(monkeypatch):
    """Decides n rows of which those at `at` are of a kind, the kernels left out; the same rules for the same rows."""

    def no_kernels(base, *_):
        n = len(base)
        number, flag = (torch.empty(n, dtype=dtype, device="meta") for dtype in (torch.long, torch.bool))
        nats = torch.empty(n, device="meta")
        return Decision(number, number, flag, nats, nats), torch.empty(n, 25, device="meta"), None

    monkeypatch.setattr(fused, "run_kernels", no_kernels)

    def make(kind, n, at):
        rules = Rules.compile([KINDS[kind] if i in at else PLAIN for i in range(n)], "meta")
        logits, numbers = torch.empty(n, VOCAB, device="meta"), torch.arange(n, device="meta")
        where = Requests(numbers, numbers, numbers)
        return lambda: decide_fused({"base": logits, "rl": logits}, rules, where)

    return make


class Shapes(TorchDispatchMode):
    """Notes how many rows each tensor has that is as wide as the vocabulary."""

    def __init__(self):
        super().__init__()
        self.rows = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(each, torch.Tensor) and each.dim() == 2 and each.shape[1] == VOCAB:
                self.rows.add(each.shape[0])
        return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 7, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE - 1])
def test_torch_sees_one_shape_whatever_the_batch(step, kind, n):
    """A sum of few rows is split otherwise than one of many; with one shape a row's bits do not tell of its batch."""
    for run in (step(kind, n, range(n)), step(kind, 100, range(n))):
        with Shapes() as seen:
            run()
        assert seen.rows == {AT_ONCE}


def test_rows_decided_apart_are_the_rows_that_ask_and_the_last_part_repeats_one():
    rows = [KINDS["js"] if i % 3 else PLAIN for i in range(50)]
    asked = [i for i in range(50) if i % 3]
    for device in ("cpu", "meta"):
        parts = Work.of(Rules.compile(rows, device)).parts
        assert [(len(part.rows.rows), part.meant) for part in parts] == [(32, 32), (1 if device == "cpu" else 32, 1)]
    assert [row for part in Work.of(Rules.compile(rows)).parts for row in part.rows.rows] == asked

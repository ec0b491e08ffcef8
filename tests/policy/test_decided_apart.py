"""What torch decides beside the kernels, on the `meta` device: shapes and operators as on a GPU, no numbers."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.bench.decision import watched
from harness.policy import Decision, History, Past, Rule, RuleRow, decide_fused, fused
from harness.policy.rule import AT_ONCE

VOCAB = 3000
PLAIN = RuleRow("delta_logp", tau=-0.1, gamma=0.1, top_p=0.9)
KINDS = {
    "min-p": replace(PLAIN, min_p=0.1, top_p=1.0),
    "typical": replace(PLAIN, typical_p=0.9, top_p=1.0),
    "js": replace(PLAIN, gate="js", tau=0.1),
    "guard": replace(PLAIN, min_p_rl=0.1),
    "coupling": replace(PLAIN, gate="coupling"),
    "renyi": RuleRow("never", renyi=True, temperature=0.25),
    "trace": PLAIN,
}


@pytest.fixture
def step(monkeypatch):
    """Decides n rows of which those at `at` are of a kind, the kernels left out; the same Rule for the same rows."""

    def no_kernels(base, rl, *_):
        n = len(base)
        number, flag = (torch.empty(n, dtype=dtype, device="meta") for dtype in (torch.long, torch.bool))
        return Decision(number, number, flag, torch.empty(n, device="meta")), torch.empty(n, 25, device="meta"), None

    monkeypatch.setattr(fused, "run_kernels", no_kernels)

    def make(kind, n, at):
        rows = [KINDS[kind] if i in at else PLAIN for i in range(n)]
        rule, logits = Rule(rows, "meta"), torch.empty(n, VOCAB, device="meta")
        numbers = torch.arange(n, device="meta")
        traced = torch.tensor(list(at)).to("meta") if kind == "trace" else None
        past = Past(History(n, "meta"), numbers)
        return lambda: decide_fused(logits, logits, rule, numbers, numbers, traced=traced, top=3, past=past)

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
def test_one_row_of_many_costs_what_it_costs_alone(step, kind):
    alone, beside = step(kind, 1, (0,)), step(kind, 256, (100,))
    counts = [watched(each) for each in (alone, beside)]  # the first step makes the index; the next ones find it
    counts = [watched(each) for each in (alone, beside)]
    assert counts[0] == counts[1]
    assert not counts[1]["waits"]


@pytest.mark.parametrize("kind", KINDS)
def test_torch_sees_one_shape_whatever_the_batch(step, kind):
    """A sum of few rows is split otherwise than one of many; with one shape a row's bits do not tell of its batch."""
    for n in (1, 7, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE - 1):
        for run in (step(kind, n, range(n)), step(kind, 100, range(n))):
            with Shapes() as seen:
                run()
            assert seen.rows == {AT_ONCE}


def test_rows_decided_apart_are_the_rows_that_ask_and_the_last_part_repeats_one():
    rows = [KINDS["js"] if i % 3 else PLAIN for i in range(50)]
    asked = [i for i in range(50) if i % 3]
    for device in ("cpu", "meta"):
        parts = Rule(rows, device).parts("js")
        assert [(len(at), meant) for at, meant, _ in parts] == [(AT_ONCE, AT_ONCE), (1 if device == "cpu" else 32, 1)]
        assert all(own.gates == {"js"} for *_, own in parts)
    first, last = (at.tolist() for at, *_ in Rule(rows).parts("js"))
    assert first + last == asked
    assert math.prod(len(Rule(rows).parts(kind)) for kind in ("narrowed", "coupling", "renyi")) == 0

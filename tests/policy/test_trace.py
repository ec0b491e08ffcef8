"""The statistics of a position against their definitions, written out in plain Python floats."""

import math

import numpy as np
import pytest
import torch

from rlvr_dir.decode import Trace
from rlvr_dir.policy.trace import FACTS, LEAST_LOGP, columns, trace
from tests.policy.rules import decided, requests, rule


def by_hand(lb, lr, token):
    base, rl = lb.tolist(), lr.tolist()
    return {
        "logp_base": base[token],
        "logp_rl": rl[token],
        "entropy_base": -math.fsum(math.exp(x) * x for x in base),
        "entropy_rl": -math.fsum(math.exp(x) * x for x in rl),
        "kl_rl_base": math.fsum(math.exp(r) * (r - b) for b, r in zip(base, rl, strict=True)),
        "kl_base_rl": math.fsum(math.exp(b) * (b - r) for b, r in zip(base, rl, strict=True)),
        "rank_base": sum(x > base[token] for x in base),
        "rank_rl": sum(x > rl[token] for x in rl),
        "proposed": token,
        "js": math.fsum(
            math.exp(x) * (x - math.log((math.exp(b) + math.exp(r)) / 2)) / 2
            for b, r in zip(base, rl, strict=True)
            for x in (b, r)
        ),
        "tv_other": math.fsum(
            abs(math.exp(b) / (1 - math.exp(base[token])) - math.exp(r) / (1 - math.exp(rl[token]))) / 2
            for y, (b, r) in enumerate(zip(base, rl, strict=True))
            if y != token
        ),
    }


def test_every_fact_is_what_its_name_says():
    torch.manual_seed(0)
    lb, lr = (torch.log_softmax(3 * torch.randn(20, 50), 1) for _ in range(2))
    tokens = torch.randint(50, (20,))
    table = trace(lb, lr, tokens, top=4)
    assert table.shape == (20, columns(4))
    for row, token, b, r in zip(table, tokens.tolist(), lb, lr, strict=True):
        expected = by_hand(b, r, token)
        assert row[: len(FACTS)].tolist() == pytest.approx([expected[name] for name in FACTS], abs=2e-5)
        for first, logp in ((0, b), (2, r)):
            ids = row[len(FACTS) + first :: 4].long()
            assert ids.tolist() == sorted(range(50), key=lambda i: -logp[i].item())[:4]
            assert torch.equal(row[len(FACTS) + first + 1 :: 4], logp[ids])


def test_what_is_infinite_is_bounded():
    lb = torch.log(torch.tensor([[0.5, 0.5, 0.0]]))
    lr = torch.log(torch.tensor([[0.5, 0.0, 0.5]]))
    facts = dict(zip(FACTS, trace(lb, lr, torch.tensor([2]))[0].tolist(), strict=True))
    assert (facts["logp_base"], facts["kl_rl_base"], facts["kl_base_rl"]) == (LEAST_LOGP, 30.0, 30.0)
    assert facts["js"] == pytest.approx(math.log(2) / 2)
    assert torch.isfinite(trace(lb, lr, torch.tensor([2]), top=3)).all()


@pytest.mark.parametrize("width", [10, 12])
def test_a_table_of_other_columns_is_no_trace(width):
    assert Trace(np.zeros((2, columns(2)), dtype=np.float32)).top == 2
    with pytest.raises(ValueError, match="no known columns"):
        Trace(np.zeros((2, width), dtype=np.float32))


def test_a_decision_traces_the_rows_that_were_asked_for():
    torch.manual_seed(1)
    base, rl = torch.randn(6, 40), torch.randn(6, 40)
    rules = [rule("delta_logp", tau=0.0, temperature=0.7, trace=1 if i in (1, 4) else None) for i in range(6)]
    plain, traced = decided(base, rl, rules[0], requests(6)), decided(base, rl, rules, requests(6))
    assert plain.trace is None
    assert plain.token.equal(traced.token)
    lb, lr = ((each / 0.7).log_softmax(1)[[1, 4]] for each in (base, rl))
    assert traced.trace.equal(trace(lb, lr, plain.proposed[[1, 4]], 1))
    assert torch.allclose(traced.trace[:, 1] - traced.trace[:, 0], plain.delta_logp[[1, 4]])

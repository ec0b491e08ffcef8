"""The statistics of a position against their definitions, written out in plain Python floats."""

import math

import numpy as np
import pytest
import torch

from harness.decode import Trace
from harness.policy import Noise, Rule, RuleRow, decide, log_softmax
from harness.policy.trace import FACTS, LEAST_LOGP, columns, trace


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


def test_traces_of_earlier_versions_are_read():
    table = np.arange(36, dtype=np.float32).reshape(2, 18)
    new, old = Trace(table), Trace(np.delete(table, 9, axis=1))
    assert (new.top, old.top) == (2, 2)
    assert new.fact("kl_base_rl").tolist() == old.fact("kl_base_rl").tolist()
    for mine, theirs in zip(new.likeliest("rl"), old.likeliest("rl"), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert new.fact("js").tolist() == [9.0, 27.0]
    with pytest.raises(KeyError):
        old.fact("js")
    with pytest.raises(ValueError, match="no known columns"):
        Trace(np.zeros((2, 11), dtype=np.float32))


def test_a_decision_traces_the_rows_that_were_asked_for():
    torch.manual_seed(1)
    base, rl = torch.randn(6, 40), torch.randn(6, 40)
    rule = Rule([RuleRow(gate="delta_logp", tau=0.0, temperature=0.7)] * 6)
    noise = Noise.at(torch.arange(6), torch.zeros(6, dtype=torch.long))
    rows = torch.tensor([1, 4])
    plain, traced = decide(base, rl, rule, noise), decide(base, rl, rule, noise, traced=rows, top=1)
    assert plain.trace is None
    assert torch.equal(plain.token, traced.token)
    lb, lr = log_softmax(base, rule), log_softmax(rl, rule)
    assert torch.equal(traced.trace, trace(lb[rows], lr[rows], plain.proposed[rows], 1))
    assert torch.allclose(traced.trace[:, 1] - traced.trace[:, 0], plain.delta_logp[rows])

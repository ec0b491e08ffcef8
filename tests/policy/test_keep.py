"""Min-p and typical sampling by their definitions, and against transformers' own."""

import math

import pytest
import torch
from transformers.generation.logits_process import MinPLogitsWarper, TypicalLogitsWarper

from harness.policy import Rule, RuleRow, propose
from harness.policy.keep import keep
from harness.policy.rule import Noise
from tests.policy import oracle


def policies(n, vocab, scale, seed=0):
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    return torch.log_softmax(logits, dim=-1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("min_p", "typical_p"), [(0.1, 1.0), (1.0, 1.0), (0.0, 0.2), (0.0, 0.95)])
def test_what_is_kept_is_what_the_definitions_say(min_p, typical_p, scale):
    logp = policies(70, 60, scale)
    row = RuleRow(min_p=min_p, typical_p=typical_p)
    got = keep(logp, Rule([row] * 70)).exp().double()
    want = torch.tensor([oracle.narrowed(each.double().exp().tolist(), row) for each in logp]).double()
    assert (got > 0).equal(want > 0)
    assert torch.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_transformers_keeps_the_same_tokens(scale):
    logp = policies(70, 60, scale, seed=1)
    for row, theirs in (
        (RuleRow(min_p=0.1), MinPLogitsWarper(0.1)),
        (RuleRow(typical_p=0.6), TypicalLogitsWarper(mass=0.6)),
    ):
        assert keep(logp, Rule([row] * 70)).isfinite().equal(theirs(None, logp).isfinite())


def test_equally_near_tokens_are_taken_by_id():
    """Of four equal tokens half the mass is the first two."""
    rule = Rule([RuleRow(typical_p=0.5)])
    assert keep(torch.full((1, 4), math.log(0.25)), rule)[0].isfinite().tolist() == [True, True, False, False]


def test_rows_that_ask_for_nothing_stay_to_the_bit():
    logp = policies(40, 30, 2.0)
    rows = [(RuleRow(), RuleRow(min_p=0.3), RuleRow(top_p=0.5), RuleRow(typical_p=0.4))[i % 4] for i in range(40)]
    kept = keep(logp, Rule(rows))
    assert kept[::2].equal(logp[::2])
    assert not any(kept[i].equal(logp[i]) for i in range(1, 40, 2))
    assert keep(logp, Rule([RuleRow()] * 40)) is logp
    assert keep(logp[:0], Rule(rows[:0])).shape == (0, 30)


@pytest.mark.parametrize("dense", [False, True])
def test_a_row_of_nan_leaves_the_others_alone(dense):
    logits = policies(6, 50, 1.0)
    rule, noise = Rule([RuleRow(min_p=0.2), RuleRow(typical_p=0.3)] * 3), Noise.at(torch.arange(6), torch.arange(6))
    whole = propose(logits, rule, noise, dense=dense)[0]
    logits[2:4, 7] = torch.nan
    broken = propose(logits, rule, noise, dense=dense)[0]
    assert broken[[0, 1, 4, 5]].equal(whole[[0, 1, 4, 5]])
    assert ((broken >= 0) & (broken < 50)).all()


def test_one_way_of_keeping_at_a_time():
    with pytest.raises(ValueError, match=r"min_p=0\.1 and typical_p=0\.5"):
        Rule([RuleRow(min_p=0.1, typical_p=0.5)])

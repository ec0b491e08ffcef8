"""Min-p and typical sampling by their definitions, and against transformers' own."""

import math

import pytest
import torch
from transformers.generation.logits_process import MinPLogitsWarper, TypicalLogitsWarper

from harness.policy.rule import Rule, Rules
from harness.policy.target import weights
from harness.policy.truncations import MinP, TopP, Typical
from tests.policy import oracle


def policies(n, vocab, scale, seed=0):
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    return torch.log_softmax(logits, dim=-1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("how", [MinP(min_p=0.1), MinP(min_p=1.0), Typical(typical_p=0.2), Typical(typical_p=0.95)])
def test_what_is_kept_is_what_the_definitions_say(how, scale):
    logp = policies(70, 60, scale)
    got = how.keep(logp).exp().double()
    want = torch.tensor([oracle.narrowed(each.double().exp().tolist(), Rule(truncation=how)) for each in logp])
    assert (got > 0).equal(want > 0)
    assert torch.allclose(got, want.double(), atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_transformers_keeps_the_same_tokens(scale):
    logp = policies(70, 60, scale, seed=1)
    for ours, theirs in ((MinP(min_p=0.1), MinPLogitsWarper(0.1)), (Typical(typical_p=0.6), TypicalLogitsWarper(0.6))):
        assert ours.keep(logp).isfinite().equal(theirs(None, logp).isfinite())


def test_equally_near_tokens_are_taken_by_id():
    """Of four equal tokens half the mass is the first two."""
    kept = Typical(typical_p=0.5).keep(torch.full((1, 4), math.log(0.25)))
    assert kept[0].isfinite().tolist() == [True, True, False, False]


def test_rows_that_ask_for_nothing_stay_to_the_bit():
    logp = policies(80, 30, 2.0)
    ways = (TopP(top_p=1.0), MinP(min_p=0.3), TopP(top_p=0.5), Typical(typical_p=0.4))
    got = weights(logp, Rules.compile([Rule(truncation=ways[i % 4]) for i in range(80)]))
    assert got[::2].equal(logp[::2].exp())
    assert not any(got[i].equal(logp[i].exp()) for i in range(1, 80, 2))

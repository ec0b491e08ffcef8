"""Likelihoods of given tokens: against the nucleus that is drawn from, as distributions, and beside their traces."""

import pytest
import torch

from rlvr_dir.policy.given import FLOOR, Scoring, likelihoods, scored
from rlvr_dir.policy.nucleus import nucleus
from rlvr_dir.policy.trace import trace

VOCAB = 37
SETTINGS = ((1.0, 0.7), (0.6, 0.7), (1.3, 0.95), (1.0, 1.0), (0.7, 1.0), (1.0, 0.01), (0.0, 1.0))


@pytest.fixture(scope="module")
def logits():
    """Peaked and flat rows, one with equal logits, which a nucleus takes in the order of their ids."""
    rows = torch.randn(12, VOCAB, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 6, 12)[:, None]
    rows[3] = 0.0
    rows[4, 5:9] = rows[4].max()
    return rows


def every_token(logits):
    return torch.arange(VOCAB).repeat(len(logits)), logits.repeat_interleave(VOCAB, dim=0)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_likelihood_is_the_nucleus_with_a_floor_of_the_whole_policy(logits, setting):
    temperature, top_p = setting
    tokens, rows = every_token(logits)
    found = likelihoods(rows, tokens, (setting,)).double().exp().reshape(len(logits), VOCAB)
    whole = (logits / (temperature or 1.0)).softmax(1)
    drawn = nucleus(whole, torch.full((len(logits),), top_p if temperature else 0.0, dtype=torch.float64))
    assert torch.allclose(found, (1 - FLOOR) * drawn + FLOOR * whole, rtol=1e-4, atol=1e-9)
    assert torch.allclose(found.sum(1), torch.ones(len(logits), dtype=torch.float64), atol=1e-5)


def test_untruncated_it_is_the_log_probability(logits):
    tokens = torch.arange(len(logits))
    found = likelihoods(logits, tokens, ((0.8, 1.0),))[:, 0]
    assert torch.allclose(found, (logits / 0.8).log_softmax(1).gather(1, tokens[:, None])[:, 0], atol=1e-5)


def test_a_score_is_a_trace_and_the_likelihoods_of_base_then_rl(logits):
    scoring, tokens, rl = Scoring(0.8, SETTINGS[:3]), torch.arange(len(logits)), logits.flip(1)
    table = scored(logits, rl, tokens, scoring)
    lb, lr = ((each / 0.8).log_softmax(1) for each in (logits, rl))
    parts = [trace(lb, lr, tokens, 1), *(likelihoods(each, tokens, SETTINGS[:3]) for each in (logits, rl))]
    assert table.shape == (len(logits), scoring.width)
    assert torch.equal(table, torch.cat(parts, dim=1))


def test_an_impossible_token_stays_finite():
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    assert likelihoods(logits, torch.tensor([1]), SETTINGS).isfinite().all()

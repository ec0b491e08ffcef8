"""A change that is carried over to another model is a pair again: target and target times RL / base."""

import torch

from harness.policy import RuleRow, carried, distribution
from harness.policy.rule import Rule

N, VOCAB = 5, 11


def logits(seed, vocab=VOCAB):
    return 2 * torch.randn(N, vocab, generator=torch.Generator().manual_seed(seed))


def test_the_laws_are_those_of_the_formula():
    base, rl, target = (logits(seed).double().softmax(-1) for seed in range(3))
    ours, theirs = carried(logits(0), logits(1), logits(2))
    assert torch.allclose(ours.double().softmax(-1), target, atol=1e-6)
    for strength in (0.0, 0.5, 1.0, 2.5):
        law = target * (rl / base) ** strength
        rule = Rule([RuleRow(gate="always", gamma=strength - 1)] * N)
        found, _ = distribution(ours, theirs, rule)
        assert torch.allclose(found.double(), law / law.sum(-1, keepdim=True), atol=1e-6), strength


def test_a_target_that_is_base_gives_the_pair_itself():
    ours, theirs = carried(logits(0), logits(1), logits(0))
    assert torch.equal(ours, logits(0))
    assert torch.allclose(theirs, logits(1), atol=1e-6)


def test_what_not_all_three_have_is_no_token():
    ours, theirs = carried(logits(0, 13), logits(1, 11).bfloat16(), logits(2, 12))
    assert ours.shape == theirs.shape == (N, 11)
    assert ours.dtype == theirs.dtype == torch.float32

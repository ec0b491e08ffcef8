"""The formulas of training, against values worked out by hand and against gradients."""

import math

import pytest
import torch

from harness.policy.advantages import (
    METHODS,
    gradient_coefficient,
    log_perplexity,
    mixed_groups,
    overlong_penalty,
    standardise,
    sums_by_probability,
    token_weights,
    unclipped,
)

NAN = float("nan")


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log().float()


# Two responses: probabilities of their tokens, and the mask; the last token of the second is padding.
LOGP = logs([0.5, 0.1, 1.0], [0.9, 0.25, 0.3])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ADVANTAGES = torch.tensor([2.0, -1.0])


def reweight(advantages, logp, mask, method, alpha):
    """Every token's advantage as both backends weigh it; 0 where the mask is 0."""
    return torch.where(mask.bool(), advantages[:, None] * token_weights(method, alpha, logp, mask), 0.0)


@pytest.mark.parametrize(
    ("method", "alpha", "expected"),
    [
        ("none", 0.0, [[2.0, 2.0, 2.0], [-1.0, -1.0, 0.0]]),
        # 1 + 0.2 (1 - pi): 1.1, 1.18, 1.0; 1.02, 1.15
        ("low_prob", 0.2, [[2.2, 2.36, 2.0], [-1.02, -1.15, 0.0]]),
        ("low_prob", 0.5, [[2.5, 2.9, 2.0], [-1.05, -1.375, 0.0]]),
        # 0.1 pi + 0.9: 0.95, 0.91, 1.0; 0.99, 0.925
        ("dominate", 0.1, [[1.9, 1.82, 2.0], [-0.99, -0.925, 0.0]]),
        ("dominate", 1.0, [[1.0, 0.2, 2.0], [-0.9, -0.25, 0.0]]),
        # log PPL 0.9986 and 0.7458, so z is +1 and -1: 1 - 0.1 z = 0.9 and 1.1
        ("ppl", 0.1, [[1.8, 1.8, 1.8], [-1.1, -1.1, 0.0]]),
    ],
)
def test_reweighting_by_hand(method, alpha, expected):
    found = reweight(ADVANTAGES, LOGP, MASK, method, alpha)
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_alpha_0_is_dapo_to_the_bit(method):
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(64, 50, generator=generator) * 12
    logp[0] = -0.0
    mask = (torch.rand(64, 50, generator=generator) < 0.8).long()
    advantages = torch.randn(64, generator=generator)
    found = reweight(advantages, logp, mask, method, 0.0)
    assert torch.equal(found, torch.where(mask.bool(), advantages[:, None].expand_as(logp), 0.0))
    assert torch.equal(token_weights(method, 0.0, logp, mask), torch.ones_like(logp))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_masked_does_not_matter(method):
    other = LOGP.clone()
    other[1, 2] = -math.inf
    assert torch.equal(reweight(ADVANTAGES, other, MASK, method, 0.3), reweight(ADVANTAGES, LOGP, MASK, method, 0.3))


def test_weights_carry_no_gradient():
    logp = LOGP.clone().requires_grad_()
    assert not any(token_weights(method, 0.2, logp, MASK).requires_grad for method in METHODS)


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match="method='high_prob'"):
        reweight(ADVANTAGES, LOGP, MASK, "high_prob", 0.1)


def test_log_perplexity_is_the_mean_over_response_tokens():
    found = log_perplexity(LOGP, MASK)
    assert found.tolist() == pytest.approx(
        [-(math.log(0.5) + math.log(0.1)) / 3, -(math.log(0.9) + math.log(0.25)) / 2], abs=1e-6
    )
    assert log_perplexity(LOGP, torch.zeros_like(MASK)).tolist() == [0, 0]


def test_standardising_over_the_batch_and_within_groups():
    x = torch.tensor([1.0, 3.0, 10.0, 14.0])
    assert standardise(x, 2).tolist() == pytest.approx([-1, 1, -1, 1], abs=1e-4)
    spread = math.sqrt(27.5)  # mean 7, squares 36, 16, 9, 49
    assert standardise(x).tolist() == pytest.approx([-6 / spread, -4 / spread, 3 / spread, 7 / spread], abs=1e-4)


def test_equal_perplexities_are_not_blown_up():
    x = torch.full((8,), 0.7) + torch.tensor([0, 1.2e-7] * 4)
    assert (standardise(x)[1::2] > 0).all()
    assert standardise(x).abs().max() < 0.1


def test_z_of_the_whole_batch_can_be_handed_to_a_part_of_it():
    z = torch.tensor([0.5, -2.0])
    assert token_weights("ppl", 0.1, LOGP[1:], MASK[1:], z[1:])[0].tolist() == pytest.approx([1.2, 1.2, 1.0])


@pytest.mark.parametrize(
    ("accuracy", "mixed"),
    [
        ([1, 0, 1, 1], [True, False]),
        ([1, 1, 0, 0], [False, False]),
        ([0, 1, 1, 0], [True, True]),
        ([NAN, 1, NAN, 0], [False, False]),  # an ungraded response makes no contrast
    ],
)
def test_a_group_is_mixed_when_it_has_right_and_wrong(accuracy, mixed):
    assert mixed_groups(torch.tensor(accuracy, dtype=torch.float32), 2).tolist() == mixed


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0), (60, 0), (61, -0.025), (80, -0.5), (99, -0.975), (100, -1), (130, -1)]
)
def test_overlong_penalty_by_hand(length, penalty):
    assert overlong_penalty(torch.tensor([length]), 100, 40).item() == pytest.approx(penalty)


@pytest.mark.parametrize("advantage", [1.7, -0.6])
@pytest.mark.parametrize("ratio", [1.0, 1.1, 0.85])
def test_lemma_1_is_the_gradient_of_the_objective(advantage, ratio):
    torch.manual_seed(0)
    logits = torch.randn(12, dtype=torch.float64, requires_grad=True)
    token = 3
    logp = logits.log_softmax(0)[token]
    old = (logp - math.log(ratio)).detach()
    objective = torch.min((logp - old).exp() * advantage, (logp - old).exp().clamp(0.8, 1.28) * advantage)
    (gradient,) = torch.autograd.grad(objective, logits)
    found = gradient_coefficient(logp.detach()[None, None], torch.tensor([[advantage]]).double(), ratio)
    assert found.item() == pytest.approx(gradient.abs().sum().item(), rel=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_clipped_tokens_are_those_without_a_gradient(advantage):
    low, high, dual = 0.2, 0.28, 10.0
    ratio = torch.tensor([0.05, 0.79, 0.81, 1.0, 1.27, 1.29, 9.9, 10.1], requires_grad=True)
    capped = ratio.clamp(max=dual)  # as TRL's `delta`
    objective = torch.min(capped * advantage, ratio.clamp(1 - low, 1 + high) * advantage).sum()
    (gradient,) = torch.autograd.grad(objective, ratio)
    found = unclipped(ratio.detach(), torch.full_like(ratio.detach(), advantage), low, high, dual)
    assert found.tolist() == (gradient != 0).tolist()


def test_sums_by_probability_by_hand():
    value = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    sums, counts = sums_by_probability(LOGP, value, MASK, bins=5)  # 0.5, 0.1, 1.0; 0.9, 0.25, (padding)
    assert sums.tolist() == [2, 16, 1, 0, 12]
    assert counts.tolist() == [1, 1, 1, 0, 2]

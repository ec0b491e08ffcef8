"""The formulas of training, against values worked out by hand and against gradients."""

import math

import pytest
import torch

from rlvr_dir.policy.advantages import (
    gradient_coefficient,
    mixed_groups,
    overlong_penalty,
    sums_by_probability,
    unclipped,
)

NAN = float("nan")


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log().float()


# Two responses: probabilities of their tokens, and the mask; the last token of the second is padding.
LOGP = logs([0.5, 0.1, 1.0], [0.9, 0.25, 0.3])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


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

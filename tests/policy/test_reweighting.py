"""The ways of reweighting: by hand, against the formulas as first written, and what holds for each of them."""

import math
from pathlib import Path

import pytest
import torch

from rlvr_dir.policy.reweighting import PLAIN, reweighting, reweightings, token_weights
from rlvr_dir.policy.reweighting.paper import log_perplexity, standardise
from tests.facts import refuses
from tests.policy.test_advantages import LOGP, MASK

ADVANTAGES = torch.tensor([2.0, -1.0])
DOCS = (Path(__file__).parents[2] / "docs" / "train.md").read_text()


def reweight(advantages, logp, mask, way):
    """Every token's advantage as both backends weigh it; 0 where the mask is 0."""
    return torch.where(mask.bool(), advantages[:, None] * token_weights(way, logp, mask), 0.0)


def batch(rows, tokens, seed=0):
    """Log-probabilities and a mask, all of it drawn; one probability is 1, one response is empty."""
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(rows, tokens, generator=generator) * 12
    logp[0] = -0.0
    mask = (torch.rand(rows, tokens, generator=generator) < 0.8).long()
    mask[1] = 0
    return logp, mask


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
    found = reweight(ADVANTAGES, LOGP, MASK, reweighting(method, alpha))
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)


def first_written(method, alpha, logp, mask, samples=None):
    """The weights as one function had them before each way was a class."""
    match method:
        case "none":
            weight = torch.ones_like(logp)
        case "low_prob":
            weight = 1 - alpha * torch.expm1(logp)
        case "dominate":
            weight = 1 + alpha * torch.expm1(logp)
        case "ppl":
            inside = mask.bool()
            x = -torch.where(inside, logp.float(), 0.0).sum(1) / inside.sum(1).clamp(min=1)
            grouped = x.view(1, -1) if samples is None else x.view(-1, samples)
            centred = grouped - grouped.mean(1, keepdim=True)
            z = (centred / (centred.square().mean(1, keepdim=True).sqrt() + 1e-6)).view(-1)
            weight = (1 - alpha * z)[:, None].expand_as(logp)
    return torch.where(mask.bool(), weight, 1.0)


@pytest.mark.parametrize("samples", [None, 16])
@pytest.mark.parametrize("method", ["none", "low_prob", "dominate", "ppl"])
@pytest.mark.parametrize("rows", [16, 64, 496, 8192])
def test_weights_are_those_of_the_first_formulas_to_the_bit(method, rows, samples):
    logp, mask = batch(rows, 7, seed=rows)
    way = reweighting(method, 0.3)
    scopes = None if samples is None else torch.arange(rows).view(-1, samples)
    assert torch.equal(token_weights(way, logp, mask, scopes), first_written(method, 0.3, logp, mask, samples))


@pytest.mark.parametrize("method", reweightings())
def test_alpha_0_is_dapo_to_the_bit(method):
    logp, mask = batch(64, 50)
    advantages = torch.randn(64, generator=torch.Generator().manual_seed(1))
    way = reweighting(method, 0.0)
    found = reweight(advantages, logp, mask, way)
    assert torch.equal(found, torch.where(mask.bool(), advantages[:, None].expand_as(logp), 0.0))
    assert torch.equal(token_weights(way, logp, mask), torch.ones_like(logp))


@pytest.mark.parametrize("method", reweightings())
def test_what_is_masked_does_not_matter(method):
    other, way = LOGP.clone(), reweighting(method, 0.3)
    other[1, 2] = -math.inf
    assert torch.equal(reweight(ADVANTAGES, other, MASK, way), reweight(ADVANTAGES, LOGP, MASK, way))


@pytest.mark.parametrize("method", reweightings())
def test_weights_carry_no_gradient(method):
    assert not token_weights(reweighting(method, 0.2), LOGP.clone().requires_grad_(), MASK).requires_grad


@pytest.mark.parametrize("method", [name for name, way in reweightings().items() if not way.whole_batch])
def test_a_part_of_a_batch_is_weighed_as_in_the_batch_unless_the_way_says_that_it_is_not(method):
    logp, mask = batch(64, 50)
    way = reweighting(method)
    assert torch.equal(token_weights(way, logp[40:], mask[40:]), token_weights(way, logp, mask)[40:])


def test_rows_of_a_scope_are_weighed_beside_each_other_in_any_order_and_others_not_at_all():
    logp, mask = batch(6, 5, seed=3)
    way = reweighting("ppl", 0.5)
    found = token_weights(way, logp, mask, [torch.tensor([4, 2]), torch.tensor([0, 3])])
    assert torch.equal(found[[4, 2]], token_weights(way, logp[[4, 2]], mask[[4, 2]]))
    assert torch.equal(found[[0, 3]], token_weights(way, logp[[0, 3]], mask[[0, 3]]))
    assert torch.equal(found[[1, 5]], torch.ones(2, 5))


def test_an_unknown_method_is_named():
    with refuses("method", "high_prob", *reweightings()):
        reweighting("high_prob", 0.1)


@pytest.mark.parametrize(("name", "way"), reweightings().items())
def test_the_docs_have_every_way_with_its_alpha(name, way):
    row = next(line for line in DOCS.splitlines() if line.startswith(f"| `{name}` |"))
    assert name == PLAIN or f"| {way.alpha:g} |" in row


def test_log_perplexity_is_the_mean_over_response_tokens():
    found = log_perplexity(LOGP, MASK)
    assert found.tolist() == pytest.approx(
        [-(math.log(0.5) + math.log(0.1)) / 3, -(math.log(0.9) + math.log(0.25)) / 2], abs=1e-6
    )
    assert log_perplexity(LOGP, torch.zeros_like(MASK)).tolist() == [0, 0]


def test_standardising_by_hand():
    spread = math.sqrt(27.5)  # mean 7, squares 36, 16, 9, 49
    found = standardise(torch.tensor([1.0, 3.0, 10.0, 14.0]))
    assert found.tolist() == pytest.approx([-6 / spread, -4 / spread, 3 / spread, 7 / spread], abs=1e-4)


def test_equal_perplexities_are_not_blown_up():
    x = torch.full((8,), 0.7) + torch.tensor([0, 1.2e-7] * 4)
    assert (standardise(x)[1::2] > 0).all()
    assert standardise(x).abs().max() < 0.1

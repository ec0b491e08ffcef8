"""Pretraining really learns, and the same seed gives the same weights."""

import torch

from harness.tiny import vocabulary as v
from harness.tiny.pretrain import PretrainSettings, new_model, pad, pretrain, response_loss

FEW = PretrainSettings(tokens=100_000, batch=8, max_steps=3, warmup_steps=1)


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_seed_decides_the_weights():
    first, facts = pretrain(FEW, seed=5)
    again, _ = pretrain(FEW, seed=5)
    other, _ = pretrain(FEW, seed=6)
    assert same(first, again)
    assert not same(first, other)
    assert facts["steps"] == 3
    assert not same(first, new_model(FEW, 5))


def test_the_loss_is_over_response_tokens_only():
    model = new_model(FEW, 0)
    tokens, learned = pad([([1, 40, 41], [50, 2]), ([1], [51, 52, 53, 54, 2])])
    assert learned.sum(1).tolist() == [2, 5]
    assert tokens[0].tolist() == [1, 40, 41, 50, 2, v.ID[v.PAD]]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        logp = model(tokens[:, :-1]).logits.float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    assert torch.allclose(response_loss(model, tokens, learned), -logp[learned[:, 1:]].mean(), atol=1e-3)

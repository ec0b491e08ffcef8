"""A build on a toy budget: base, RL, tokenizer, facts and card, twice the same; and pretraining really learns."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.errors import UserError
from harness.tiny import build
from harness.tiny import vocabulary as v
from harness.tiny.pretrain import PretrainSettings, new_model, pad, pretrain, response_loss
from harness.tiny.problems import benchmark_texts
from harness.tiny.recipe import add_steps, rl_problems
from harness.tiny.vocabulary import INSTRUCTION
from harness.train import DapoSettings

BASE = PretrainSettings(tokens=10_000, batch=8, max_steps=2)
DAPO = DapoSettings(steps=2, prompts=2, samples=4, minibatches=2, max_response_tokens=8, dynamic_sampling=False)


def same(*paths):
    one, two = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in paths)
    return all(torch.equal(one[key], two[key]) for key in one)


def test_build_makes_a_pair_and_its_card(tmp_path):
    pair = build(tmp_path / "one", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    build(tmp_path / "two", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    assert pair.base == str(tmp_path / "one" / "base")
    for name in ("base", "rl", "step-1"):
        assert same(tmp_path / "one" / name, tmp_path / "two" / name), name
    assert (
        len(AutoTokenizer.from_pretrained(pair.rl)) == AutoModelForCausalLM.from_pretrained(pair.rl).config.vocab_size
    )
    facts = json.loads((tmp_path / "one" / "build.json").read_text())
    assert facts["seed"] == facts["dapo"]["settings"]["seed"] == 3
    assert len(facts["dapo"]["rollout_accuracy"]) == 2
    card = (tmp_path / "one" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0")
    assert "--seed 3" in card


def test_an_older_build_gets_its_steps_by_training_rl_anew(tmp_path):
    build(tmp_path / "one", pretraining=BASE, dapo=DAPO, progress=False)
    step = (tmp_path / "one" / "step-1").rename(tmp_path / "step-1")
    found = add_steps(tmp_path / "one", progress=False)
    assert (found["kept_steps"], found["largest_difference"]) == ([1], 0.0)
    assert same(tmp_path / "one" / "step-1", step)
    assert "differ by up to" in (tmp_path / "one" / "README.md").read_text()
    with pytest.raises(UserError, match=r"has no build.json of a build"):
        add_steps(tmp_path, progress=False)


def test_rl_learns_from_no_benchmark_problem():
    rows = rl_problems(0)
    texts = {row["prompt"][0]["content"].removesuffix(INSTRUCTION) for row in rows}
    assert len(rows) == 2000
    assert not texts & benchmark_texts()
    assert rows == rl_problems(0) != rl_problems(1)


FEW = PretrainSettings(tokens=100_000, batch=8, max_steps=3, warmup_steps=1)


def alike(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_seed_decides_the_weights():
    first, facts = pretrain(FEW, seed=5)
    again, _ = pretrain(FEW, seed=5)
    other, _ = pretrain(FEW, seed=6)
    assert alike(first, again)
    assert not alike(first, other)
    assert facts["steps"] == 3
    assert not alike(first, new_model(FEW, 5))


def test_the_loss_is_over_response_tokens_only():
    model = new_model(FEW, 0)
    tokens, learned = pad([([1, 40, 41], [50, 2]), ([1], [51, 52, 53, 54, 2])])
    assert learned.sum(1).tolist() == [2, 5]
    assert tokens[0].tolist() == [1, 40, 41, 50, 2, v.ID[v.PAD]]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        logp = model(tokens[:, :-1]).logits.float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    assert torch.allclose(response_loss(model, tokens, learned), -logp[learned[:, 1:]].mean(), atol=1e-3)

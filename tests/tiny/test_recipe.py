"""The whole command on a toy budget: base, RL, tokenizer, facts and card come out, twice the same."""

import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.tiny import build
from harness.tiny.pretrain import PretrainSettings
from harness.tiny.problems import benchmark_texts
from harness.tiny.recipe import rl_problems
from harness.tiny.vocabulary import INSTRUCTION
from harness.train import DapoSettings

BASE = PretrainSettings(tokens=10_000, batch=8, max_steps=2)
DAPO = DapoSettings(steps=1, prompts=2, samples=4, minibatches=2, max_response_tokens=8, dynamic_sampling=False)


def weights(path):
    return AutoModelForCausalLM.from_pretrained(path).state_dict()


def test_build_makes_a_pair_and_its_card(tmp_path):
    pair = build(tmp_path / "one", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    again = build(tmp_path / "two", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    assert pair.base == str(tmp_path / "one" / "base")
    for name in ("base", "rl"):
        one, two = weights(getattr(pair, name)), weights(getattr(again, name))
        assert all(torch.equal(one[key], two[key]) for key in one), name
    assert (
        len(AutoTokenizer.from_pretrained(pair.rl)) == AutoModelForCausalLM.from_pretrained(pair.rl).config.vocab_size
    )
    facts = json.loads((tmp_path / "one" / "build.json").read_text())
    assert facts["seed"] == facts["dapo"]["settings"]["seed"] == 3
    assert len(facts["dapo"]["rollout_accuracy"]) == 1
    card = (tmp_path / "one" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0")
    assert "--seed 3" in card
    assert "Not measured yet" in card


def test_rl_learns_from_no_benchmark_problem():
    rows = rl_problems(0)
    texts = {row["prompt"][0]["content"].removesuffix(INSTRUCTION) for row in rows}
    assert len(rows) == 2000
    assert not texts & benchmark_texts()
    assert rows == rl_problems(0) != rl_problems(1)

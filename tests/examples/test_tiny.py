"""Builds on a toy budget: a pair and its card, twice the same; pretraining learns; placebos are what they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.optim._muon import _zeropower_via_newtonschulz as torchs_own  # before a build puts ours in its place
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.tiny.placebos import LONG, TRAININGS, add_noise, change, long_enough, reward_of, train_on_own_samples
from examples.tiny.pretrain import PretrainSettings, new_model, orthogonal, pad, response_loss
from examples.tiny.recipe import add_steps, build
from examples.tiny.tokenizer import build_tokenizer
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.tiny.problems import benchmark_texts, rl_problems
from rlvr_dir.tiny.vocabulary import INSTRUCTION
from rlvr_dir.train import DapoSettings
from tests.facts import refuses, states

BASE = PretrainSettings(tokens=10_000, batch=8, max_steps=2)
DAPO = DapoSettings(steps=2, prompts=2, samples=4, minibatches=2, max_response_tokens=8, dynamic_sampling=False)


def same(*paths):
    one, two = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in paths)
    return all(torch.equal(one[key], two[key]) for key in one)


def test_build_makes_a_pair_and_its_card(tmp_path):
    pair = build(tmp_path / "one", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    build(tmp_path / "two", seed=3, pretraining=BASE, dapo=DAPO, progress=False)
    build(tmp_path / "other", seed=4, pretraining=BASE, dapo=DAPO, progress=False)
    assert not same(pair.base, tmp_path / "other" / "base")
    assert pair.base == str(tmp_path / "one" / "base")
    for name in ("base", "rl", "step-1"):
        assert same(tmp_path / "one" / name, tmp_path / "two" / name), name
    assert (
        len(AutoTokenizer.from_pretrained(pair.rl)) == AutoModelForCausalLM.from_pretrained(pair.rl).config.vocab_size
    )
    facts = json.loads((tmp_path / "one" / "build.json").read_text())
    assert facts["seed"] == facts["dapo"]["settings"]["seed"] == 3


def test_an_older_build_gets_its_steps_by_training_rl_anew(tmp_path):
    build(tmp_path / "one", pretraining=BASE, dapo=DAPO, progress=False)
    step = (tmp_path / "one" / "step-1").rename(tmp_path / "step-1")
    found = add_steps(tmp_path / "one", progress=False)
    assert (found["kept_steps"], found["largest_difference"]) == ([1], 0.0)
    assert same(tmp_path / "one" / "step-1", step)
    with refuses("pair", "build.json"):
        add_steps(tmp_path, progress=False)


def test_rl_learns_from_no_benchmark_problem():
    rows = rl_problems(0)
    texts = {row["prompt"][0]["content"].removesuffix(INSTRUCTION) for row in rows}
    assert len(rows) == 2000
    assert not texts & benchmark_texts()
    assert rows == rl_problems(0) != rl_problems(1)


FEW = PretrainSettings(tokens=100_000, batch=8, max_steps=3, warmup_steps=1)


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (8, 8)])
def test_muons_step_is_torchs_own_in_another_precision(shape):
    grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    settings = ((3.4445, -4.775, 2.0315), 5, 1e-7)
    torch.testing.assert_close(orthogonal(grad, *settings), torchs_own(grad, *settings).float(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("narrow", [True, False])
def test_the_loss_is_over_response_tokens_only(narrow):
    model = new_model(FEW, 0)
    tokens, learned = pad([([1, 40, 41], [50, 2]), ([1], [51, 52, 53, 54, 2])])
    assert learned.sum(1).tolist() == [2, 5]
    assert tokens[0].tolist() == [1, 40, 41, 50, 2, v.ID[v.PAD]]
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow), torch.no_grad():
        logp = model(tokens[:, :-1]).logits.float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    found = response_loss(model, tokens, learned, narrow=narrow)
    assert torch.allclose(found, -logp[learned[:, 1:]].mean(), atol=1e-3)


PLACEBO = DapoSettings(steps=1, prompts=2, samples=4, minibatches=2, max_response_tokens=8, learning_rate=1e-3)


def load(name):
    return AutoModelForCausalLM.from_pretrained(getattr(tiny_pair(), name))


def test_noise_has_the_norm_of_the_true_change_in_each_tensor():
    noisy, base, rl = load("base"), load("base"), load("rl")
    add_noise(noisy, rl, seed=1)
    weights = [dict(model.named_parameters()) for model in (noisy, base, rl)]
    for name in weights[0]:
        made, true = ((weights[i][name] - weights[1][name]).norm().item() for i in (0, 2))
        assert made == pytest.approx(true, rel=1e-3), name
    assert change(noisy, base) == pytest.approx(change(rl, base), rel=1e-3)
    assert change(base, base) == 0
    again = load("base")
    add_noise(again, rl, seed=2)
    assert not torch.equal(again.get_input_embeddings().weight, noisy.get_input_embeddings().weight)


def test_training_on_its_own_samples_raises_their_likelihood():
    model, base, tokenizer = load("base"), load("base"), build_tokenizer()
    seen = []
    keep = base.generate

    def written(**inputs):
        seen.append((inputs["input_ids"].shape[1], keep(**inputs)))
        return seen[-1][1]

    model.generate = written  # the same samples, kept
    settings = PLACEBO.replace(max_response_tokens=32, samples=8)
    train_on_own_samples(model, tokenizer, rl_problems(0), settings)
    ((prompt, tokens),) = seen

    def likelihood(of):
        logp = of(tokens).logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        ended = (tokens[:, prompt:] == v.ID[v.EOS]).cumsum(1) - (tokens[:, prompt:] == v.ID[v.EOS]).int() > 0
        return logp[:, prompt - 1 :][~ended].mean().item()

    with torch.no_grad():
        assert likelihood(model) > likelihood(base)


def test_rewards_know_nothing_of_the_answer():
    assert long_enough([[1] * (LONG - 1), [1] * LONG]) == [0.0, 1.0]
    coins = [reward_of("random", seed)(["x"] * 400) for seed in (0, 0, 1)]
    assert coins[0] == coins[1] != coins[2]
    assert 150 < sum(coins[0]) < 250
    assert reward_of("verdict", 0) is None


def test_a_placebo_takes_the_base_of_a_built_pair(tmp_path):
    plain = PretrainSettings(tokens=10_000, batch=8, max_steps=2, fillers=False)
    build(tmp_path / "true", seed=1, pretraining=plain, dapo=PLACEBO, progress=False)
    for training in TRAININGS[1:]:
        made = build(
            tmp_path / training, seed=1, dapo=PLACEBO, training=training, start=tmp_path / "true", progress=False
        )
        facts = json.loads((tmp_path / training / "build.json").read_text())
        assert facts["training"] == training
        assert not facts["pretraining"]["settings"]["fillers"]
        before, after = (
            AutoModelForCausalLM.from_pretrained(place) for place in (tmp_path / "true" / "base", made.base)
        )
        assert change(after, before) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"training": "sft"}, "training sft"),
        ({"training": "noise"}, "training noise"),
        ({"start": "nowhere"}, "start build.json"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_trained(options, words, tmp_path):
    with refuses(*words.split()):
        build(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_script_says_what_it_refuses(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.tiny", "build", "--out", tmp_path / "out", "--training", "noise"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    states(done.stderr, "error: ", "--training noise", "--start")

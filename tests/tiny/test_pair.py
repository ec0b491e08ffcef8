"""The shipped weights: small, loadable, one tokenizer, and an RL model that is clearly better than its base."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from examples.tiny.measure import sample
from examples.tiny.recipe import build
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import TINY_STEPS, Pair, find_pair
from rlvr_dir.tiny import WEIGHTS, tiny_pair
from rlvr_dir.tiny.problems import tuning_problems
from tests.facts import refuses


@pytest.fixture(scope="module")
def models():
    pair = tiny_pair()
    return {name: AutoModelForCausalLM.from_pretrained(getattr(pair, name)).eval() for name in ("base", "rl")}


def test_the_pair_is_small_and_complete():
    pair = tiny_pair()
    assert Path(pair.base).is_absolute()
    files = [file for file in WEIGHTS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 10_000_000
    kept = {"base", "rl", "step-2", "step-4", "step-6"}
    assert {file.parent.name for file in files if file.suffix == ".safetensors"} == kept
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)


def test_base_and_rl_share_tokenizer_and_config():
    pair = tiny_pair()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (Path(pair.base) / name).read_bytes() == (Path(pair.rl) / name).read_bytes(), name
    base, rl = (AutoConfig.from_pretrained(path).to_diff_dict() for path in (pair.base, pair.rl))
    assert {k: x for k, x in base.items() if k != "_name_or_path"} == {
        k: x for k, x in rl.items() if k != "_name_or_path"
    }


def test_the_rl_models_on_the_way_are_whole_and_lie_between_base_and_rl(models):
    pair = tiny_pair()
    assert resolve(find_pair("tiny@8")) == pair, "the last step is the pair's own RL"
    base, rl = (flat(models[name]) for name in ("base", "rl"))
    before = 0.0
    for step in (2, 4, 6):
        found = resolve(find_pair(f"tiny@{step}"))
        assert found == Pair(base=pair.base, rl=str(WEIGHTS / f"step-{step}"))
        for file in Path(pair.rl).iterdir():
            if file.suffix != ".safetensors":
                assert file.read_bytes() == (Path(found.rl) / file.name).read_bytes(), file.name
        way = flat(AutoModelForCausalLM.from_pretrained(found.rl)) - base
        along = float(way @ (rl - base) / (rl - base).square().sum())
        assert before < along < 1, "further along the way from base to RL than the step before"
        before = along
    facts = json.loads((WEIGHTS / "build.json").read_text())["dapo"]
    assert (*facts["kept_steps"], facts["settings"]["steps"]) == TINY_STEPS
    assert facts["largest_difference"] < facts["largest_change"] / 1000


def flat(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_an_installation_without_the_steps_says_so_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr("rlvr_dir.tiny.WEIGHTS", tmp_path)
    with refuses("tiny@4", "step-4", "examples/tiny"):
        resolve(Pair(base="elsewhere", rl="tiny@4"))


@pytest.mark.parametrize(("task", "margin"), [("tiny_easy", 15.0), ("tiny_medium", 15.0)])
def test_rl_beats_base_on_problems_of_no_benchmark(models, task, margin):
    tokenizer = AutoTokenizer.from_pretrained(tiny_pair().rl)
    rows = [{"problem": p.text, "answer": str(p.answer)} for p in tuning_problems(task, 40, seed=7)]
    base, rl = (sample(models[name], tokenizer, rows, 8) for name in ("base", "rl"))
    assert rl.avg - base.avg >= margin
    assert 20 < base.avg < 75
    assert base.stopped.mean() > 0.99
    assert rl.stopped.mean() > 0.99


def test_a_pair_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "base").mkdir()
    with refuses("already"):
        build(tmp_path)

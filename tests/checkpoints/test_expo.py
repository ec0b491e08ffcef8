"""Extrapolated weights: the right weights, written by the command, decoded as any RL model, and what is refused."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_dir.checkpoints.expo import INDEX, write_expo
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode import open_engine
from tests.checkpoints.made import HEAD, drop, variant
from tests.commands import refused, run
from tests.decode.requests import make_requests
from tests.facts import refuses, states

TRANSFORMERS = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=16)


def state(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def test_the_command_writes_rl_and_a_step_beyond_which_decodes(peaked_pair, tmp_path):
    out = tmp_path / "expo"
    run("pair", "expo", peaked_pair.base, peaked_pair.rl, "--gamma", "0.5", "--out", out)
    base, rl, beyond = (state(place) for place in (peaked_pair.base, peaked_pair.rl, out))
    for name, weight in beyond.items():
        assert torch.allclose(weight, rl[name] + 0.5 * (rl[name] - base[name]), atol=1e-6), name
    assert any(not torch.equal(weight, rl[name]) for name, weight in beyond.items())
    with open_engine(peaked_pair.replace(rl=str(out)), TRANSFORMERS) as engine:
        assert any(rollout.n_changed for rollout in engine.generate(make_requests(9, samples=1)))
    words = refused("pair", "expo", peaked_pair.base, peaked_pair.rl, "--gamma", "0.5", "--out", out)
    states(words, "--out", out)


def test_shards_are_kept_and_bfloat16_becomes_float32(peaked_pair, tmp_path):
    """A checkpoint in several files gives one in as many; a small step is not lost in the rounding to bfloat16."""
    places = {}
    for role in ("base", "rl"):
        folder = Path(shutil.copytree(getattr(peaked_pair, role), tmp_path / role))
        tensors = {name: t.bfloat16() for name, t in load_file(folder / "model.safetensors").items()}
        (folder / "model.safetensors").unlink()
        names = sorted(tensors)
        cut = len(names) // (2 if role == "rl" else 3)  # not cut alike
        parts = {"a.safetensors": names[:cut], "b.safetensors": names[cut:]}
        for file, mine in parts.items():
            save_file({name: tensors[name] for name in mine}, folder / file)
        weight_map = {name: file for file, mine in parts.items() for name in mine}
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        places[role] = tensors
    write_expo(Pair(base=str(tmp_path / "base"), rl=str(tmp_path / "rl")), 0.05, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
    index = json.loads((tmp_path / "out" / INDEX).read_text())["weight_map"]
    assert len(set(index.values())) == 2
    moved = changed = 0
    for name, file in index.items():
        base, rl = places["base"][name].float(), places["rl"][name].float()
        expected = rl + 0.05 * (rl - base)
        assert torch.equal(load_file(tmp_path / "out" / file)[name], expected)
        changed += int((rl != base).sum())
        moved += int((expected != rl).sum())
    assert moved > 0.99 * changed > 0


def test_checkpoints_that_cannot_be_combined_are_refused(peaked_pair, tmp_path):
    def based_on(name, change):
        return peaked_pair.replace(base=variant(peaked_pair.base, tmp_path / name, change=change))

    without, small = based_on("a", drop(HEAD)), based_on("b", lambda it: it.update({HEAD: torch.zeros(3, 64)}))
    empty = based_on("c", lambda tensors: None)
    Path(empty.base, "model.safetensors").unlink()
    for pair, words in (
        (without, "base lm_head.weight"),
        (small, "lm_head.weight 3 64 base"),
        (empty, "base"),
    ):
        with refuses(*words.split()):
            write_expo(pair, 0.1, tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""Base with the first directions of RL's change: against numpy's singular values, and the command that writes it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_dir.checkpoints.low_rank import energies, low_rank, write_low_rank
from rlvr_dir.decode import open_engine
from tests.audit.test_weights import experts
from tests.checkpoints.test_expo import TRANSFORMERS, state
from tests.commands import refused, run
from tests.decode.requests import make_requests
from tests.facts import refuses, states


def matrices(rows, columns, rank):
    random = torch.Generator().manual_seed(rows)
    base = torch.randn(rows, columns, generator=random)
    change = torch.randn(rows, rank, generator=random) @ torch.randn(rank, columns, generator=random)
    return base, base + 0.01 * change


@pytest.mark.parametrize(("rows", "columns"), [(12, 30), (30, 12)])
def test_energies_are_those_of_the_singular_values(rows, columns):
    base, rl = matrices(rows, columns, 2)
    found, expected = energies(rl - base), np.linalg.svd((rl - base).numpy(), compute_uv=False) ** 2
    assert found.shape == (12,)
    assert np.allclose(found, expected, atol=1e-9)
    assert np.allclose(found[2:], 0, atol=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(12, 30), (30, 12)])
def test_the_best_part_of_a_rank(rows, columns):
    base, rl = matrices(rows, columns, 2)
    left, values, right = np.linalg.svd((rl - base).numpy(), full_matrices=False)
    first = base.numpy() + values[0] * np.outer(left[:, 0], right[0])
    assert np.allclose(low_rank(base, rl, 1), first, atol=1e-6)
    assert torch.allclose(low_rank(base, rl, 2), rl, atol=1e-6)
    long = low_rank(base, rl, 1, rescale=True) - base
    assert float(long.norm()) == pytest.approx(float((rl - base).norm()), rel=1e-5)
    assert torch.equal(low_rank(base[0], rl[0], 1), rl[0]), "a vector has rank 1"
    assert torch.equal(low_rank(base, base, 1), base)


def bfloat16_pair(pair, folder):
    """A pair as it is published: both models rounded to bfloat16."""
    places = {}
    for role in ("base", "rl"):
        place = Path(shutil.copytree(getattr(pair, role), folder / role))
        tensors = load_file(place / "model.safetensors")
        save_file({name: t.bfloat16() for name, t in tensors.items()}, place / "model.safetensors", {"format": "pt"})
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
        places[role] = str(place)
    return pair.replace(**places)


@pytest.mark.parametrize("rescale", [False, True])
def test_of_a_bfloat16_pair_it_has_this_rank_as_it_is_decoded(peaked_pair, tmp_path, rescale):
    pair = bfloat16_pair(peaked_pair, tmp_path)
    write_low_rank(pair, 1, tmp_path / "out", rescale=rescale)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
    with open_engine(pair.replace(rl=str(tmp_path / "out")), TRANSFORMERS) as engine:
        engine.start()
        base, written = (dict(engine.models[role].named_parameters()) for role in ("base", "rl"))
        for name, weight in written.items():
            delta = (weight - base[name]).detach()
            if weight.ndim == 2 and delta.any():
                assert int(torch.linalg.matrix_rank(delta, rtol=1e-3)) == 1, name
                rounded = (weight.bfloat16().float() - base[name]).detach()
                assert int(torch.linalg.matrix_rank(rounded, rtol=1e-3)) > 1, f"as it was written before: {name}"


def test_each_expert_of_a_stack_has_this_rank(tmp_path):
    base, rl, _ = experts([4, 5])
    found = low_rank(base, rl, 2)
    for expert in range(2):
        assert torch.equal(found[expert], low_rank(base[expert], rl[expert], 2))
        assert int(torch.linalg.matrix_rank(found[expert] - base[expert], rtol=1e-3)) == 2


def test_an_adapter_and_a_quantised_rl_are_written_out_first(peaked_pair, tmp_path):
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    model = AutoModelForCausalLM.from_pretrained(peaked_pair.base)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    write_low_rank(peaked_pair.replace(rl=str(tmp_path / "adapter")), 3, tmp_path / "out")
    merged, written = adapted.merge_and_unload().state_dict(), state(tmp_path / "out")
    for name, weight in written.items():
        assert torch.allclose(weight, merged[name], atol=1e-6), name
    with open_engine(peaked_pair.replace(rl=str(tmp_path / "out")), TRANSFORMERS) as engine:
        assert [*engine.generate(make_requests(2, samples=1))]


def test_nothing_is_written_of_numbers_that_are_none(peaked_pair, tmp_path):
    place = Path(shutil.copytree(peaked_pair.rl, tmp_path / "rl"))
    tensors = load_file(place / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    with refuses("rl", "model.norm.weight"):
        write_low_rank(peaked_pair.replace(rl=str(place)), 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_a_checkpoint_that_decodes(peaked_pair, tmp_path):
    out = tmp_path / "rank-1"
    said = run("pair", "low-rank", peaked_pair.base, peaked_pair.rl, "--rank", "1", "--out", out).stdout
    assert said.startswith(f"written: {out}; `rlvr-dir eval --base ")
    base, rl, written = (state(place) for place in (peaked_pair.base, peaked_pair.rl, out))
    for name, weight in written.items():
        ranks = [int(torch.linalg.matrix_rank(w - base[name], rtol=1e-3)) for w in (weight, rl[name]) if w.ndim == 2]
        assert ranks in ([], [0, 0]) or (ranks[0] == 1 < ranks[1]), name
        assert weight.ndim == 2 or torch.equal(weight, rl[name]), name
    with open_engine(peaked_pair.replace(rl=str(out)), TRANSFORMERS) as engine:
        assert any(rollout.n_changed for rollout in engine.generate(make_requests(9, samples=1)))


def test_the_tiny_pair_has_names_and_what_is_not_there_is_said(tmp_path):
    run("pair", "low-rank", "tiny@base", "tiny@8", "--rank", "1", "--out", tmp_path / "tiny")
    assert (tmp_path / "tiny" / "model-00001.safetensors").is_file()
    for command in (["low-rank", "--rank", "1"], ["expo", "--gamma", "1"]):
        words = refused("pair", *command, "tiny@base", "./nowhere", "--out", tmp_path / "other")
        states(words, "./nowhere")


def test_a_part_of_full_rank_is_rl(peaked_pair, tmp_path):
    write_low_rank(peaked_pair, 10_000, tmp_path / "all")
    rl, written = state(peaked_pair.rl), state(tmp_path / "all")
    assert all(torch.allclose(weight, rl[name], atol=1e-6) for name, weight in written.items())

"""Weights of made checkpoints against numpy and whole decompositions; and the command on the tiny pair."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.analysis import weights
from harness.analysis.weights import RANK, weight_statistics
from harness.errors import UserError
from harness.spec import Pair
from tests.commands import run


@pytest.fixture
def pair(tmp_path):
    random = torch.Generator().manual_seed(0)
    base = {
        "model.embed_tokens.weight": torch.randn(50, 12, generator=random).bfloat16(),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(40, 30, generator=random) * torch.linspace(3, 0.1, 30),
        "model.layers.1.self_attn.q_proj.weight": torch.randn(40, 30, generator=random),
        "model.norm.weight": torch.ones(12),
        "lm_head.weight": torch.randn(50, 12, generator=random),
    }
    rl = {name: tensor.clone() for name, tensor in base.items() if name != "lm_head.weight"}
    base["wider"], rl["wider"] = torch.ones(2), torch.ones(3)
    rl["model.embed_tokens.weight"][3] += 0.5
    rl["model.layers.0.self_attn.q_proj.weight"] += torch.outer(torch.ones(40), torch.linspace(0, 0.2, 30))
    rl["model.layers.1.self_attn.q_proj.weight"][0, :7] += 1e-6
    for name, tensors in (("base", base), ("rl", rl)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    return Pair(base=str(tmp_path / "base"), rl=str(tmp_path / "rl")), base, rl


@pytest.mark.parametrize("at_once", [2**24, 7])
def test_counts_and_norms_are_those_of_the_whole_tensors(pair, monkeypatch, at_once):
    monkeypatch.setattr(weights, "AT_ONCE", at_once)
    named, base, rl = pair
    found = weight_statistics(named, progress=False)
    tensors = found.tables["tensors"]
    names = {name: found.facts[name] for name in ("only_base", "only_rl", "other_shape")}
    assert names == {"only_base": ["lm_head.weight"], "only_rl": [], "other_shape": ["wider"]}
    assert [(row["layer"], row["kind"]) for row in tensors] == [
        (0, "self_attn.q_proj"), (1, "self_attn.q_proj"), (None, "embed_tokens"), (None, "norm"),
    ]  # fmt: skip
    for row in tensors:
        one, other = (side[row["name"]].double().numpy() for side in (base, rl))
        assert row["numbers"] == one.size
        assert row["changed"] == (one != other).sum()
        assert row["moved"] == (np.abs(one - other) > 1e-5).sum()
        assert row["norm"] == pytest.approx(np.linalg.norm(one))
        assert row["difference"] == pytest.approx(np.linalg.norm(other - one))
    assert [row["changed"] > row["moved"] for row in tensors] == [False, True, False, False]
    assert "drift" not in tensors[3]


def test_singular_directions_are_those_of_a_whole_decomposition(pair):
    named, base, rl = pair
    row = weight_statistics(named, progress=False).tables["tensors"][0]
    one, other = (side[row["name"]].double().numpy() for side in (base, rl))
    (u, s, _), (v, t, _) = (np.linalg.svd(each, full_matrices=False) for each in (one, other))
    u, v, s, t = u[:, :RANK], v[:, :RANK], s[:RANK], t[:RANK]
    difference = other - one
    assert row["drift"] == pytest.approx(np.linalg.norm(t - s) / np.linalg.norm(s), rel=2e-2)
    assert row["rotation"] == pytest.approx(1 - np.linalg.norm(u.T @ v) ** 2 / RANK, abs=2e-2)
    energy = np.linalg.norm(u.T @ difference) ** 2 / np.linalg.norm(difference) ** 2
    assert row["principal"] == pytest.approx(energy, abs=2e-2)
    assert row["stable_rank"] == pytest.approx(1.0, abs=1e-3)  # an outer product
    assert row["chance"] == RANK / 40


def test_what_cannot_be_compared_is_one_sentence(pair, tmp_path):
    named, *_ = pair
    (tmp_path / "none").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    for rl, sentence in (("none", "holds no model"), ("adapter", "is an adapter")):
        with pytest.raises(UserError, match=sentence):
            weight_statistics(named.replace(rl=str(tmp_path / rl)), progress=False)
    (tmp_path / "other").mkdir()
    save_file({"x": torch.ones(2)}, tmp_path / "other" / "model.safetensors")
    with pytest.raises(UserError, match="no tensor in common"):
        weight_statistics(named.replace(rl=str(tmp_path / "other")), progress=False)


def _changed(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_matrix_of_zeros_has_no_directions_and_small_changes_have(pair, tmp_path):
    """Squares of small differences vanish in float32: their energy was 0, and the command ended in a traceback."""
    _changed(tmp_path / "base", lambda tensors: tensors["model.embed_tokens.weight"].zero_())
    one = "model.layers.1.self_attn.q_proj.weight"
    sides = [torch.zeros(40, 30), torch.zeros(40, 30)]
    sides[0][0, 0], sides[1][0, 0] = 1e-25, 3e-25
    for role, side in zip(("base", "rl"), sides, strict=True):
        _changed(tmp_path / role, lambda tensors, side=side: tensors.update({one: side}))
    found = {row["name"]: row for row in weight_statistics(pair[0], progress=False).tables["tensors"]}
    assert "drift" not in found["model.embed_tokens.weight"]
    assert found[one]["principal"] == pytest.approx(1)
    assert found[one]["stable_rank"] == pytest.approx(1)


def test_the_command_measures_the_tiny_pair_and_is_drawn(tmp_path):
    run("analyse", "weights", "--out", tmp_path)
    tensors = json.loads((tmp_path / "weights.json").read_text())["tables"]["tensors"]
    assert sum(row["numbers"] for row in tensors) > 400_000
    assert all(0 <= row["rotation"] <= 1 for row in tensors if "rotation" in row)
    run("report", "--analysis", tmp_path / "weights.json", "--out", tmp_path / "report")
    assert "are another number in RL" in (tmp_path / "report" / "report.md").read_text()

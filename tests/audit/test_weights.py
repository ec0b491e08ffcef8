"""Each row about weights beside numpy, on checkpoints whose change is known: of rank 2, in bfloat16, an adapter."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr_dir.audit.weights import CLAIMS, weight_changes
from rlvr_dir.checkpoints.adapter import trained_on
from rlvr_dir.config import Pair
from tests.facts import refuses

NAMES = {
    "attention": "model.layers.0.self_attn.q_proj.weight", "MLP": "model.layers.1.mlp.up_proj.weight",
    "embeddings": "model.embed_tokens.weight", "vectors": "model.layers.1.input_layernorm.weight",
}  # fmt: skip
SHAPES = {"attention": (20, 20), "MLP": (40, 20), "embeddings": (50, 20), "vectors": (20,)}


def checkpoint(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.fixture
def made(tmp_path):
    """A pair: the attention's ΔW has rank 2 with singular values 3 and 1, the MLP's a change of 1e-6 everywhere."""
    random = torch.Generator().manual_seed(0)
    base = {NAMES[kind]: torch.randn(*shape, generator=random) for kind, shape in SHAPES.items()}
    left, right = (torch.linalg.qr(torch.randn(20, 20, generator=random))[0] for _ in range(2))
    rl = {name: tensor.clone() for name, tensor in base.items()}
    rl[NAMES["attention"]] += left[:, :2] @ torch.diag(torch.tensor([3.0, 1.0])) @ right[:2]
    rl[NAMES["MLP"]] += 1e-6
    return Pair(base=checkpoint(tmp_path / "base", base), rl=checkpoint(tmp_path / "rl", rl)), base, rl


def values(changes):
    return {claim.name.removeprefix("weights/"): claim.estimate(changes) for claim in CLAIMS}


def test_a_change_of_rank_two(made):
    pair, base, rl = made
    found = values(weight_changes(pair))
    numbers = {name: np.prod(shape) for name, shape in SHAPES.items()}
    whole = sum(numbers.values())
    pairs = [(base[name].numpy(), rl[name].numpy()) for name in base]

    def share(same):
        return sum(same(a, b).sum() for a, b in pairs) / whole

    assert found["equal"].value == pytest.approx(share(lambda a, b: a == b))
    assert found["within_atol"].value == pytest.approx(share(lambda a, b: abs(a - b) <= 1e-5))
    assert found["within_rtol"].value == pytest.approx(
        share(lambda a, b: abs(b - a) <= 1e-3 * np.maximum(abs(a), abs(b)))
    )
    rounded = [(base[name].bfloat16(), rl[name].bfloat16()) for name in base]
    assert found["equal_bf16"].value == pytest.approx(sum(int((a == b).sum()) for a, b in rounded) / whole)
    for kind, name in NAMES.items():
        change = np.linalg.norm(rl[name] - base[name]) / np.linalg.norm(base[name])
        assert found[f"change/{kind.lower()}"].value == pytest.approx(change, rel=1e-5)
    every = [np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1)]
    assert found["change/all"].value == pytest.approx(np.linalg.norm(every[1] - every[0]) / np.linalg.norm(every[0]))
    assert found["spectra"].value == 2
    assert all(estimate.low is None for estimate in found.values()), "nothing was sampled"


def test_spectra(made):
    pair, *_ = made
    changes = weight_changes(pair).set_index("tensor")
    attention, mlp = changes.loc[NAMES["attention"]], changes.loc[NAMES["MLP"]]
    assert (attention["rank"], attention.full_rank) == (2, 20)
    assert attention["first"] == pytest.approx(9, rel=1e-4)
    assert attention.eight == pytest.approx(10, rel=1e-4)
    assert attention.effective_rank == pytest.approx(np.exp(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1))), rel=1e-4)
    assert mlp["first"] == pytest.approx(mlp.change, rel=1e-2), "one number everywhere has rank 1"
    found = values(changes.reset_index())
    assert found["first"].value == pytest.approx(0.9, abs=1e-4), "a ratio of energies, not a mean of shares"


def test_a_checkpoint_and_itself(made):
    pair, *_ = made
    same = Pair(base=pair.base, rl=pair.base)
    found = values(weight_changes(same))
    for name in ("equal", "equal_bf16", "within_atol", "within_rtol"):
        assert found[name].value == 1
    for name in ("rank", "effective_rank", "spectra", "apart", *(f"change/{kind.lower()}" for kind in NAMES)):
        assert found[name].value == 0, name
    assert found["first"].value is None


def test_too_many_matrices_are_sampled_and_have_intervals(tmp_path):
    random = torch.Generator().manual_seed(1)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(30)]
    base = {name: torch.randn(6, 8, generator=random) for name in names}
    rl = {name: tensor + 0.1 * torch.randn(6, 8, generator=random) for name, tensor in base.items()}
    pair = Pair(base=checkpoint(tmp_path / "base", base), rl=checkpoint(tmp_path / "rl", rl))
    whole, part = weight_changes(pair), weight_changes(pair, budget=12 * 6 * 8 * 6)
    assert part.spectrum.sum() == 12
    assert values(part)["spectra"].value == 12
    for name in ("rank", "effective_rank", "first", "hundredth"):
        sampled, known = values(part)[name], values(whole)[name]
        assert known.low is None
        assert name == "rank" or (sampled.low or 0) <= (known.value or 0) <= (sampled.high or 1)
    assert part.equals(weight_changes(pair, budget=12 * 6 * 8 * 6)), "by a seed"


def test_what_is_in_one_checkpoint_alone_is_left_out(made, tmp_path):
    pair, _, rl = made
    own = {**rl, "lm_head.weight": torch.zeros(50, 20), NAMES["vectors"]: torch.zeros(21)}
    other = Pair(base=pair.base, rl=checkpoint(tmp_path / "other", own))
    changes = weight_changes(other).set_index("tensor")
    assert np.isnan(changes.loc["lm_head.weight"].numbers)
    assert np.isnan(changes.loc[NAMES["vectors"]].numbers)
    found = values(changes.reset_index())
    assert (found["equal"].value, found["apart"].value) == (pytest.approx(1000 / 2200), 2)
    strange = Pair(base=pair.base, rl=checkpoint(tmp_path / "strange", {"x": torch.zeros(3)}))
    with refuses("base", "0", "5"):
        weight_changes(strange)


def test_an_adapter_is_merged_first(peaked_pair, tmp_path):
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(peaked_pair.base)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    pair = Pair(base=peaked_pair.base, rl=str(tmp_path / "adapter"))
    assert trained_on(pair.rl) is not None
    changes = weight_changes(pair)
    changed = changes[changes.change > 0]
    assert len(changed)
    assert changed.tensor.str.endswith("q_proj.weight").all()
    assert (changed["rank"] == 2).all()
    assert len(load_file(Path(peaked_pair.base) / "model.safetensors")) == len(changes)
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 2

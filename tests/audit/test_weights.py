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
    smallest = differ = 0
    for name, tensor in base.items():
        size = tensor.abs().numpy().ravel()
        moved = (tensor.bfloat16() != rl[name].bfloat16()).numpy().ravel()
        differ += moved.sum()
        smallest += moved[np.argsort(size)[: -(-size.size // 10)]].sum()
    assert found["smallest"].value == pytest.approx(smallest / differ)
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


def test_two_types_are_rounded_to_the_coarser_one(made, tmp_path):
    """A bfloat16 base beside its float32 self differs in nothing; only a change that bfloat16 shows is one."""
    pair, base, rl = made
    narrow = {name: tensor.bfloat16() for name, tensor in base.items()}
    beside = Pair(base=checkpoint(tmp_path / "narrow", narrow), rl=pair.base)
    same = weight_changes(beside)
    assert (same.equal == same.numbers).all()
    assert {*same.rounded} == {"bfloat16"}
    found = values(weight_changes(beside.replace(rl=pair.rl)))
    numbers = sum(tensor.numel() for tensor in base.values())
    equal = sum(int((narrow[name] == rl[name].bfloat16()).sum()) for name in base)
    assert found["equal"].value == found["equal_bf16"].value == pytest.approx(equal / numbers)
    change = sum(float((rl[name].bfloat16().float() - narrow[name].float()).square().sum()) for name in base)
    size = sum(float(tensor.float().square().sum()) for tensor in narrow.values())
    assert found["change/all"].value == pytest.approx((change / size) ** 0.5, rel=1e-5)
    assert "rounded" not in weight_changes(pair)


EXPERTS = "model.layers.0.mlp.experts.down_proj"


def experts(rank_of):
    """A stack of experts, and one whose changes have these ranks; and the first energies by numpy."""
    random = torch.Generator().manual_seed(3)
    base = torch.randn(len(rank_of), 12, 10, generator=random)
    changes = [torch.randn(12, r, generator=random) @ torch.randn(r, 10, generator=random) for r in rank_of]
    energies = [np.linalg.svd(change.numpy(), compute_uv=False) ** 2 for change in changes]
    return base, base + torch.stack(changes), energies


def test_each_expert_of_a_stack_is_a_matrix(tmp_path):
    base, rl, energies = experts([1, 3, 6])
    router = torch.ones(3, 10)
    pair = Pair(
        base=checkpoint(tmp_path / "base", {EXPERTS: base, "model.layers.0.mlp.gate.weight": router}),
        rl=checkpoint(tmp_path / "rl", {EXPERTS: rl, "model.layers.0.mlp.gate.weight": router}),
    )
    changes = weight_changes(pair)
    stack = changes[changes.tensor == EXPERTS]
    assert stack["rank"].tolist() == [1, 3, 6]
    assert (stack.kind == "MLP").all()
    found = values(changes)
    assert found["spectra"].value == 3
    assert found["first"].value == pytest.approx(sum(e[0] for e in energies) / sum(e.sum() for e in energies), rel=1e-4)
    assert found["rank"].value == pytest.approx(np.mean([1, 3, 6]) / 10)
    assert found["first"].low is None, "all matrices were read"
    assert changes.numbers.sum() == 3 * 12 * 10 + 30


def test_experts_that_are_split_on_one_side_have_no_change(tmp_path):
    base, rl, _ = experts([1, 3, 6])
    rest = {"model.layers.0.mlp.gate.weight": torch.ones(3, 10), NAMES["embeddings"]: torch.ones(90, 10)}
    split = {f"model.layers.0.mlp.experts.{i}.down_proj.weight": matrix.clone() for i, matrix in enumerate(rl)}
    pair = Pair(
        base=checkpoint(tmp_path / "base", {EXPERTS: base, **rest}),
        rl=checkpoint(tmp_path / "rl", {**split, **rest}),
    )
    found = values(weight_changes(pair))
    assert found["change/mlp"].value is None
    assert (found["change/embeddings"].value, found["apart"].value) == (0, 4)


@pytest.mark.parametrize("role", ["base", "rl"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["MLP", "vectors"])
def test_numbers_that_are_none_are_named(made, tmp_path, role, value, kind):
    pair, *tensors = made
    broken = {name: tensor.clone() for name, tensor in dict(zip(("base", "rl"), tensors, strict=True))[role].items()}
    broken[NAMES[kind]].view(-1)[5] = value
    with refuses(role, NAMES[kind]):
        weight_changes(pair.replace(**{role: checkpoint(tmp_path / "broken", broken)}))


def test_a_vector_stored_as_a_matrix_is_no_sample(tmp_path):
    """A matrix of one row has no spectrum, so that those of all others are no sample, and have no interval."""
    random = torch.Generator().manual_seed(4)
    base = {
        name: torch.randn(shape, generator=random) for name, shape in {"a.weight": (8, 6), "b.weight": (1, 6)}.items()
    }
    rl = {name: tensor + 0.1 * torch.randn(tensor.shape, generator=random) for name, tensor in base.items()}
    pair = Pair(base=checkpoint(tmp_path / "base", base), rl=checkpoint(tmp_path / "rl", rl))
    assert values(weight_changes(pair))["first"].low is None


def test_masks_and_positions_are_no_weights(made, tmp_path):
    pair, *tensors = made
    more = {"model.position_ids": torch.arange(50), "model.mask": torch.ones(2, 2, dtype=torch.bool)}
    base, rl = (checkpoint(tmp_path / f"with-{i}", {**each, **more}) for i, each in enumerate(tensors))
    ours, theirs = weight_changes(Pair(base=base, rl=rl)), weight_changes(pair)
    assert ours.equals(theirs)


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

"""A sharpened copy has base's logits over a temperature, whatever the norm, and is a checkpoint like any other."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlvr_dir.checkpoints.sharpen import write_sharpened
from rlvr_dir.tiny import tiny_pair
from tests.commands import refused, run
from tests.facts import refuses, states

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
}  # fmt: skip


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.arange(3, 19)[None]).logits[0]


def test_the_command_writes_a_copy_whose_logits_are_divided(tmp_path):
    base, out = tiny_pair().base, tmp_path / "sharp"
    run("pair", "sharpen", base, "--temperature", "0.5", "--out", out)
    assert torch.allclose(logits(out), logits(base) / 0.5, atol=1e-4)
    assert states(refused("pair", "sharpen", base, "--temperature", "0.5", "--out", out), "--out", out)


@pytest.mark.parametrize("kind", ["gemma", "phi", "gpt_neox"])
def test_norms_that_add_one_or_a_bias_are_divided_too(kind, tmp_path):
    config = AutoConfig.for_model(kind, **SMALL)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(tmp_path / "base")
    write_sharpened(str(tmp_path / "base"), 0.7, tmp_path / "sharp")
    assert torch.allclose(logits(tmp_path / "sharp"), logits(tmp_path / "base") / 0.7, atol=1e-4)


def test_a_model_that_caps_its_logits_is_refused(tmp_path):
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gemma2", **SMALL)).save_pretrained(tmp_path / "base")
    with refuses("base", tmp_path):
        write_sharpened(str(tmp_path / "base"), 0.7, tmp_path / "sharp")
    assert not (tmp_path / "sharp").exists()

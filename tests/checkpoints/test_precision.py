"""The reference engine's arithmetic: float32 without TensorFloat-32, a head in float32, grouped heads as usual ones."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from rlvr_dir.checkpoints.precision import IEEE_FLOAT32
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.decode.caches import GROUPED, group_heads, growing_cache


def loaded(peaked_pair, dtype, **environment):
    """What a process finds that has loaded the reference engine: Triton's default, then cuBLAS's and cuDNN's."""
    code = (
        "import os, sys, torch, triton\n"
        "from rlvr_dir.decode import open_engine\n"
        "from rlvr_dir.config import EngineSpec, Pair\n"
        "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True\n"
        "open_engine(Pair(base=sys.argv[1], rl=sys.argv[2]), EngineSpec(backend='transformers', dtype=sys.argv[3]))\n"
        "print(triton.knobs.language.fp32_default, os.environ.get('NVIDIA_TF32_OVERRIDE'),\n"
        "      torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)\n"
    )
    clean = {name: value for name, value in os.environ.items() if name not in IEEE_FLOAT32}
    command = [sys.executable, "-c", code, peaked_pair.base, peaked_pair.rl, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**clean, **environment})
    return done.stdout.split()


ANOTHER = pytest.mark.whole(reason="7 s in a process of its own")


@pytest.mark.parametrize(
    ("dtype", "environment", "expected"),
    [
        ("float32", {}, ["ieee", "0", "False", "False"]),
        pytest.param("float32", {"TRITON_F32_DEFAULT": "tf32x3"}, ["tf32x3", "0", "False", "False"], marks=ANOTHER),
        pytest.param("bfloat16", {}, ["None", "None", "True", "True"], marks=ANOTHER),
    ],
    ids=["float32", "as-the-user-says", "bfloat16"],
)
def test_no_tensorfloat_in_float32(peaked_pair, dtype, environment, expected):
    pytest.importorskip("triton", reason="Triton is not installed")
    assert loaded(peaked_pair, dtype, **environment) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_head_is_computed_in_float32(peaked_pair, dtype):
    ids = list(range(5, 45))
    with open_engine(peaked_pair, EngineSpec(backend="transformers", dtype=dtype)) as engine:
        for logits, model in zip(engine.logits(ids), engine.models.values(), strict=True):
            hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
            assert hidden.dtype == getattr(torch, dtype)
            exact = hidden.double() @ model.lm_head.weight.double().T
            assert (logits - exact).abs().max() < 1e-4
            assert (logits.to(hidden.dtype) != logits).float().mean() > 0.9  # no multiples of 1/8 around 16
        assert engine.info()["head_dtype"] == "float32"


def test_float32_engines_say_no_more_than_before(transformers_engine):
    assert "head_dtype" not in transformers_engine.info()


@torch.inference_mode()
def test_grouped_heads_give_the_logits_of_the_usual_attention(peaked_pair):
    usual = AutoModelForCausalLM.from_pretrained(peaked_pair.rl, dtype=torch.float32).eval()
    grouped = AutoModelForCausalLM.from_pretrained(peaked_pair.rl, dtype=torch.float32).eval()
    group_heads(grouped)
    assert grouped.config._attn_implementation == GROUPED != usual.config._attn_implementation
    assert usual.config.num_attention_heads > usual.config.num_key_value_heads
    ids = torch.randint(4, 290, (3, 40))
    mask = torch.ones_like(ids)
    mask[1, :7] = mask[2, :20] = 0
    for model, cache in ((usual, DynamicCache()), (grouped, growing_cache())):
        first = model(input_ids=ids[:, :30], attention_mask=mask[:, :30], past_key_values=cache, use_cache=True).logits
        rest = model(input_ids=ids[:, 30:], attention_mask=mask, past_key_values=cache, use_cache=True).logits
        if model is usual:
            expected = torch.cat([first, rest], 1)[mask.bool()]
        else:
            got = torch.cat([first, rest], 1)[mask.bool()]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)

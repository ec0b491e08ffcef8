"""The reference engine's logits are float32 sums, whatever type the model is in."""

import pytest
import torch

from harness.decode import open_engine
from harness.spec import EngineSpec


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

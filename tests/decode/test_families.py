"""A family that vLLM serves through its Transformers backend: Olmo 3, whose attention looks back over a window."""

import pytest
import torch

from rlvr_dir.bench.random_pair import tokenizer
from rlvr_dir.checkpoints.context import positions
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode import open_engine
from tests.conftest import vllm_spec
from tests.decode.requests import assert_same, make_requests

WINDOW = 16


@pytest.fixture(scope="module")
def olmo(tmp_path_factory):
    """A random pair of three layers with a window and one without, of which RL is a small step from base."""
    from transformers import Olmo3Config, Olmo3ForCausalLM

    folder, tok = tmp_path_factory.mktemp("olmo"), tokenizer(300)

    def model(seed):
        torch.manual_seed(seed)
        config = Olmo3Config(
            vocab_size=len(tok) + 20, hidden_size=64, num_hidden_layers=4, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=192, max_position_embeddings=1024, sliding_window=WINDOW,
            bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.15,
        )  # fmt: skip
        made = Olmo3ForCausalLM(config).float()
        with torch.no_grad():
            made.lm_head.weight *= 6.0
        return made

    base, other = model(0), model(1)
    assert base.config.layer_types == ["sliding_attention"] * 3 + ["full_attention"]
    assert positions(base.config) == 1024
    for role in ("base", "rl"):
        base.save_pretrained(folder / role)
        tok.save_pretrained(folder / role)
        with torch.no_grad():
            for ours, theirs in zip(base.parameters(), other.parameters(), strict=True):
                ours += 0.0075 * theirs
    return Pair(base=str(folder / "base"), rl=str(folder / "rl"))


@pytest.mark.vllm
def test_of_olmo_3_both_engines_give_the_same_tokens(olmo):
    """Its self-test could not make transformers' model in a process where vLLM had changed the model's class."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    requests = make_requests(24, samples=1)
    with open_engine(olmo, EngineSpec(backend="transformers")) as engine:
        before = list(engine.generate(requests))
    assert max(len(rollout.prompt_token_ids) for rollout in before) > 4 * WINDOW
    with open_engine(olmo, vllm_spec(self_test="full")) as engine:
        ours = list(engine.generate(requests))
        assert engine.self_test not in ("off", "")
    assert_same(ours, before)
    assert sum(rollout.n_changed for rollout in ours) > 0
    with open_engine(olmo, EngineSpec(backend="transformers")) as engine:  # as if vLLM had never been there
        assert_same(engine.generate(requests), before)

"""What does not fit a GPU is refused before it loads, or decoded fewer rows at a time, with the same tokens."""

import warnings

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from rlvr_dir.checkpoints import memory
from rlvr_dir.checkpoints.memory import GIB, ModelShape, batch_bytes, check_rows, check_weights
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine, transformers_pair
from rlvr_dir.decode.lock_step import LockStep
from rlvr_dir.errors import UserError
from tests.decode.requests import assert_same, make_requests
from tests.facts import refuses, states, warns_of

QWEN_7B = Qwen2Config(
    vocab_size=152_064, hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
    intermediate_size=18_944, tie_word_embeddings=False,
)  # fmt: skip
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def shape():
    return ModelShape.of(QWEN_7B)


def test_parameters_are_counted_as_a_loaded_model_has_them(peaked_pair):
    model = AutoModelForCausalLM.from_pretrained(peaked_pair.rl)
    assert ModelShape.of(model.config).parameters == model.num_parameters()


def test_the_caches_of_a_real_batch_are_within_what_is_estimated(transformers_engine, monkeypatch):
    """At every step, for the rows and tokens that it has."""
    shapes, steps = transformers_engine.shapes, []
    compact = LockStep.compact

    def look(batch):
        layers = [layer for cache in batch.caches.values() for layer in cache.layers]
        held = sum(room.nbytes for layer in layers for room in layer._room.values())
        steps.append((len(batch.running), layers[0].keys.shape[-2], held))
        compact(batch)

    monkeypatch.setattr(LockStep, "compact", look)
    list(transformers_engine.generate(make_requests(6, samples=2, max_tokens=200)))
    assert max(tokens for _, tokens, _ in steps) > 100
    for rows, tokens, held in steps:
        exact = rows * sum(shape.kv * tokens for shape in shapes) * 4
        assert exact <= held <= batch_bytes(shapes, rows, tokens, 0, 4)


@pytest.fixture
def a_gpu_with(monkeypatch):
    """Describes the free memory of a device that this machine does not have."""
    return lambda gib: monkeypatch.setattr(memory, "free_bytes", lambda device: int(gib * GIB))


def test_two_models_that_do_not_fit_a_gpu(shape, a_gpu_with):
    a_gpu_with(24)
    with pytest.raises(UserError) as error:
        check_weights([shape] * 2, "bfloat16", GPU)
    assert error.value.argument == "backend"
    states(error.value, "transformers", 7.6, 28.4, 24, "vllm")
    check_weights([shape], "bfloat16", GPU)
    with warns_of("28.4", "bfloat16", "24"):
        check_weights([shape] * 2, "bfloat16", CPU)


def test_rows_that_do_not_fit_a_gpu(shape, a_gpu_with):
    for gib, new, expected in ((40, 20_000, 13), (40, 1_000, 180), (40, 100, 256)):
        a_gpu_with(gib)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = check_rows([shape] * 2, 200, new, "bfloat16", GPU, 256)
        assert rows == expected
        assert batch_bytes([shape] * 2, rows, 200, new, 2) <= gib * GIB
        assert rows == 256 or batch_bytes([shape] * 2, rows + 1, 200, new, 2) > 0.92 * gib * GIB
    a_gpu_with(40)
    with warns_of("13", "256", "200", "20000"):
        assert check_rows([shape] * 2, 200, 20_000, "bfloat16", GPU, 256) == 13
    with warns_of("256", "max_num_seqs"):
        assert check_rows([shape] * 2, 200, 20_000, "bfloat16", CPU, 256) == 256
    a_gpu_with(2)
    with refuses("max_tokens", "20000"):
        check_rows([shape] * 2, 200, 20_000, "bfloat16", GPU, 256)


def test_fewer_rows_at_a_time_give_the_same_tokens(peaked_pair, transformers_engine, monkeypatch):
    requests = make_requests(6)
    whole = list(transformers_engine.generate(requests))
    prompt = max(len(rollout.prompt_token_ids) for rollout in whole)
    three = batch_bytes(transformers_engine.shapes, 3, prompt, 48, 4)
    monkeypatch.setattr(memory, "LIMITED", {"cpu"})
    sizes = []
    monkeypatch.setattr(memory, "free_bytes", lambda device: 200 << 20)
    with open_engine(peaked_pair, EngineSpec(backend="transformers", dtype="float32")) as engine:
        monkeypatch.setattr(memory, "free_bytes", lambda device: int(three / 0.92) + 1000)
        batch = transformers_pair.LockStep
        monkeypatch.setattr(transformers_pair, "LockStep", lambda of, some: sizes.append(len(some)) or batch(of, some))
        with warns_of("3", "12"):
            assert_same(engine.generate(requests), whole)
    assert sizes == [3, 3, 3, 3]

"""What a plan takes of GPUs: sizes against the published configurations, what can be shared, and who is refused."""

import json
import warnings
from dataclasses import replace

import pytest

from harness import price
from harness.cli.sweep import read
from harness.decode.memory import GIB, shape_of, vllm_bytes
from harness.price import CARDS, Machine, PairPrice
from harness.spec import EngineSpec, preset
from harness.sweep import sweeps_dir
from harness.train.defaults import complete
from tests.commands import refused, run

# As the hub has them: config.json, the parameters that its page counts, bytes of cache a token in bfloat16.
QWEN25_7B = json.loads("""{
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
  "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
  "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
  "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
  "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064
}""")
QWEN25_32B = QWEN25_7B | {
    "hidden_size": 5120, "intermediate_size": 27648, "max_window_layers": 64, "num_attention_heads": 40,
    "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
}  # fmt: skip
PUBLISHED = {
    "Qwen/Qwen2.5-7B": (QWEN25_7B, 7_615_616_512, 57_344),
    "Qwen/Qwen2.5-32B": (QWEN25_32B, 32_763_876_352, 262_144),
}
NOTHING, H100 = Machine(0, None, 24 * GIB), Machine(4, 79 * GIB, 1000 * GIB)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No hub, no benchmarks, no cluster."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RLVR_DIR_DATA", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def of(name, **engine):
    found = PairPrice.of(preset(name) or name, EngineSpec(**engine), name, 22_048)
    assert found is not None
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_those_of_the_published_configuration(name, tmp_path):
    config, parameters, cached = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = shape_of(str(tmp_path))
    assert (sizes.parameters, 2 * sizes.kv, sizes.dtype) == (parameters, cached, "bfloat16")
    wide, kv = sizes.hidden, sizes.kv // (2 * sizes.layers)  # by hand: biases at queries, keys and values only
    layer = 2 * wide * wide + wide + 2 * (wide * kv + kv) + 3 * wide * sizes.intermediate + 2 * wide
    assert sizes.parameters == 2 * sizes.vocab * wide + sizes.layers * layer + wide
    assert shape_of(name) == sizes, "of the hub's name, which is not here, by the table"


def test_layers_are_shared_only_so_that_every_gpu_has_as_many_heads():
    small = shape_of("Qwen/Qwen2.5-7B")  # 28 heads, 4 of keys and values
    assert [n for n in range(1, 65) if small.can_share(n)] == [1, 2, 4]
    large = shape_of("Qwen/Qwen2.5-32B")
    assert [n for n in range(1, 65) if large.can_share(n)] == [1, 2, 4, 8]
    few = replace(large, heads=32, kv_heads=2)
    assert few.can_share(8)
    assert vllm_bytes([], [few], 1, 1, 8) == vllm_bytes([], [few], 1, 1, 2) == few.kv / 2, "copied, not cut"
    assert not replace(few, kv_heads=12).can_share(8)


def test_a_pair_of_32b():
    one = of("dapo-32b", tensor_parallel_size=4, max_model_len=22_048)
    assert (one.weights, one.cache) == (4 * 32_763_876_352, 524_288)
    assert one.least(4) == one.weights / 4 + 22_048 * 524_288 / 4
    assert [one.fewest(card) for card in CARDS] == [8, 8, 4, 2]
    whole = of("dapo-32b", tensor_parallel_size=4)
    assert whole.tokens == 131_072, "vLLM wants room for a response of the whole context"
    assert whole.fewest(24) is None


LARGE = {"tensor_parallel_size": 4, "max_model_len": 22_048}


@pytest.mark.parametrize(
    ("pair", "engine", "machine", "words"),
    [
        ("dapo-32b", LARGE, NOTHING,
         "dapo-32b cannot run here: weights and cache take 124.1 GiB, and this machine has no GPU and 24 GiB of "
         "memory; accepted: 8 x 24 GB or 8 x 40 GB or 4 x 80 GB or 2 x 141 GB"),
        ("dapo-32b", LARGE, H100, None),
        ("dapo-32b", LARGE, replace(H100, gpus=2), "tensor_parallel_size=4 asks for as many GPUs"),
        ("dapo-32b", LARGE, Machine(8, None, None), None),  # what nobody can tell refuses nothing
        ("dapo-32b", {"tensor_parallel_size": 3}, H100, "accepted: 1, 2, 4, 8"),
        ("tiny", {}, NOTHING, None),
        ("dapo-32b", {"workers": 4, "tensor_parallel_size": 4}, NOTHING, None),  # Ray's machines are others
    ],
)  # fmt: skip
def test_a_machine_that_cannot_hold_it_is_refused_with_what_could(pair, engine, machine, words):
    said = of(pair, **engine).refusal(machine)
    assert said is None if words is None else words in said


def decodings():
    return [path.stem for path in sorted(sweeps_dir().glob("*.yaml")) if "kind: train" not in path.read_text()]


@pytest.mark.parametrize("name", decodings())
def test_what_ships_starts_on_the_gpus_it_names(name):
    spec = read(name, [])
    gpus = spec.engine.tensor_parallel_size
    for pair in spec.pairs:
        one = PairPrice.of(spec.pairs[pair], spec.engine, pair, 22_048)
        assert one is not None
        assert one.fewest(80) <= gpus
        assert one.refusal(Machine(gpus, 78 * GIB, None)) is None


@pytest.mark.parametrize("name", sorted(path.stem for path in sweeps_dir().glob("*.yaml")))
def test_every_dry_run_tells_the_price(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Machine, "here", classmethod(lambda cls: NOTHING))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = run("sweep", "run", name, "--dry-run", "--out", tmp_path, "--speed", "5000")
    told = ("tokens", "weights", "KV cache", "24 GB", "141 GB", " at 5,000 tokens/s (as --speed says)")
    assert [words for words in told if words not in done.output] == []
    large = not name.startswith("tiny")
    assert ("cannot run here" in done.output or "it asks for 8 x 8 GPUs" in done.output) == large
    assert not list(tmp_path.iterdir())


def test_a_run_is_refused_before_anything_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(Machine, "here", classmethod(lambda cls: NOTHING))
    assert "dapo-32b cannot run here" in refused("sweep", "run", "dapo32b_on_rl", "--out", str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_trainings():
    math = complete({"preset": "qwen25-math-7b"})
    base, *_ = price.training_lines(math)
    assert [words for words in ("7.6 billion parameters", "56 KiB a token", "113.5 GiB") if words not in base] == []
    small = complete({"base": "Qwen/Qwen2.5-7B", "data": "x.jsonl"})
    refused = price.training_refusal(small, NOTHING)
    assert "takes 113.5 GiB" in str(refused)
    assert price.training_refusal(complete({}), NOTHING) is None
    assert price.training_refusal(math, NOTHING) is None, "verl's GPUs may be elsewhere"

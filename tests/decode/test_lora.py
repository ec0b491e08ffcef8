"""RL as a LoRA adapter of base: the merged model's logits and tokens from one copy of the weights, and its refusals."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.random_adapter import random_adapter
from harness.decode import open_engine
from harness.decode.compat import check_pair
from harness.errors import UserError
from harness.records.config import fingerprint
from harness.spec import EngineSpec, Pair
from tests.decode.checkpoints import copied, edit, in_the_hubs_cache, swap_ids
from tests.decode.found import found_apart
from tests.decode.inside import furthest
from tests.decode.requests import assert_same, make_requests

TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")  # of both packed projections a part is missing


@pytest.fixture(scope="module")
def adapted(peaked_pair, tmp_path_factory):
    """The base of the peaked pair with an adapter: rank 4, rank-stabilised, alpha 8, for o_proj 2."""
    place = tmp_path_factory.mktemp("adapted") / "adapter"
    return random_adapter(
        place, peaked_pair.base, targets=TARGETS, step=0.01, use_rslora=True, alpha_pattern={"o_proj": 2}
    )


@pytest.fixture(scope="module")
def merged(adapted, tmp_path_factory):
    """The same RL model as a whole checkpoint, merged here by the formula."""
    place = tmp_path_factory.mktemp("merged") / "rl"
    shutil.copytree(adapted.base, place)
    weights = load_file(place / "model.safetensors")
    terms = load_file(Path(adapted.rl, "adapter_model.safetensors"))
    for name in [name for name in terms if "lora_A" in name]:
        path = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        scale = (2 if path.endswith("o_proj") else 8) / 4**0.5
        weights[f"{path}.weight"] += scale * terms[name.replace("lora_A", "lora_B")] @ terms[name]
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    return adapted.replace(rl=str(place))


@pytest.fixture(scope="module")
def reference(merged):
    """transformers on the whole checkpoints: it knows nothing of adapters."""
    with open_engine(merged, EngineSpec(backend="transformers")) as engine:
        yield engine


@pytest.fixture(scope="module")
def served(adapted, merged, tmp_path_factory):
    """What a vLLM engine on the adapter gives, in a process of its own."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    folder = tmp_path_factory.mktemp("served")
    return found_apart(folder, "apart_lora", adapted, merged, folder / "tiny")


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_rl_has_the_merged_models_logits_and_base_its_own(served, reference):
    found = served["logits"]
    assert sum(len(base) for *_, base, _ in found) >= 100
    assert furthest(found, reference) <= 1e-4
    assert max((base - rl).abs().max() for *_, base, rl in found) > 0.5


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_an_adapter_gives_the_tokens_of_the_merged_model_in_both_engines(served, reference, adapted):
    requests = make_requests(18, samples=2)
    expected = list(reference.generate(requests))
    assert sum(rollout.n_changed for rollout in expected) > 10
    assert_same(served["rollouts"], expected)
    assert_same(served["merged"], expected)
    assert served["self_tests"] == ["transformers"] * 2
    with open_engine(adapted, EngineSpec(backend="transformers")) as engine:
        assert_same(engine.generate(requests), expected)


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_the_prefix_cache_is_used_and_changes_nothing(served):
    assert served["cached"] > 500
    assert_same(served["again"], served["rollouts"])


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_base_and_adapter_hold_one_model_and_the_terms(served, adapted):
    both, base, rl = served["bytes"]
    terms = load_file(Path(adapted.rl, "adapter_model.safetensors"))
    assert both - base == sum(term.nbytes for term in terms.values())
    assert rl == both  # every weight of base is one of RL's
    assert base >= sum(weight.nbytes for weight in load_file(Path(adapted.base, "model.safetensors")).values())


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_two_ranks_give_the_same_tokens(adapted, reference, tmp_path):
    requests = make_requests(4, samples=1, max_tokens=8)  # few: two ranks on two busy cores wait for each other
    settings = {"tensor_parallel_size": 2, "kv_cache_gib": 0.125, "self_test": False}
    found = found_apart(tmp_path, "apart_loading", {"two": (adapted, settings, requests)})
    assert_same(found["two"], reference.generate(requests))


# What is read of an adapter ----------------------------------------------------------------------------------------


@pytest.fixture
def copy_of(adapted, tmp_path):
    """Makes a pair with a copy of the adapter: entries of its configuration, or its tensors, changed."""

    def edit(tensors=None, **entries):
        pair = copied(adapted, tmp_path / "adapter", entries, "adapter_config.json")
        if tensors is not None:
            content = load_file(tmp_path / "adapter/adapter_model.safetensors")
            tensors(content)
            save_file(content, tmp_path / "adapter/adapter_model.safetensors")
        return pair

    return edit


def refused(pair, *words):
    with pytest.raises(UserError) as error:
        check_pair(pair)
    for word in (*words, "accepted"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("entry", "value", "accepted"),
    [
        ("peft_type", "IA3", "'LORA'"),
        ("bias", "lora_only", "'none'"),
        ("use_dora", True, "None or False"),
        ("modules_to_save", ["lm_head"], "None or False"),
        ("trainable_token_indices", [3], "None or False"),
        ("init_lora_weights", "pissa_niter_16", "'gaussian'"),
        ("lora_alpha", "much", "lora_alpha"),
    ],
)
def test_more_than_low_rank_terms_is_refused(copy_of, entry, value, accepted):
    pair = copy_of(**{entry: value})
    refused(pair, f"rl={pair.rl!r} is an adapter", repr(value), accepted)


def rename(old, new):
    return lambda tensors: tensors.update({name.replace(old, new): tensors.pop(name) for name in list(tensors)})


def one(name, shape):
    return lambda tensors: tensors.update({f"base_model.model.{name}.weight": torch.zeros(shape)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (one("lm_head.lora_A", (4, 64)), "with a tensor 'base_model.model.lm_head.lora_A.weight'"),
        (rename("lora_A", "lora_magnitude_vector"), "lora_magnitude_vector"),
        (one("model.layers.0.mlp.up_proj.lora_A", (3, 64)), "lora_A of shape (3, 64) and lora_B of shape (192, 4)"),
        (one("model.layers.1.self_attn.k_proj.lora_A", (4, 64)), "lora_B of shape ()"),
        (
            rename("layers.1", "layers.7"),
            "the adapter's model.layers.7.mlp.down_proj is (64, 192), the model's is not there",
        ),
        (rename("up_proj", "k_proj"), "do not fit: the adapter's model.layers.0.mlp.k_proj is (192, 64)"),
        (lambda tensors: tensors.clear(), "without a single tensor"),
    ],
    ids=["lm_head", "dora", "ranks", "half", "layer", "size", "nothing"],
)
def test_tensors_that_do_not_fit_are_refused(copy_of, change, words):
    pair = copy_of(change)
    refused(pair, f"rl={pair.rl!r} is a", words)


def test_an_adapter_that_is_incomplete_broken_or_in_the_wrong_place(copy_of, adapted, tmp_path):
    pair = copy_of()
    weights = Path(pair.rl, "adapter_model.safetensors")
    weights.write_bytes(b"no tensors")
    refused(pair, "adapter_model.safetensors cannot be read")
    weights.rename(weights.with_suffix(".bin"))
    refused(pair, "without adapter_model.safetensors", "saved by PEFT as safetensors")
    Path(pair.rl, "adapter_config.json").write_text("[1, 2")
    refused(pair, "adapter_config.json cannot be read")
    refused(Pair(base=adapted.rl, rl=adapted.rl), f"base={adapted.rl!r} is an adapter")
    both = tmp_path / "both"
    shutil.copytree(adapted.rl, both)
    shutil.copy(Path(adapted.base, "model.safetensors"), both)
    refused(adapted.replace(rl=str(both)), "and a whole model in one directory")


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("model_type", "gpt_neox", "is of type 'gpt_neox'"),
        ("quantization_config", {"quant_method": "awq"}, "quantised"),
    ],
)
def test_a_base_whose_adapters_cannot_be_served(copy_of, tmp_path, entry, value, words):
    refused(copied(copy_of(), tmp_path / "base", {entry: value}, role="base"), words)


def test_another_base_is_a_warning(copy_of, adapted):
    with pytest.warns(UserWarning, match=r"'Qwen/Qwen3-4B'.* base="):
        check_pair(copy_of(base_model_name_or_path="Qwen/Qwen3-4B"))


def test_the_adapters_own_tokenizer_is_used_and_checked(copy_of, peaked_pair):
    pair = copy_of()
    assert check_pair(pair).tokenizer.name_or_path == pair.base
    for file in Path(peaked_pair.rl).glob("*token*"):
        shutil.copy(file, pair.rl)
    edit(pair.rl, {"eos_token": "<|im_end|>", "chat_template": "mine"}, "tokenizer_config.json")
    found = check_pair(pair)
    assert (found.tokenizer.name_or_path, found.tokenizer.chat_template) == (pair.rl, "mine")
    assert found.eos_token_ids == {1, 3}
    edit(pair.rl, swap_ids, "tokenizer.json")
    refused(pair, "order their vocabulary differently")


def test_an_adapter_on_the_hub(adapted, tmp_path, monkeypatch):
    in_the_hubs_cache(tmp_path, adapter=adapted.rl)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = check_pair(adapted.replace(rl="someone/adapter"))
    assert found.adapter.name == "someone/adapter"
    assert found.adapter.scales == check_pair(adapted).adapter.scales
    assert not found.small


def test_another_adapter_is_another_record(copy_of, adapted, tmp_path):
    def halve(tensors):
        tensors.update({name: term / 2 for name, term in tensors.items()})

    shutil.copytree(adapted.rl, tmp_path / "moved")
    assert fingerprint(str(tmp_path / "moved")) == fingerprint(adapted.rl)
    assert fingerprint(copy_of(lora_alpha=9).rl) != fingerprint(adapted.rl)
    shutil.rmtree(tmp_path / "adapter")
    assert fingerprint(copy_of(halve).rl) != fingerprint(adapted.rl)

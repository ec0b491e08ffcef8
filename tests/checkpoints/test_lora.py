"""RL as a LoRA adapter of base: PEFT merges it, both engines decode the merged model, and mistakes are one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.random_adapter import random_adapter
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode import open_engine
from rlvr_dir.errors import UserError
from rlvr_dir.records.config import fingerprint
from rlvr_dir.tiny import tiny_pair
from tests.checkpoints.made import copied, edit, in_the_hubs_cache, swap_ids
from tests.decode.found import found_apart
from tests.decode.requests import assert_same, make_requests
from tests.facts import refuses, warns_of

pytest.importorskip("peft", reason="peft is not installed")
TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
TRANSFORMERS = EngineSpec(backend="transformers")


@pytest.fixture(scope="module")
def adapted(peaked_pair, tmp_path_factory):
    """The base of the peaked pair with an adapter: rank 4, rank-stabilised, alpha 8, for o_proj 2."""
    place = tmp_path_factory.mktemp("adapted") / "adapter"
    return random_adapter(
        place, peaked_pair.base, targets=TARGETS, step=0.01, r=4, use_rslora=True, alpha_pattern={"o_proj": 2}
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
def expected(merged):
    """What transformers decodes with the whole checkpoints: it knows nothing of adapters."""
    with open_engine(merged, TRANSFORMERS) as engine:
        rollouts = list(engine.generate(make_requests(18, samples=2)))
    assert sum(rollout.n_changed for rollout in rollouts) > 10
    return rollouts


def test_the_adapter_gives_the_tokens_of_the_merged_model_and_leaves_nothing_behind(adapted, expected):
    with open_engine(adapted, TRANSFORMERS) as engine:
        assert_same(engine.generate(make_requests(18, samples=2)), expected)
        folder = Path(engine.loaded.rl)
        assert folder.is_dir()
        assert engine.info()["pair"]["rl"] == adapted.rl
    assert not folder.exists()


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_vllm_gives_the_same_tokens(adapted, expected, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    found = found_apart(tmp_path, "checkpoints.apart_loading", {"lora": (adapted, {}, make_requests(18, samples=2))})
    assert not isinstance(found["lora"], str), found["lora"]
    assert_same(found["lora"], expected)


@pytest.fixture
def copy_of(adapted, tmp_path):
    """Makes a pair with a copy of the adapter: entries of its configuration, or its tensors, changed."""

    def change(tensors=None, **entries):
        pair = copied(adapted, tmp_path / "adapter", entries, "adapter_config.json")
        if tensors is not None:
            content = load_file(tmp_path / "adapter/adapter_model.safetensors")
            tensors(content)
            save_file(content, tmp_path / "adapter/adapter_model.safetensors")
        return pair

    return change


def wide(tensors):
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
    tensors[name] = torch.zeros(4, 65)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensors": wide}, "size mismatch"),
        ({"peft_type": "NOTHING"}, "NOTHING"),
    ],
    ids=["size", "kind"],
)
def test_what_peft_does_not_merge_is_one_sentence(copy_of, change, words):
    pair = copy_of(**change)
    engine = open_engine(pair, TRANSFORMERS, lazily=True)
    with refuses("rl", "PEFT", "base", words) as error:
        list(engine.generate(make_requests(1, samples=1)))
    assert "\n" not in str(error.value)
    assert not engine.started


def test_an_adapter_of_a_head_that_is_the_embeddings_is_refused(tmp_path):
    """Merged, its terms would be added to the embeddings, too."""
    base = tiny_pair().base
    weights = load_file(Path(base, "model.safetensors"))
    vocab, hidden = weights["model.embed_tokens.weight"].shape
    pair = random_adapter(tmp_path / "adapter", base, rank=2, step=0.2, target_modules=["q_proj", "lm_head"])
    terms = load_file(tmp_path / "adapter/adapter_model.safetensors")
    terms |= {"base_model.model.lm_head.lora_A.weight": torch.ones(2, hidden)}
    terms |= {"base_model.model.lm_head.lora_B.weight": torch.ones(vocab, 2)}
    save_file(terms, tmp_path / "adapter/adapter_model.safetensors")
    with refuses("rl", "tie_word_embeddings"), open_engine(pair, TRANSFORMERS):
        pass


def refused(pair, *words):
    with pytest.raises(UserError) as error:
        check_pair(pair)
    for word in words:
        assert word in str(error.value)


def test_an_adapter_that_is_broken_or_in_the_wrong_place(copy_of, adapted):
    pair = copy_of()
    Path(pair.rl, "adapter_config.json").write_text("[1, 2")
    refused(pair, "adapter_config.json cannot be read")
    refused(Pair(base=adapted.rl, rl=adapted.rl), f"base={adapted.rl!r} is an adapter")


def test_another_base_is_a_warning(copy_of, adapted):
    with warns_of("Qwen/Qwen3-4B", "base"):
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
    assert found.adapter_of == adapted.base
    assert not found.small


def test_another_adapter_is_another_record(copy_of, adapted, tmp_path):
    def halve(tensors):
        tensors.update({name: term / 2 for name, term in tensors.items()})

    shutil.copytree(adapted.rl, tmp_path / "moved")
    assert fingerprint(str(tmp_path / "moved")) == fingerprint(adapted.rl)
    assert fingerprint(copy_of(lora_alpha=9).rl) != fingerprint(adapted.rl)
    shutil.rmtree(tmp_path / "adapter")
    assert fingerprint(copy_of(halve).rl) != fingerprint(adapted.rl)

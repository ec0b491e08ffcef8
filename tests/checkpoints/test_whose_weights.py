"""A checkpoint is what its owner thinks it is, or nothing runs: which file each tensor comes from, and whose it is.

Every case was a wrong number without a word: RL was base, or half of it.
"""

import json
import re
import shutil
import warnings

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode import open_engine
from rlvr_dir.errors import UserError
from tests.commands import invoke, refused
from tests.facts import refuses, states, warns_of

INDEX = "model.safetensors.index.json"
SHARDS = [f"model-{i:05d}-of-00002.safetensors" for i in (1, 2)]


@pytest.fixture
def copies(peaked_pair, tmp_path):
    """(base, rl): folders that may be broken."""
    return [shutil.copytree(getattr(peaked_pair, role), tmp_path / role) for role in ("base", "rl")]


def save(tensors, file):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"})


def cut_up(folder, keep=False):
    """Cut a checkpoint's one file into two shards with an index; return the names that each has."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    for half, file in zip(halves, SHARDS, strict=True):
        save({name: tensors[name] for name in half}, folder / file)
    places = {name: file for half, file in zip(halves, SHARDS, strict=True) for name in half}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    if not keep:
        (folder / "model.safetensors").unlink()
    return halves


def rewrite(folder, change, file="model.safetensors"):
    tensors = load_file(folder / file)
    save(change(tensors), folder / file)


def an_old_file_beside_shards(base, rl):
    cut_up(rl, keep=True)
    shutil.copy(base / "model.safetensors", rl)


def a_tensor_in_anothers_shard(base, rl):
    first, _ = cut_up(rl)
    others = load_file(base / "model.safetensors")
    rewrite(rl, lambda tensors: tensors | {name: others[name] for name in first}, SHARDS[1])


def a_tensor_in_two_files(base, rl):
    first, _ = cut_up(rl)
    (rl / INDEX).unlink()
    others = load_file(base / "model.safetensors")
    rewrite(rl, lambda tensors: tensors | {first[0]: others[first[0]]}, SHARDS[1])


def prefixed(prefix):
    def change(base, rl):
        rewrite(rl, lambda tensors: {f"{prefix}{name}": tensor for name, tensor in tensors.items()})

    return change


def a_base_layer(base, rl):
    rewrite(
        rl, lambda tensors: {re.sub(r"q_proj\.", "q_proj.base_layer.", name): each for name, each in tensors.items()}
    )


def a_link_to_nothing(base, rl):
    (rl / "model.safetensors").unlink()
    (rl / "model.safetensors").symlink_to(rl / "gone")


def adapter(base, rl, change=lambda tensors: tensors, zero=False, **settings):
    """Make of RL an adapter of base, and change the tensors in its file."""
    shutil.rmtree(rl)
    model = AutoModelForCausalLM.from_pretrained(base)
    lora = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=zero, **settings)
    get_peft_model(model, lora).save_pretrained(rl)
    rewrite(rl, change, "adapter_model.safetensors")


def other_names(base, rl):
    def renamed(tensors):
        return {name.replace(".layers.", ".language_model.layers."): each for name, each in tensors.items()}

    adapter(base, rl, renamed)


def without_a_layer(base, rl):
    adapter(base, rl, lambda tensors: {name: each for name, each in tensors.items() if ".layers.1." not in name})


def without_its_file(base, rl):
    adapter(base, rl)
    (rl / "adapter_model.safetensors").unlink()


def beside_a_model(base, rl):
    whole = load_file(rl / "model.safetensors")
    adapter(base, rl)
    save(whole, rl / "model.safetensors")


REFUSED = {
    an_old_file_beside_shards: "rl model.safetensors 2",
    a_tensor_in_anothers_shard: f"rl {SHARDS[1]} {INDEX} {SHARDS[0]}",
    a_tensor_in_two_files: f"rl {SHARDS[1]} {SHARDS[0]}",
    prefixed("_orig_mod."): "rl _orig_mod. torch.compile",
    prefixed("module."): "rl module. DistributedDataParallel",
    prefixed("base_model.model."): "rl base_model.model. PEFT",
    a_base_layer: "rl .base_layer. PEFT",
    a_link_to_nothing: "rl model.safetensors",
    other_names: "rl 8 base_model lora_A.weight",
    without_a_layer: "rl 2 target_modules model.layers.1",
    without_its_file: "rl adapter_config.json adapter_model.safetensors",
    beside_a_model: "rl model.safetensors adapter_config.json",
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: getattr(case, "__qualname__", "").split(".")[0])
def test_whoever_would_read_another_models_weights_says_so(copies, case):
    """`pair check` and both engines, in one sentence, before a weight is loaded."""
    base, rl = copies
    case(base, rl)
    pair = Pair(base=str(base), rl=str(rl))
    with refuses(*REFUSED[case].split()) as checked:
        check_pair(pair)
    for backend in ("transformers", "vllm"):
        with pytest.raises(UserError) as opened:
            open_engine(pair, EngineSpec(backend=backend), lazily=True)
        assert str(opened.value) == str(checked.value)


def test_eval_and_serve_say_it_with_status_2(copies):
    base, rl = copies
    an_old_file_beside_shards(base, rl)
    pair = ["--base", str(base), "--pretrained", str(rl)]
    for words in (["eval", *pair, "--tasks", "tiny_easy"], ["serve", *pair]):
        states(refused(*words), "model.safetensors", 2)


def warned(base, rl):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_pair(Pair(base=str(base), rl=str(rl)))
    return [str(each.message) for each in said]


def test_rl_that_is_base_is_warned_of_whatever_its_folder_is_called(copies):
    base, rl = copies
    assert not any("Δ log p is 0 everywhere" in said for said in warned(base, rl))
    shutil.copy(base / "model.safetensors", rl)
    [said] = [said for said in warned(base, rl) if "Δ log p is 0 everywhere" in said]
    assert "have the same weights" in said
    cut_up(rl)  # in other files, the same
    assert any("have the same weights" in said for said in warned(base, rl))
    rewrite(rl, lambda tensors: {name: tensor + 1e-3 for name, tensor in tensors.items()}, SHARDS[1])
    assert not any("have the same weights" in said for said in warned(base, rl))


def test_an_adapter_that_adds_nothing_is_warned_of(copies):
    base, rl = copies
    adapter(base, rl, zero=True)  # as LoRA begins: its B are zero
    assert any("is an adapter that changes nothing" in said for said in warned(base, rl))
    adapter(base, rl)
    assert not any("changes nothing" in said for said in warned(base, rl))


def test_a_head_of_a_tied_model_is_the_embeddings_or_warned_of(copies):
    base, rl = copies
    for folder in copies:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    rewrite(base, lambda tensors: tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    rewrite(rl, lambda tensors: tensors | {"lm_head.weight": torch.randn_like(tensors["model.embed_tokens.weight"])})
    said = [each for each in warned(base, rl) if "tie_word_embeddings), which are other numbers" in each]
    assert [f"rl={str(rl)!r}" in each for each in said] == [True]


def fast(change):
    """Change RL's tokenizer.json, and nothing of its vocabulary."""

    def apply(base, rl):
        content = json.loads((rl / "tokenizer.json").read_text())
        change(content)
        (rl / "tokenizer.json").write_text(json.dumps(content))

    return apply


def an_earlier_cut(content):
    before = {"type": "Split", "pattern": {"String": "n"}, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [before, content["pre_tokenizer"]]}


def other_normaliser(content):
    content["normalizer"] = {"type": "NFKC"}


def a_token_before_every_text(content):
    token, index = max(content["model"]["vocab"].items(), key=lambda pair: pair[1])
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


@pytest.mark.parametrize("change", [an_earlier_cut, other_normaliser, a_token_before_every_text])
def test_tokenizers_that_cut_text_otherwise_are_warned_of_with_an_example(copies, change):
    base, rl = copies
    assert not any("cut text into tokens differently" in said for said in warned(base, rl))
    fast(change)(base, rl)
    [said] = [said for said in warned(base, rl) if "cut text into tokens differently" in said]
    assert said.startswith(f"base={str(base)!r} and rl={str(rl)!r} cut text")


def test_an_evaluation_compares_the_prompts_of_its_task(copies, tmp_path):
    """A digit form that is in no fixed text."""
    base, rl = copies
    fast(lambda content: content.update(normalizer={"type": "Replace", "pattern": {"String": "٣"}, "content": "3"}))(
        base, rl
    )
    assert not any("cut text" in said for said in warned(base, rl))
    task = tmp_path / "mine.jsonl"
    task.write_text(json.dumps({"problem": "What is 1 + ٣?", "answer": "4"}) + "\n")
    asked = ["--base", str(base), "--pretrained", str(rl), "--tasks", str(task), "--samples", "1", "--max-tokens", "2"]
    with warns_of("1", "٣"):
        done = invoke("eval", *asked, "--backend", "transformers", "--no-track", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output

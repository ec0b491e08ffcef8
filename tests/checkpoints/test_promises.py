"""`pair check` promises what `eval` keeps: each refusal that needs no engine, by its name, is asked of both."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from rlvr_dir.checkpoints.compat import REFUSED
from tests.checkpoints.made import edit, swap_ids
from tests.commands import invoke, refused
from tests.facts import states


def of_rl(change, file="config.json"):
    return lambda base, rl: edit(rl, change, file)


def of_both(change, file="config.json"):
    return lambda base, rl: [edit(folder, change, file) for folder in (base, rl)]


def more_weights(base, rl):
    """As a trainer saves a policy with its critic."""
    file = rl / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"v_head.summary.weight": tensors["model.norm.weight"].clone()}, file, {"format": "pt"})


def adapter_of_nothing(base, rl, keep=()):
    for file in rl.glob("*.safetensors"):
        if file.name not in keep:
            file.unlink()
    settings = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": str(base)}
    (rl / "adapter_config.json").write_text(json.dumps(settings))


def wider_heads(base, rl):
    config = AutoConfig.from_pretrained(rl, head_dim=64)
    AutoModelForCausalLM.from_config(config).save_pretrained(rl)


# By the name of a check: what is made of a pair, which options are given, what is said.
CASES = {
    "quantised_weights": (of_rl({"quantization_config": {"quant_method": "awq", "bits": 4}}), [], "awq"),
    "other_tokenizers": (of_rl(swap_ids, "tokenizer.json"), [], "base= rl= id"),
    "other_types": (of_rl({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}), [], "llama"),
    "other_than_language_models": (of_rl({"architectures": ["Qwen3Model"]}), [], "Qwen3Model"),
    "other_number_types": (of_rl({"dtype": "int8"}), [], "config.json int8"),
    "tokens_without_an_output": (of_rl({"vocab_size": 299}), [], "299"),
    "no_end_of_text": (of_both({"eos_token_id": None}), [], "end-of-text"),
    "unreadable_weights": (more_weights, [], "v_head.summary.weight"),
    "adapter_beside_a_model": (
        lambda base, rl: adapter_of_nothing(base, rl, keep=["model.safetensors"]),
        [],
        "model.safetensors adapter",
    ),
    "misfit_adapter": (adapter_of_nothing, [], "adapter_config.json adapter_model.safetensors"),
    "ends_outside_the_vocabulary": (of_rl({"eos_token_id": 5000}), [], "eos_token_id=5000"),
    "too_long_contexts": (
        of_both({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}}),
        ["--max-model-len", "4096"],
        "max_model_len 4096",
    ),
    "heads_of_two_sizes": (wider_heads, ["--dtype", "float32"], "GPU"),
    "unread_template_arguments": (
        lambda base, rl: None,
        ["--chat-template-kwargs", '{"enable_thinking": false}'],
        "enable_thinking",
    ),
}


def no_end(folder):
    """Without an end of text in any of the files that name one."""
    for file in ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
        if Path(folder, file).is_file():
            edit(folder, lambda content: [content.pop(name) for name in [*content] if "eos" in name], file)


# What a command calls an argument of its sentence.
OPTIONS = {
    "chat_template_kwargs=": "--chat-template-kwargs ",
    "base=": "--base ",
    "rl=": "--pretrained ",
    "max_model_len=": "--max-model-len ",
    "dtype=": "--dtype ",
}


def test_every_check_that_refuses_has_a_case():
    assert {*CASES} - {"quantised_weights"} == {check.__name__ for check in REFUSED}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_what_eval_refuses_the_check_refuses_in_the_same_words(peaked_pair, tmp_path, monkeypatch, name):
    if name == "heads_of_two_sizes":  # as vLLM's build for a GPU says
        monkeypatch.setattr("rlvr_dir.checkpoints.beside_vllm.on_cpu", lambda: False)
    base, rl = (shutil.copytree(getattr(peaked_pair, role), tmp_path / role) for role in ("base", "rl"))
    change, options, sentence = CASES[name]
    change(base, rl)
    if name == "no_end_of_text":
        no_end(base)
        no_end(rl)
    check = invoke("pair", "check", base, rl, "--json", *options)
    assert check.exit_code == 1, check.output
    why = json.loads(check.stdout)["why"]
    states(why, *sentence.split())
    asked = ["--base", base, "--pretrained", rl, "--tasks", "tiny_easy", "--limit", "1", "--no-track", *options]
    said = refused("eval", *asked, "--out", tmp_path / "out")
    for argument, option in OPTIONS.items():
        said = said.replace(option, argument)
    assert said == why

"""What cannot work is refused before anything loads, in one sentence that names the argument and what is accepted."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from rlvr_dir.checkpoints.chat_template import chat_prompt
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.config import EngineSpec, Pair, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.errors import UserError
from tests.checkpoints.made import copied, swap_ids
from tests.facts import refuses, warns_of


def checked(pair):
    """What is found of a pair whose weights come from elsewhere."""
    return check_pair(pair, EngineSpec(vllm_args={"load_format": "dummy"}))


@pytest.fixture
def copy_of(peaked_pair, tmp_path):
    """Makes a pair whose RL checkpoint is a copy with one file edited."""

    return lambda change, file="config.json": copied(peaked_pair, tmp_path / "rl", change, file)


def refused(pair, *words):
    with pytest.raises(UserError) as error:
        checked(pair)
    message = str(error.value)
    for word in (pair.rl, *words):
        assert word in message


def rename(content):
    vocab = content["model"]["vocab"]
    merged = {part for merge in content["model"]["merges"] for part in (*merge, "".join(merge))}
    vocab["zzz"] = vocab.pop(next(token for token in vocab if token not in merged and token.isalpha()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename, "different tokenizers: 2 tokens"),
        (swap_ids, "order their vocabulary differently: 2 tokens"),
        (lambda content: content["model"]["merges"].reverse(), "different tokenizers: the vocabulary is the same"),
    ],
    ids=["a token", "order", "merges"],
)
def test_tokenizers_that_differ(copy_of, change, words):
    refused(copy_of(change, "tokenizer.json"), words)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"vocab_size": 299}, "its tokenizer has ids up to 299 but the model has 299 outputs, none for "),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantised (awq)"),
        ({"compression_config": {"format": "int-quantized"}}, "quantised (compression_config)"),
    ],
    ids=["outputs", "awq", "compression"],
)
def test_configurations_that_cannot_be(copy_of, entry, words):
    pair = copy_of(entry)
    refused(pair, words)
    with pytest.raises(UserError, match="^base=.*" + re.escape(words)):
        checked(Pair(base=pair.rl, rl=pair.base))


def test_base_cannot_be_quantised_in_a_way_that_rl_can(copy_of):
    pair = copy_of({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}})
    with refuses("base", "compressed-tensors"):
        checked(Pair(base=pair.rl, rl=pair.base))


def test_what_is_allowed_to_differ(copy_of):
    checkpoints = checked(copy_of({"max_position_embeddings": 512, "eos_token_id": 5}))
    assert checkpoints.context.length == 512
    assert checkpoints.eos_token_ids == {1, 3, 5}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size 2"),
        ({"vllm_args": {"speculative_config": {}}}, "speculative_config"),
        ({"vllm_args": {"enable_lora": True}}, "enable_lora"),
        ({"vllm_args": {"logprobs_mode": "raw_logprobs"}}, "logprobs_mode"),
        (
            {"vllm_args": {"quantization": "fp8"}},
            "quantization",
        ),
        ({"vllm_args": {"dtype": "bfloat16"}}, "dtype"),
    ],
)
def test_settings_that_a_pair_cannot_have(peaked_pair, settings, name):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    with refuses(*name.split()):
        open_engine(peaked_pair, EngineSpec(backend="vllm", **settings))


def test_vllm_asked_for_and_absent(peaked_pair, monkeypatch):
    import rlvr_dir.decode.single

    monkeypatch.setattr(rlvr_dir.decode.single, "find_spec", lambda name: None)
    with refuses("backend", "vllm"):
        open_engine(peaked_pair, EngineSpec(backend="vllm"))
    with open_engine(peaked_pair, EngineSpec(backend="auto")) as engine:
        assert engine.info()["backend"] == "transformers"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("", "p/empty"), "problem='p/empty'"),
        (Request("word " * 2000, "p/long"), "max_model_len=1024"),
        (Request("", "p/ids", prompt_token_ids=(5, 310)), "0 to 299"),
    ],
    ids=["empty", "too-long", "bad-ids"],
)
def test_requests_that_cannot_be_served(transformers_engine, request_, words):
    """Before anything is decoded: the good request in front is not started."""
    good = Request("Hello", "p/good", sampling=Sampling(max_tokens=2))
    with pytest.raises(UserError) as error:
        transformers_engine.generate([good, request_])
    assert words in str(error.value)


def test_no_model_code_is_run_unless_asked(copy_of):
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    pair = copy_of({"auto_map": auto_map, "model_type": "evil"})
    Path(pair.rl, "evil.py").write_text("raise SystemExit('model code was run')")
    with refuses("rl", "trust_remote_code"):
        checked(pair)


@pytest.mark.parametrize(
    ("key", "change", "words"),
    [
        ("rope_interleaved", lambda value: False, "rope_interleaved (None and False)"),
        (
            "use_mrope",
            lambda value: False,
            "use_mrope (None and False)",
        ),
        ("unsloth_fixed", lambda value: True, "unsloth_fixed (None and True)"),
        ("_attn_implementation_autoset", lambda value: True, "_attn_implementation_autoset (None and True)"),
    ],
)
def test_what_no_configuration_knows_is_a_warning_where_it_differs(copy_of, key, change, words):
    pair = copy_of(lambda content: content.update({key: change(content.get(key))}))
    for each in (pair, Pair(base=pair.rl, rl=pair.base)):  # whichever of the two has it
        with pytest.warns(UserWarning, match=re.escape(words) if each is pair else key) as warned:
            checked(each)
        assert len(warned) == (1 if each is pair else 2)  # and the names look swapped


@pytest.mark.parametrize(
    ("role", "template", "words"),
    [
        ("base", None, "chat auto RL"),
        ("rl", None, "different"),
        ("rl", "{{ messages[0].content }}", "chat auto RL"),
    ],
)
def test_two_ways_of_talking_are_a_warning_that_says_which_is_used(peaked_pair, tmp_path, role, template, words):
    place = Path(shutil.copytree(getattr(peaked_pair, role), tmp_path / role))
    (place / "chat_template.jinja").unlink(missing_ok=True)
    if template:
        (place / "chat_template.jinja").write_text(template)
    with warns_of(*words.split()):
        checked(Pair(**{**peaked_pair.model_dump(), role: str(place)}))


@pytest.mark.parametrize(
    "template", ["{% for i in range(10**9) %}x{% endfor %}", "{{ 1 // 0 }}", "{{ messages[7].x }}"]
)
def test_a_template_that_fails_in_any_way_is_one_sentence(peaked_pair, template):
    tokenizer = checked(peaked_pair).tokenizer
    tokenizer.chat_template = template
    with refuses("chat"):
        chat_prompt(tokenizer, [{"role": "user", "content": "1 + 1"}])


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "tpu", "cpu:x"])
def test_a_device_that_is_not_here_is_one_sentence(peaked_pair, name):
    if not torch.cuda.is_available() or "cuda" not in name:
        with refuses("device", name):
            open_engine(peaked_pair, EngineSpec(backend="transformers", device=name))

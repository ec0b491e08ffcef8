"""What TRL is given on a GPU that is described here, since none is at hand; on a CPU nothing is adapted."""

import pytest
from transformers import AutoConfig, AutoTokenizer, Qwen2Config

from rlvr_dir.checkpoints.memory import GIB, ModelShape, gib
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.train import load_train
from rlvr_dir.train.dapo import grpo_config
from rlvr_dir.train.gpu import Gpu, describe_memory, fit_gpu, fit_here, longest, update_bytes, weight_bytes
from rlvr_dir.train.trl import fitted, trl_arguments
from tests.facts import refuses, states

MATH_7B = Qwen2Config(
    vocab_size=152_064, hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
    intermediate_size=18_944, tie_word_embeddings=False, max_position_embeddings=4096,
)  # fmt: skip
MATH_1B = Qwen2Config(
    vocab_size=151_936, hidden_size=1536, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
    intermediate_size=8960, tie_word_embeddings=True, max_position_embeddings=4096,
)  # fmt: skip
H100, RTX = Gpu(80 * GIB, 79 * GIB), Gpu(24 * GIB, 23 * GIB)
PROMPT = 512


@pytest.fixture(scope="module")
def sizes():
    return {"7B": ModelShape.of(MATH_7B), "1.5B": ModelShape.of(MATH_1B)}


def training(**changes):
    dapo = {"max_response_tokens": 3072, **changes.pop("dapo", {})}
    return load_train({"base": "some/base", "data": "x.jsonl", "dapo": dapo, **changes})


def test_defaults_on_one_gpu(sizes):
    """1.5B, all weights, vLLM beside: context of prompt and response, bfloat16, asleep while an update is made."""
    spec = training(vllm={})
    fit = fit_gpu(spec, sizes["1.5B"], PROMPT, H100)
    found = trl_arguments(spec.model_copy(update={"bf16": fit.bf16}), fit)
    share = found.pop("vllm_gpu_memory_utilization")
    assert found == {
        "bf16": True, "use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": PROMPT + 3072,
        "vllm_tensor_parallel_size": 1, "vllm_enable_sleep_mode": True,
    }  # fmt: skip
    weights, kept = 2 * sizes["1.5B"].parameters, 12 * sizes["1.5B"].parameters
    assert weights / 80 / GIB < share < 0.9 - kept / 80 / GIB
    dapo = fitted(spec.dapo, fit)
    rows = dapo.minibatch // dapo.accumulation
    row = 3073 * 151_936 * 16 + (PROMPT + 3072) * 28 * 2 * (10 * 1536 + 4 * 8960)  # logits, and what layers keep
    room = 0.9 * 80 * GIB - 18 * sizes["1.5B"].parameters  # weights, Adam, gradients, autocast's copies
    assert rows * row <= room < 2 * rows * row
    assert fit.changes == (f"dapo: accumulation={dapo.accumulation} in place of 1, so that an update fits the GPU",)


def test_trl_knows_every_argument(sizes, tmp_path):
    spec = training(vllm={})
    fit = fit_gpu(spec, sizes["1.5B"], PROMPT, H100)
    given = trl_arguments(spec, fit)
    config = grpo_config(fitted(spec.dapo, fit), tmp_path, **given)
    assert {name: getattr(config, name) for name in given} == given
    dapo = fitted(spec.dapo, fit)
    assert config.gradient_accumulation_steps == dapo.accumulation
    assert config.per_device_train_batch_size * dapo.accumulation == spec.dapo.minibatch


def test_without_sleep_vllm_keeps_its_share(sizes):
    awake = fit_gpu(training(vllm={"enable_sleep_mode": False}), sizes["1.5B"], PROMPT, H100)
    asleep = fit_gpu(training(vllm={}), sizes["1.5B"], PROMPT, H100)
    assert awake.accumulation > asleep.accumulation


SHORT = {"max_response_tokens": 512}
ASKED = {"gpu_memory_utilization": 0.25, "max_model_length": 4000}


@pytest.mark.parametrize(
    ("model", "gpu", "changes", "facts"),
    [
        ("1.5B", H100, {"vllm": ASKED, "bf16": False, "dapo": {"accumulation": 64}},
         {"bf16": False, **ASKED, "accumulation": 64, "changes": ()}),  # what is asked for and fits is left alone
        ("7B", Gpu(64 * GIB, 63 * GIB), {"vllm": {}, "lora": {"rank": 16}}, {"gradient_checkpointing": True}),
        ("1.5B", Gpu(34 * GIB, 33 * GIB), {"vllm": {}, "dapo": SHORT}, {"bf16": True}),
    ],
    ids=["asked for", "checkpointing comes last", "without a reference"],
)  # fmt: skip
def test_what_fits(sizes, model, gpu, changes, facts):
    fit = fit_gpu(training(**changes), sizes[model], PROMPT, gpu)
    assert {name: getattr(fit, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("model", "gpu", "changes", "message"),
    [
        ("7B", H100, {"vllm": {}}, "base some/base GPU 128"),
        ("1.5B", Gpu(34 * GIB, 33 * GIB), {"vllm": {}, "dapo": {**SHORT, "beta": 0.01}},  # the KL term's reference
         "base GPU"),
        ("7B", RTX, {"vllm": {}, "lora": {}}, "base some/base"),
        ("1.5B", RTX, {"lora": {}}, "samples 256"),
        ("1.5B", H100, {"vllm": {"gpu_memory_utilization": 0.9}},
         "vllm.gpu_memory_utilization 0.9"),
        ("1.5B", H100, {"vllm": {"max_model_length": 512}},
         "vllm.max_model_length 512 3584"),
        ("1.5B", H100, {"vllm": {}, "dapo": {"max_response_tokens": 4000}},
         "dapo.max_response_tokens 4000 4096 base"),
        ("7B", Gpu(56 * GIB, 55 * GIB), {"vllm": {}, "lora": {}, "validation": {"tasks": "aime24", "every": 5}},
         "validation.every 5 GPU 56.7"),
    ],
    ids=["all weights", "reference", "adapter", "transformers", "share", "context", "positions", "validation"],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(sizes, model, gpu, changes, message):
    with refuses(*message.split()):
        fit_gpu(training(**changes), sizes[model], PROMPT, gpu)


@pytest.mark.parametrize("backend", ["vllm", "auto"])
def test_validation_does_not_meet_the_trainings_vllm(backend):
    validation = {"tasks": "tiny_easy", "engine": {"backend": backend}}
    with refuses("validation.engine.backend", backend):
        training(vllm={}, validation=validation)
    training(vllm={"mode": "server", "server_base_url": "http://127.0.0.1:8000"}, validation=validation)
    training(vllm={}, validation={"tasks": "tiny_easy"})


def test_the_longest_prompt_is_counted_as_trl_writes_it():
    tokenizer = AutoTokenizer.from_pretrained(tiny_pair().base)
    chat = [{"role": "user", "content": "12 + 34 = ?"}]
    written = tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert longest(tokenizer, [chat, "1"]) == len(written)
    assert longest(tokenizer, [chat, "1 " * 100]) == len(tokenizer("1 " * 100)["input_ids"])


def test_on_a_cpu_nothing_is_adapted():
    spec = load_train({"dapo": {"steps": 2}, "device": "cpu"})
    assert fit_here(spec, tiny_pair().base, ["1 + 1 ="]) is None
    assert fitted(spec.dapo, None) is spec.dapo
    assert trl_arguments(spec, None) == {"bf16": False, "use_cpu": True}


def test_a_plan_states_the_memory_of_weights_and_of_an_update(sizes):
    """The tiny base takes 16 bytes per parameter. A CPU takes whole minibatches, a GPU what fits."""
    spec, base = load_train({}), tiny_pair().base
    prompts, shape = ["1+1=", "23+4="], ModelShape.of(AutoConfig.from_pretrained(base))
    tokens = longest(AutoTokenizer.from_pretrained(base), prompts)
    weights = 16 * shape.parameters
    assert weight_bytes(spec, shape, bf16=False) == (12 * shape.parameters, weights)
    update = update_bytes(spec, shape, tokens, spec.dapo.minibatch, bf16=False, checkpointing=False)
    states(describe_memory(spec, base, prompts, None)[0], gib(weights + update), gib(weights), gib(update))
    small = Gpu(150 << 20, 2**40)  # room for half of the responses at once
    [line, fits] = describe_memory(spec, base, prompts, small)
    pieces = fit_gpu(spec, shape, tokens, small).accumulation
    assert pieces == 2
    states(line, f"{spec.dapo.minibatch // pieces} responses")
    states(fits, f"accumulation={pieces}")
    states(describe_memory(spec, base, prompts, Gpu(2**20, 2**20))[0], gib(2**20), "lora")
    states(describe_memory(spec, "org/model", prompts, None)[0], "org/model")


def test_an_adapter_has_moments_and_gradients_of_its_own(sizes):
    """All other weights are kept once, in float32."""
    shape = sizes["1.5B"]
    kept, updating = weight_bytes(training(lora={"rank": 16}), shape, bf16=False)
    adapter = (updating - kept) // 4
    assert kept == 4 * shape.parameters + 12 * adapter
    assert 0 < adapter < 0.02 * shape.parameters
    assert weight_bytes(training(dapo={"beta": 0.1}), shape, bf16=False)[0] == 16 * shape.parameters  # a reference

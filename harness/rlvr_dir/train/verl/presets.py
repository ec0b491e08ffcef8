"""Define the paper's two trainings: its appendix "RLVR Training Details", and verl v0.5.0's recipe, which it names.

If the appendix does not specify a value, it is that of the recipe's `recipe/dapo/test_dapo_7b_math.sh`: weight decay,
dual clip, length of prompts, layout over GPUs, 200 steps, checkpoints every 10 steps. The script trains without dynamic
sampling, and the paper's objective has it, so it is on here. `--set dapo.dynamic_sampling=false` follows the script.
"""

import copy
from collections.abc import Mapping
from typing import Any

from rlvr_dir.errors import UserError, unknown
from rlvr_dir.policy.reweighting import PLAIN, reweightings

_DAPO = {
    "steps": 200,
    "prompts": 512,
    "samples": 16,
    "minibatches": 16,  # of 32 prompts
    "learning_rate": 1e-6,
    "warmup_updates": 160,  # 10 steps of 16
    "weight_decay": 0.1,
    "clip_low": 0.2,
    "delta": 10.0,
    "overlong_buffer": 4096,  # # "8k (4k)" and "20k (16k)": the penalty begins 4096 tokens before the end
    "overlong_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "gradient_checkpointing": True,
}
_VERL = {
    "nnodes": 8,
    "gpus_per_node": 8,
    "tensor_parallel": 4,
    "sequence_parallel": 4,
    "offload": True,
    "gpu_memory_utilization": 0.8,
    "max_prompt_tokens": 2048,
}
# # Sampling of validations, with as many tokens as in the training. The user names the tasks.
_SAMPLING = {"samples": 32, "temperature": 1.0, "top_p": 0.7}
_COMMON = {"backend": "verl", "data": "dapo-math-17k.jsonl", "checkpoint_every": 10}

PRESETS: dict[str, dict[str, Any]] = {
    "qwen25-math-7b": {
        **_COMMON,
        "base": "Qwen/Qwen2.5-Math-7B",
        "dapo": {**_DAPO, "max_response_tokens": 8192},
        # # The base's configuration has 4096 positions, and prompt and response have 10240. This is the recipe's value.
        "verl": {**_VERL, "max_position_embeddings": 32768},
    },
    "qwen3-8b-base": {
        **_COMMON,
        "base": "Qwen/Qwen3-8B-Base",
        "dapo": {**_DAPO, "max_response_tokens": 20480},
        "verl": _VERL,
    },
}


def with_preset(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a training's keys over those of the preset that it names, section by section. Without a preset, return
    them unchanged.

    Raises:
        UserError: No preset has that name.
    """
    data = dict(data)
    if (name := data.pop("preset", None)) is None:
        return data
    if not isinstance(name, str) or name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    training = copy.deepcopy(PRESETS[name])
    for key, value in data.items():
        if isinstance(value, Mapping) and isinstance(training.get(key), dict):
            training[key] |= value
        elif isinstance(training.get(key), dict) and value is not None:
            raise UserError(argument=key, value=value, accepted="a mapping of keys to values")
        elif value is not None:
            training[key] = value
    way = reweightings().get(str(training["dapo"].get("method", PLAIN)))
    if way is not None and way.whole_batch:
        training["dapo"].setdefault("ppl_scope", way.scope)
    if way is not None and training["dapo"].get("alpha") is None and name in way.alphas:
        training["dapo"]["alpha"] = way.alphas[name]
    validation = training.get("validation") or {}
    if isinstance(validation, Mapping) and isinstance(sampling_given := validation.get("sampling") or {}, Mapping):
        sampling = {**_SAMPLING, "max_tokens": training["dapo"]["max_response_tokens"], **sampling_given}
        training["validation"] = {"engine": {"backend": "auto"}, **validation, "sampling": sampling}
    return training

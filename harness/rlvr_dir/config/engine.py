"""Choose the engine that decodes, and its settings."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from rlvr_dir.config.base import Spec
from rlvr_dir.errors import UserError

Backend = Literal["auto", "vllm", "transformers"]
# vLLM's arguments for the sum over GPUs and for reading weights, which are not part of a record.
PLACING_ARGS = ("disable_custom_all_reduce", "safetensors_load_strategy", "model_loader_extra_config")


def read_kwargs(written: Any) -> Any:
    """Read arguments of a chat template from `NAME=VALUE,…` (or separated by `;`, if values contain commas) or JSON.

    Raises:
        UserError: The text is neither.
    """
    if not isinstance(written, str):
        return written
    refused = UserError(
        "cannot be read",
        argument="chat_template_kwargs",
        value=written,
        accepted="NAME=VALUE, as enable_thinking=false, or a JSON object",
    )
    if written.lstrip().startswith("{"):
        try:
            return json.loads(written)
        except ValueError:
            raise refused from None
    kwargs: dict[str, Any] = {}
    for part in filter(None, re.split("[,;]", written)):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier() or name in kwargs:
            raise refused
        try:
            kwargs[name] = json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
        except ValueError:
            kwargs[name] = value
    return kwargs


def kwargs_words(kwargs: Mapping[str, Any]) -> str:
    """Return arguments of a chat template as text: `enable_thinking=false`."""
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in kwargs.items()}
    return ",".join(f"{name}={value}" for name, value in values.items())


class EngineSpec(Spec, frozen=True):
    """Set up the engine. `auto` uses vLLM if it is installed and transformers otherwise.

    `deterministic` uses vLLM's batch-invariant kernels, with which the same requests give the same bits in any batch.

    `workers` engines share the work on Ray: on the cluster at `ray_address` (or RAY_ADDRESS), otherwise on a private
    one.
    """

    backend: Backend = Field(default="auto", description="auto, vllm or transformers.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="auto (the checkpoints' own), float32, bfloat16, float16."
    )
    max_model_len: int | None = Field(default=None, ge=8, description="Context in tokens; by default the models' own.")
    max_num_seqs: int = Field(default=256, ge=1, description="Responses decoded at once.")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=8, description="Maximum number of tokens per step of vLLM."
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that share each layer.")
    pipeline_parallel_size: int = Field(default=1, ge=1, description="Only 1: a pair cannot be split by layers.")
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0.0, le=1.0, description="Share of GPU memory that vLLM may use."
    )
    kv_cache_gib: float | None = Field(default=None, gt=0.0, description="KV cache of both models together, in GiB.")
    block_size: int | None = Field(default=None, ge=1, description="Tokens per block of vLLM's KV cache.")
    enforce_eager: bool | None = Field(
        default=None,
        description="Skip torch.compile: starts sooner, runs slower. Default: on a CPU with little to generate.",
    )
    device: str | None = Field(default=None, description="cpu or cuda, for backend=transformers.")
    self_test: bool | Literal["full"] = Field(
        default=True,
        description="Check both models at the start: true, false, or full (against transformers, whatever their size).",
    )
    draft: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Tokens that base writes ahead, for backend=transformers: the same tokens in fewer passes. 0: off.",
    )
    deterministic: bool = Field(
        default=False, description="Give the same bits in any batch, at some cost in speed. Needs vLLM on NVIDIA GPUs."
    )
    chat_template_kwargs: Annotated[dict[str, JsonValue], BeforeValidator(read_kwargs)] = Field(
        default_factory=dict,
        description="Arguments of the chat template, such as enable_thinking=false. Unknown arguments are rejected.",
    )
    vllm_args: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of vllm.LLM that have no option here."
    )
    workers: int = Field(default=1, ge=1, description="Engines that share the work, on Ray.")
    ray_address: str | None = Field(
        default=None, min_length=1, description="HOST:PORT of a running Ray cluster, or auto; by default this machine."
    )

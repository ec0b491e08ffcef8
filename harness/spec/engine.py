"""Which engine decodes, and the settings that are passed through to it."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from harness.spec.base import Spec

Backend = Literal["auto", "vllm", "transformers"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class EngineSpec(Spec):
    """Engine settings. `auto` takes vLLM where it is installed and transformers where it is not.

    `deterministic` is for vLLM on NVIDIA GPUs: its batch-invariant kernels, with which the same requests give the same
    bits in any batch, for some speed.

    `draft` is for transformers: so many tokens are drafted by the model that proposes before the other one scores them
    (`auto`: as many as pay); the tokens are the same. `workers` engines share the work, on Ray: the cluster at
    `ray_address` (or RAY_ADDRESS), else a private one here. `self_test=full` compares models of any size with
    transformers, which loads each once more. `vllm_args` goes to `vllm.LLM` as it is, for what has no field here.
    """

    backend: Backend = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(default=None, ge=8)
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=8)
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    gpu_memory_utilization: float = Field(default=0.9, gt=0.0, le=1.0)
    kv_cache_gib: float | None = Field(default=None, gt=0.0)
    block_size: int | None = Field(default=None, ge=1)
    enforce_eager: bool = False
    device: str | None = None
    self_test: bool | Literal["full"] = True
    deterministic: bool = False
    draft: Literal["auto"] | Annotated[int, Field(ge=1, le=64)] | None = None
    vllm_args: dict[str, Any] = Field(default_factory=dict)
    workers: int = Field(default=1, ge=1)
    ray_address: str | None = Field(default=None, min_length=1)

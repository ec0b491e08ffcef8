"""Which engine decodes, and the settings that are passed through to it."""

from typing import Any, Literal

from pydantic import Field

from harness.spec.base import Spec

Backend = Literal["auto", "vllm", "transformers"]


class EngineSpec(Spec, frozen=True):
    """Engine settings. `auto` takes vLLM where it is installed and transformers where it is not.

    `deterministic` takes vLLM's batch-invariant kernels, with which the same requests give the same bits in any batch.

    `workers` engines share the work, on Ray: the cluster at `ray_address` (or RAY_ADDRESS), else a private one here.
    """

    backend: Backend = Field(default="auto", description="auto, vllm or transformers.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="auto (the checkpoints' own), float32, bfloat16, float16."
    )
    max_model_len: int | None = Field(default=None, ge=8, description="Context in tokens; default the models' own.")
    max_num_seqs: int = Field(default=256, ge=1, description="Responses decoded at once.")
    max_num_batched_tokens: int | None = Field(default=None, ge=8, description="Tokens a step of vLLM, at most.")
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that share each layer.")
    pipeline_parallel_size: int = Field(default=1, ge=1, description="Only 1: a pair cannot be cut by layers.")
    gpu_memory_utilization: float = Field(default=0.9, gt=0.0, le=1.0, description="Share of a GPU that vLLM takes.")
    kv_cache_gib: float | None = Field(default=None, gt=0.0, description="KV cache of both models together, in GiB.")
    block_size: int | None = Field(default=None, ge=1, description="Tokens a block of vLLM's KV cache.")
    enforce_eager: bool | None = Field(
        default=None,
        description="Compile nothing: starts sooner, runs slower. Default: on a CPU where little is asked.",
    )
    device: str | None = Field(default=None, description="cpu or cuda, for backend=transformers.")
    self_test: bool | Literal["full"] = Field(
        default=True, description="Check both models at the start; full: against transformers, whatever their size."
    )
    deterministic: bool = Field(
        default=False, description="The same bits in any batch, for some speed: vLLM on NVIDIA GPUs."
    )
    vllm_args: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of vllm.LLM, for what has no field here."
    )
    workers: int = Field(default=1, ge=1, description="Engines that share the work, on Ray (docs/scale-out.md).")
    ray_address: str | None = Field(
        default=None, min_length=1, description="HOST:PORT of a running Ray cluster, or auto; default this machine."
    )

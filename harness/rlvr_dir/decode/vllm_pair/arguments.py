"""Build the arguments with which vLLM starts for a pair, and check those of the user."""

import json
from typing import Any

from rlvr_dir.checkpoints.beside_vllm import on_cpu
from rlvr_dir.checkpoints.read import ties_head
from rlvr_dir.config import EngineSpec
from rlvr_dir.config.engine import PLACING_ARGS
from rlvr_dir.decode.trace import MAX_TOP, PROPOSAL, columns
from rlvr_dir.decode.vllm_pair.plugin import ARCHITECTURE
from rlvr_dir.decode.vllm_pair.self_test import TestedPair
from rlvr_dir.errors import UserError

CPU_KV_CACHE_GIB = 2.0
SCORED_TOKENS = 8192  # the largest number of tokens in a scoring step
DEFAULT_GRAPHS = 512  # rows of the largest CUDA graph that vLLM captures by default

_REFUSED_ARGS = {
    "speculative_config": "only one of the models would verify the drafts",
    "pipeline_parallel_size": "the two submodels cannot be split into stages",
    "enable_lora": "an adapter would apply to one submodel only (pass an adapter of base as `rl` instead)",
    "logits_processors": "the pair's own processor decides each token",
    "logprobs_mode": "the log-probability channel carries the facts of each token",
    "hf_overrides": "the pair model is defined there",
    "quantization": "quantised weights have not been tested with a pair",
    "quantization_config": "quantised weights have not been tested with a pair",
}

# Arguments of vLLM that only affect paths, speed and output. Any other is part of a record's hash.
_HARMLESS_ARGS = {
    "async_scheduling", "compilation_config", "cpu_offload_gb", "cudagraph_capture_sizes", "disable_log_stats",
    "distributed_executor_backend", "download_dir", "enable_chunked_prefill", "enable_prefix_caching",
    "kv_cache_memory_bytes", "max_cudagraph_capture_size", "max_parallel_loading_workers", "use_tqdm_on_load",
}  # fmt: skip


def refuse(spec: EngineSpec) -> None:
    """Refuse settings that cannot work with a pair, before anything loads.

    Raises:
        UserError: A setting cannot be used. The error names it and the reason.
    """
    if spec.pipeline_parallel_size != 1:
        raise UserError(
            f"is not allowed with a pair, because {_REFUSED_ARGS['pipeline_parallel_size']}",
            argument="pipeline_parallel_size",
            value=spec.pipeline_parallel_size,
            accepted="1",
            hint="Use `tensor_parallel_size` instead.",
        )
    for name, why in _REFUSED_ARGS.items():
        if name in spec.vllm_args:
            raise UserError(
                f"is not allowed with a pair, because {why}",
                argument=f"vllm_args {name}",
                value=spec.vllm_args[name],
                hint="Remove it from `vllm_args`.",
            )


def telling_args(spec: EngineSpec) -> dict[str, Any]:
    """Return the user's own arguments of vLLM that can change a token (such as `kv_cache_dtype`), as plain values."""
    harmless = {*_HARMLESS_ARGS, *PLACING_ARGS}
    return _plain({name: value for name, value in spec.vllm_args.items() if name not in harmless})


def freed_args(spec: EngineSpec) -> dict[str, Any]:
    """Return the user's own arguments of vLLM that were part of a record's hash only in versions before 2026-11-29."""
    return _plain({name: value for name, value in spec.vllm_args.items() if name in PLACING_ARGS})


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(arguments, sort_keys=True, default=str))


def llm_arguments(engine: TestedPair, *, eager: bool, head_dtype: str) -> dict[str, Any]:
    """Return the keyword arguments of `vllm.LLM`.

    Raises:
        UserError: The user gives an argument that the pair sets, or that has a setting of its own.
    """
    spec, pair = engine.spec, engine.pair
    arguments: dict[str, Any] = {
        **_models(engine, head_dtype),
        "trust_remote_code": pair.trust_remote_code,
        "dtype": engine.dtype,
        "max_model_len": max(engine.context.length, engine.context.rl_alone),
        "max_num_seqs": spec.max_num_seqs,
        "tensor_parallel_size": spec.tensor_parallel_size,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "enforce_eager": eager,
        "seed": 0,  # vLLM's own noise is never used
        "disable_log_stats": True,
        "use_tqdm_on_load": not engine.checkpoints.small,
        "logits_processors": ["rlvr_dir.decode.vllm_pair.processor:PairProcessor"],
        "logprobs_mode": "processed_logits",
        "worker_extension_cls": "rlvr_dir.decode.vllm_pair.worker.PairWorker",
        "max_logprobs": 1 + PROPOSAL + columns(MAX_TOP),
    }
    if spec.max_num_batched_tokens is not None:
        arguments["max_num_batched_tokens"] = spec.max_num_batched_tokens
    if engine.scores:
        length = engine.longest or 1
        most = max(spec.max_num_batched_tokens or SCORED_TOKENS, length, spec.max_num_seqs)
        # With chunked prefill, the last row of a chunk would be scored at the first token of another text.
        whole = {"enable_chunked_prefill": False, "max_model_len": length, "max_num_batched_tokens": most}
        arguments |= {**whole, "max_logprobs": 256}
    if spec.block_size is not None:
        arguments["block_size"] = spec.block_size
    if spec.kv_cache_gib is not None or on_cpu():
        arguments["kv_cache_memory_bytes"] = int((spec.kv_cache_gib or CPU_KV_CACHE_GIB) * 2**30)
    if spec.max_num_seqs > DEFAULT_GRAPHS and not (eager or on_cpu() or _sizes_graphs(spec.vllm_args)):
        # Above its default size vLLM would decode full batches without a graph. Sizes increase in steps of 16.
        arguments["max_cudagraph_capture_size"] = -(-spec.max_num_seqs // 16) * 16
    for name in spec.vllm_args:
        if name in arguments and name not in ("disable_log_stats", "use_tqdm_on_load"):
            own = name in EngineSpec.model_fields
            raise UserError(
                f"is not allowed, because {'it has its own setting' if own else 'the pair sets it'}",
                argument=f"vllm_args {name}",
                value=spec.vllm_args[name],
                hint=f"Use `{name}` outside `vllm_args`." if own else "Remove it from `vllm_args`.",
            )
    arguments |= spec.vllm_args
    widths = {config.get_text_config().hidden_size for config in engine.checkpoints.configs.values()}
    if spec.tensor_parallel_size > 1 and len(widths) > 1:
        # A process has one workspace for sums fused with norms, and vLLM takes its size from the first submodel.
        compilation = arguments.get("compilation_config") or {}
        compilation = compilation if isinstance(compilation, dict) else {"mode": compilation}
        passes = {**(compilation.get("pass_config") or {}), "fuse_allreduce_rms": False}
        arguments["compilation_config"] = {**compilation, "pass_config": passes}
    return arguments


def _models(engine: TestedPair, head_dtype: str) -> dict[str, Any]:
    """Return the configuration of the models: vLLM opens on RL, and the weights of the others are loaded beside it."""
    pair, checkpoints = engine.loaded, engine.checkpoints
    longest = max(engine.context.length, engine.context.rl_alone)  # base is also read where only RL goes
    longest = max(longest, engine.longest or 0) if engine.scores else longest
    beyond = {role for role, (_, positions) in engine.context.models.items() if positions and longest > positions}
    models = {}
    for role in sorted(engine.roles, key=lambda role: role != "rl"):
        config, (place, revision) = checkpoints.configs[role], pair.models[role]
        models[role] = {
            "place": place,
            "revision": revision,
            "tied": ties_head(config),
            "positions": longest if role in beyond else None,  # otherwise the rotary table is too short
        }
    named: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "rlvr": {
            "models": models,
            "architecture": (checkpoints.configs["rl"].architectures or ["unknown"])[0],
            "vocab": checkpoints.vocab_size,
            "shared": checkpoints.shared,
            "stand_in": checkpoints.stand_in,
            **({"scores": True} if engine.scores else {}),
        },
    }
    if head_dtype != engine.dtype:
        named["head_dtype"] = head_dtype
    if models["rl"]["positions"]:
        named["max_position_embeddings"] = longest
    tokenizer = engine.pair.models["rl" if checkpoints.tokenizer.name_or_path == engine.pair.rl else "base"]
    return {
        "model": pair.models["rl"].place,
        "revision": pair.models["rl"].revision,
        "tokenizer": tokenizer.place,
        "tokenizer_revision": tokenizer.revision,
        "hf_overrides": named,
    }


def _sizes_graphs(vllm_args: dict[str, Any]) -> bool:
    """Return whether the user's own arguments set the sizes for which CUDA graphs are captured."""
    compilation = vllm_args.get("compilation_config", {})
    own = {*vllm_args, *(compilation if isinstance(compilation, dict) else ("cudagraph_capture_sizes",))}
    return bool(own & {"cudagraph_capture_sizes", "max_cudagraph_capture_size"})

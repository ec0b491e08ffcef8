"""For `found_apart`: what vLLM's configuration becomes where the platform says it is an H200; nothing is computed."""

import os
import sys
from types import ModuleType

from benchmarks import random_weights

CAPABILITY = (9, 0)


def stand_in():
    """vLLM's CUDA platform on a machine that has none; set in all that asks for it when it is imported."""
    import vllm.engine.arg_utils
    import vllm.model_executor.layers.logits_processor
    import vllm.model_executor.models.qwen2
    import vllm.platforms as platforms
    import vllm.v1.executor.uniproc_executor

    for name in ("vllm._C_stable_libtorch", "vllm._C"):
        sys.modules.setdefault(name, ModuleType(name))
    assert platforms.current_platform.is_cpu()
    from vllm.platforms import cuda, interface

    class H200(cuda.CudaPlatformBase):
        get_device_capability = classmethod(lambda cls, device_id=0: interface.DeviceCapability(*CAPABILITY))
        get_device_name = classmethod(lambda cls, device_id=0: "NVIDIA H200")
        get_device_total_memory = classmethod(lambda cls, device_id=0: 141 * 2**30)
        get_device_uuid = classmethod(lambda cls, device_id=0: "x")
        is_fully_connected = classmethod(lambda cls, ids: True)

    made = platforms._current_platform = H200()
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("vllm.") and vars(module).get("current_platform") is not None:
            module.current_platform = made
    import vllm.config.vllm

    vllm.config.vllm.HAS_TRITON = True


def chosen(pair, **settings):
    """What vLLM's configuration says of an engine, and of each submodel's part of it."""
    from vllm.config.utils import replace
    from vllm.engine.arg_utils import EngineArgs

    from rlvr_dir.config import EngineSpec
    from rlvr_dir.decode.vllm_pair import batch_invariance
    from rlvr_dir.decode.vllm_pair.engine import VllmPair

    engine = VllmPair(pair, EngineSpec(vllm_args={"load_format": "dummy"}, **settings))
    batch_invariance.switch(engine.spec.deterministic)
    arguments = engine.arguments()
    del arguments["use_tqdm_on_load"]
    config = EngineArgs(**arguments).create_engine_config()
    parts = [replace(config, additional_config={"rlvr_role": role}) for role in ("rl", "base")]
    parts.append(replace(parts[0], additional_config={"rlvr_role": "rl"}))

    def facts(config):
        compilation = config.compilation_config
        return {
            "mode": int(compilation.mode), "graphs": compilation.cudagraph_mode.name,
            "largest": compilation.max_cudagraph_capture_size, "sizes": len(compilation.cudagraph_capture_sizes),
            "v2": config.use_v2_model_runner, "async": config.scheduler_config.async_scheduling,
            "head": str(config.model_config.head_dtype),
            "left": sorted({"VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH"} & {*os.environ}),
        }  # fmt: skip

    said = facts(config)
    said["alike"] = [facts(part) == said for part in parts]
    said["hashes"] = [part.compute_hash() for part in parts]
    return said


def main(folder):
    """Return what vLLM chose, for engines in turn."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    random_weights.SHAPES["tuned"] = (2048, 2, 16, 8, 6144)  # of a shape that vLLM has batch-invariant tables for
    tuned = random_weights.write_shape(folder / "tuned", "tuned")
    stand_in()
    from rlvr_dir.decode.vllm_pair.plugin import register

    register()
    said = {"full batches": chosen(tuned, dtype="bfloat16", max_num_seqs=960)}
    for name, deterministic in (("ordinary", False), ("deterministic", True), ("ordinary again", False)):
        said[name] = chosen(tuned, dtype="bfloat16", deterministic=deterministic)
    return said

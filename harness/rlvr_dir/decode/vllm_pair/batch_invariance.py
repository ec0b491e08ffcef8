"""`deterministic`: vLLM's batch-invariant kernels, whose bits do not depend on who else is in the batch.

Without them a matrix product of few rows may be summed in another order than one of many: the last bits of the logits
differ, and now and then a token. Tokens of this mode may differ from the ordinary one's, so it is part of a record's
hash. Read in the source of vLLM 0.25.1 and 0.32.0 (`batch_invariant.py`, the attention backends).
"""

import os
import sys

from rlvr_dir.errors import UserError

VARIABLE = "VLLM_BATCH_INVARIANT"
CAPABILITY = 80  # below 8.0 vLLM has no such kernels: its replacements are Triton's, for Ampere and newer
# vLLM itself sets this beside it, in this process, for shapes of its tuned tables: the next engine would not compile.
_OF_VLLM = "VLLM_USE_BREAKABLE_CUDAGRAPH"
_set_here: list[str] = []  # variables that were not there before
_LATE = "vllm.v1.attention.ops.triton_unified_attention"  # reads the variable once, when it is imported


def refuse() -> None:
    """Turn `deterministic` down where vLLM has no batch-invariant kernels.

    Raises:
        UserError: saying what this machine is.
    """
    from vllm.platforms import current_platform

    accepted = "accepted: an NVIDIA GPU of compute capability 8.0 or newer, or leave it out"
    if not current_platform.is_cuda():
        kind = "a CPU" if current_platform.is_cpu() else f"{current_platform.device_name!r}"
        raise UserError(
            f"deterministic=True is refused on {kind}: vLLM has no batch-invariant kernels here; {accepted}"
        )
    if not current_platform.has_device_capability(CAPABILITY):
        capability = current_platform.get_device_capability()
        version = capability.as_version_str() if capability else "unknown"
        raise UserError(f"deterministic=True is refused on compute capability {version}; {accepted}")


def switch(on: bool) -> None:
    """Set the variable for this process and those that the engine starts, or take back what was set here.

    Raises:
        UserError: the engine will run in this process, where vLLM's kernels were loaded for the other kind of engine.
    """
    import vllm.envs

    invariant = getattr(sys.modules.get(_LATE), "is_batch_invariant", None)
    if not vllm.envs.VLLM_ENABLE_V1_MULTIPROCESSING and invariant is (not on) and (on or _set_here):
        raise UserError(
            f"deterministic={on} is refused: vLLM's other kernels are loaded in this process already; accepted: a new "
            "process, or VLLM_ENABLE_V1_MULTIPROCESSING=1"
        )
    if not on:
        while _set_here:
            os.environ.pop(_set_here.pop(), None)
    elif VARIABLE not in os.environ:
        _set_here.extend(name for name in (VARIABLE, _OF_VLLM) if name not in os.environ)
        os.environ[VARIABLE] = "1"

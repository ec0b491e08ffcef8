"""Switch vLLM's batch-invariant kernels (`deterministic`), whose bits do not depend on the other rows of the batch.

Without them a matrix product with few rows may be summed in another order than one with many. Then the last bits of the
logits differ, and occasionally a token. Tokens in this mode may differ from those of the ordinary mode, so the mode is
part of a record's hash. Checked in the source of vLLM 0.25.1 and 0.32.0 (`batch_invariant.py`, the attention backends).
"""

import os
import sys

from rlvr_dir.errors import UserError

VARIABLE = "VLLM_BATCH_INVARIANT"
CAPABILITY = 80  # below 8.0 vLLM has no such kernels, because they are in Triton for Ampere and newer
# vLLM also sets this one here, for shapes of its tuned tables. If it stayed, the next engine would not compile.
_OF_VLLM = "VLLM_USE_BREAKABLE_CUDAGRAPH"
_set_here: list[str] = []  # variables that were not there before
_LATE = "vllm.v1.attention.ops.triton_unified_attention"  # reads the variable once, when it is imported


def refuse() -> None:
    """Refuse `deterministic` on machines for which vLLM has no batch-invariant kernels.

    Raises:
        UserError: There are none. The error describes this machine.
    """
    from vllm.platforms import current_platform

    why = "vLLM has no batch-invariant kernels"
    accepted = "True only on an NVIDIA GPU of compute capability 8.0 or newer"
    if not current_platform.is_cuda():
        kind = "a CPU" if current_platform.is_cpu() else f"{current_platform.device_name!r}"
        raise UserError(f"is not supported on {kind}: {why}", argument="deterministic", value=True, accepted=accepted)
    if not current_platform.has_device_capability(CAPABILITY):
        capability = current_platform.get_device_capability()
        version = capability.as_version_str() if capability else "unknown"
        problem = f"is not supported on compute capability {version}: {why}"
        raise UserError(problem, argument="deterministic", value=True, accepted=accepted)


def switch(on: bool) -> None:
    """Set the variable for this process and those that the engine starts; if not `on`, undo what was set here.

    Raises:
        UserError: The engine will run in this process, and vLLM's kernels are already loaded for the other mode.
    """
    import vllm.envs

    invariant = getattr(sys.modules.get(_LATE), "is_batch_invariant", None)
    if not vllm.envs.VLLM_ENABLE_V1_MULTIPROCESSING and invariant is (not on) and (on or _set_here):
        raise UserError(
            f"needs a new process, because vLLM's kernels for deterministic={not on} are already loaded",
            argument="deterministic",
            value=on,
            hint="Start a new process, or set VLLM_ENABLE_V1_MULTIPROCESSING=1.",
        )
    if not on:
        while _set_here:
            os.environ.pop(_set_here.pop(), None)
    elif VARIABLE not in os.environ:
        _set_here.extend(name for name in (VARIABLE, _OF_VLLM) if name not in os.environ)
        os.environ[VARIABLE] = "1"

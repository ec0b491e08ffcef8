"""Compute in full float32: switch off the reduced precision that GPUs use for it by default."""

import os

# A GPU may round the factors of a float32 product to TensorFloat-32 (10 bits of mantissa): Triton's `dot` in vLLM's
# attention by default, cuBLAS and cuDNN if requested. An engine's processes inherit these variables.
# (TRITON_F32_DEFAULT is read when a kernel is compiled, NVIDIA_TF32_OVERRIDE when CUDA starts.)
IEEE_FLOAT32 = {
    "TRITON_F32_DEFAULT": "ieee",
    "NVIDIA_TF32_OVERRIDE": "0",
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
}


def exact_float32() -> None:
    """Make this process, and those it starts from now on, multiply float32 numbers in full precision.

    Both engines call it before they load a pair in float32, because their tokens are compared. A variable that the user
    has set is not changed.
    """
    import torch

    for name, value in IEEE_FLOAT32.items():
        os.environ.setdefault(name, value)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False

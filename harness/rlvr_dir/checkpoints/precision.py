"""Float32 that is float32: the shortcuts that a GPU takes with it are switched off."""

import os

# A GPU rounds the factors of a float32 product to TensorFloat-32 (10 bits of mantissa) where it is let: Triton's `dot`
# in vLLM's attention by default, cuBLAS and cuDNN where anybody has asked for it. The processes of an engine inherit
# these. (TRITON_F32_DEFAULT is read when a kernel is compiled, NVIDIA_TF32_OVERRIDE when CUDA starts.)
IEEE_FLOAT32 = {
    "TRITON_F32_DEFAULT": "ieee",
    "NVIDIA_TF32_OVERRIDE": "0",
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
}


def exact_float32() -> None:
    """Have this process, and those it starts from now on, multiply float32 numbers as float32.

    Both engines call it before they load a pair in float32: their tokens are compared with each other. A variable that
    the user has set is left as it is.
    """
    import torch

    for name, value in IEEE_FLOAT32.items():
        os.environ.setdefault(name, value)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False

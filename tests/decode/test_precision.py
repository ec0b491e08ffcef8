"""A pair in float32 is computed in float32: no TensorFloat-32, in this process or in those that it starts."""

import os
import subprocess
import sys

import pytest

from harness.decode.precision import IEEE_FLOAT32


def loaded(peaked_pair, dtype, **environment):
    """What a process finds that has loaded the reference engine: Triton's default, then cuBLAS's and cuDNN's."""
    code = (
        "import os, sys, torch, triton\n"
        "from harness.decode import open_engine\n"
        "from harness.spec import EngineSpec, Pair\n"
        "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True\n"
        "open_engine(Pair(base=sys.argv[1], rl=sys.argv[2]), EngineSpec(backend='transformers', dtype=sys.argv[3]))\n"
        "print(triton.knobs.language.fp32_default, os.environ.get('NVIDIA_TF32_OVERRIDE'),\n"
        "      torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)\n"
    )
    clean = {name: value for name, value in os.environ.items() if name not in IEEE_FLOAT32}
    command = [sys.executable, "-c", code, peaked_pair.base, peaked_pair.rl, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**clean, **environment})
    return done.stdout.split()


@pytest.mark.parametrize(
    ("dtype", "environment", "expected"),
    [
        ("float32", {}, ["ieee", "0", "False", "False"]),
        ("float32", {"TRITON_F32_DEFAULT": "tf32x3"}, ["tf32x3", "0", "False", "False"]),
        ("bfloat16", {}, ["None", "None", "True", "True"]),
    ],
    ids=["float32", "as-the-user-says", "bfloat16"],
)
def test_no_tensorfloat_in_float32(peaked_pair, dtype, environment, expected):
    pytest.importorskip("triton", reason="Triton is not installed")
    assert loaded(peaked_pair, dtype, **environment) == expected

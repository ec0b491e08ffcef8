"""The kernels compiled for GPUs, which needs none: what Triton's interpreter would let pass fails here.

ptxas, which Triton brings, makes the machine code; cuobjdump, beside it, says what a thread takes.
"""

import re
import subprocess
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks import fused as bench
from rlvr_dir.policy import kernels
from rlvr_dir.policy.fused import REGISTERS, TILE

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
POINTERS = {
    "rules": "fp64", "partials": "fp32", "constants": "fp32", "counts": "i32", "totals": "i64", "lists": "i64",
    "histograms": "i64", "keys": "i64", "positions": "i64", "starts": "i64", "tokens": "i64", "proposals": "i64",
    "replacements": "i8", "deltas": "fp32", "deltas_written": "fp32", "decided": "i8", "masses": "fp32",
}  # fmt: skip
NUMBERS = dict.fromkeys(
    ("band", "limit", "id_offset", "id_step", "delta_offset", "delta_step"), "fp32"
)  # all others are integers
READING = {"num_warps": 16, "maxnreg": REGISTERS}
# Kernel, its constants, how it is launched, and how many registers of 64 K a program may take (of a thread, times its
# threads: half of them, and two programs fit a multiprocessor).
KERNELS = {
    "summarise": ({"TILE": TILE}, READING, 1 << 15),
    "normalise": ({"TILES": 64}, {"num_warps": 1}, 1 << 11),
    "gather": ({"TILE": TILE}, READING, 1 << 15),
    "decide": ({"TILE": TILE, "CHUNK": 8}, {"num_warps": 16}, 1 << 16),
    "force": ({"MASKED": True, "TILE": TILE}, {"num_warps": 4}, 1 << 13),
    "_spell_out": ({"ROWS": 1, "TILE": TILE}, {"num_warps": 4}, 1 << 15),
}
TYPES = {"float32": ("fp32", "fp32"), "bfloat16": ("bf16", "fp32"), "float16": ("fp16", "fp16")}


def compiled(name, capability, dtypes=("fp32", "fp32"), aligned=True, **changes):
    """The kernel for a GPU of this capability; of logits whose rows begin at multiples of 16 bytes, or do not."""
    constants, options, _ = KERNELS[name]
    constants = {**constants, **changes}
    kernel = getattr(bench if name == "_spell_out" else kernels, name)
    logits = dict(zip(("base", "rl", "logits"), (*dtypes, dtypes[1]), strict=True))
    types = {
        each: "constexpr" if each in constants
        else f"*{logits[each]}" if each in logits
        else f"*{POINTERS[each]}" if each in POINTERS
        else NUMBERS.get(each, "i32")
        for each in kernel.arg_names
    }  # fmt: skip
    odd = {*constants, *NUMBERS, "n", "vocab", "tiles"}
    odd |= set() if aligned else {"base", "rl", "base_stride", "rl_stride", "width", "stride"}
    multiples = [each for each in kernel.arg_names if each not in odd]
    source = ASTSource(
        kernel,
        types,
        {(kernel.arg_names.index(each),): value for each, value in constants.items()},
        {(kernel.arg_names.index(each),): [["tt.divisibility", 16]] for each in multiples},
    )
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={**options, "enable_fp_fusion": False})


def machine_code(made, folder):
    """What a thread takes of registers and stack, and the instructions."""
    file = folder / "kernel.cubin"
    file.write_bytes(made.asm["cubin"])
    said = subprocess.run([CUOBJDUMP, "-res-usage", "-sass", file], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", said).groups())
    return registers, stack, re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)", said)


OTHERS = pytest.mark.whole(reason="12 s of compiling for each architecture beside the H100's")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("capability", [pytest.param(80, marks=OTHERS), 90, pytest.param(100, marks=OTHERS)])
def test_a_kernel_compiles_and_fits(name, capability, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    _, options, most = KERNELS[name]
    for dtypes in TYPES.values():
        made = compiled(name, capability, dtypes)
        registers, stack, code = machine_code(made, tmp_path)
        assert stack <= 64  # more would be spilled in every loop
        assert -(-registers // 8) * 8 * 32 * options["num_warps"] <= most
        assert not any(each.startswith("FFMA") for each in code) or name == "normalise"
        assert "fma.rn.f32" not in made.asm["ptx"]  # a mass is the same number in every kernel
        if name in ("summarise", "gather", "decide"):
            assert any(each.startswith("LDG") and each.endswith("128") for each in code)  # 16 bytes at once


@pytest.mark.parametrize(
    ("name", "changes"), [("summarise", {}), ("gather", {}), ("decide", {}), ("force", {"MASKED": False}),
                          ("normalise", {"TILES": 2})]
)  # fmt: skip
def test_what_is_rare_compiles_as_well(name, changes, monkeypatch, tmp_path):
    """Rows that begin anywhere, a vocabulary of one tile, and steps without plain requests."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert machine_code(compiled(name, 90, aligned=False, **changes), tmp_path)[1] <= 64

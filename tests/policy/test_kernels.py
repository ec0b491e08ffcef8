"""The kernels compiled for a GPU, which needs none: what Triton's interpreter would let pass fails here."""

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.policy import kernels
from harness.policy.fused import TILE

HOPPER = GPUTarget("cuda", 90, 32)
POINTERS = {
    "rules": "fp64", "partials": "fp32", "constants": "fp32", "counts": "i32", "totals": "i64", "lists": "i64",
    "histograms": "i64", "keys": "i64", "positions": "i64", "tokens": "i64", "proposals": "i64", "replacements": "i8",
    "deltas": "fp32", "decided": "i8",
}  # fmt: skip
NUMBERS = {"band": "fp32", "limit": "fp32"}  # all others are integers


@pytest.mark.parametrize(
    ("name", "constants", "warps"),
    [
        ("summarise", {"TILE": TILE}, 16),
        ("normalise", {"TILES": 64}, 1),
        ("gather", {"TILE": TILE}, 16),
        ("decide", {"TILE": TILE, "CHUNK": 8}, 16),
        ("force", {"MASKED": True, "TILE": TILE}, 4),
    ],
)
def test_a_kernel_compiles_for_hopper(name, constants, warps, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(kernels, name)
    logits = {"base": "bf16", "rl": "fp32", "logits": "bf16"}
    types = {
        each: "constexpr" if each in constants
        else f"*{logits[each]}" if each in logits
        else f"*{POINTERS[each]}" if each in POINTERS
        else NUMBERS.get(each, "i32")
        for each in kernel.arg_names
    }  # fmt: skip
    multiples = [each for each in kernel.arg_names if each not in {*constants, *NUMBERS, "vocab", "tiles"}]
    source = ASTSource(
        kernel,
        types,
        {(kernel.arg_names.index(each),): value for each, value in constants.items()},
        {(kernel.arg_names.index(each),): [["tt.divisibility", 16]] for each in multiples},
    )
    made = triton.compile(source, target=HOPPER, options={"num_warps": warps, "enable_fp_fusion": False})
    assert made.asm["cubin"]
    assert "fma.rn.f32" not in made.asm["ptx"]  # a mass is the same number in every kernel
    if name in ("summarise", "gather", "decide"):
        assert "ld.global.v4.b32" in made.asm["ptx"]  # logits are read 16 bytes at once

"""The fused decision in Triton's interpreter, on a CPU: TRITON_INTERPRET=1 python -m tests.policy.interpreted FOLDER.

A process of its own, since Triton asks for the variable when it is first imported. For every line that it reads, it
calls the function that FOLDER/asked.pt names, puts what that returns into FOLDER/answered.pt, and writes "done".
"""

import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime import interpreter

from benchmarks.fused import DecisionBatch, Outcome, outcome
from rlvr_dir.decode.plan import DELTA_LIMIT
from rlvr_dir.decode.vllm_pair import channel
from rlvr_dir.policy import kernels
from rlvr_dir.policy.algorithm import Decision
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.fused import decide_fused, force
from rlvr_dir.policy.step import Requests
from tests.policy.lockstep import in_lockstep


def run(batch: DecisionBatch, tile: int | None = None, lockstep: bool | None = None) -> Outcome:
    """Decides, in few and large tiles, which are fast here, and small ones in lockstep."""
    tile = tile or min(1 << 16, 1 << (batch.vocab_size - 1).bit_length())
    together = tile <= 4096 if lockstep is None else lockstep
    with in_lockstep(kernels) if together else nullcontext():
        return outcome(batch, tile=tile, chunk=128)


def run_roughly(batch: DecisionBatch) -> Outcome:
    """Decide with a GPU's fast exponential and division, off by up to 2 units in the last place, as is documented."""

    def off(exact: np.ndarray) -> np.ndarray:  # by the number's own bits: the same number gives the same error
        bits = exact.astype(np.float32).view(np.int32)
        moved = bits + ((bits.astype(np.int64) * 2654435761 >> 16) % 5 - 2).astype(np.int32)
        return np.where(np.isfinite(exact) & (exact != 0) & (exact != 1), moved, bits).view(np.float32)

    def exponential(self: object, argument: interpreter.TensorHandle) -> interpreter.TensorHandle:
        scaled = (argument.data.astype(np.float32) * np.float32(np.log2(np.e))).astype(np.float64)
        return interpreter.TensorHandle(off(np.exp2(scaled).astype(np.float32)), argument.dtype.scalar)

    def division(
        self: object, one: interpreter.TensorHandle, other: interpreter.TensorHandle
    ) -> interpreter.TensorHandle:
        exact = (one.data / other.data).astype(one.data.dtype)
        return interpreter.TensorHandle(off(exact) if exact.dtype == np.float32 else exact, one.dtype.scalar)

    builder = interpreter.InterpreterBuilder
    with patch.object(builder, "create_exp", exponential), patch.object(builder, "create_fdiv", division):
        return run(batch)


def fused(batch: DecisionBatch, start: int = 0) -> Decision:
    """Decide as an engine does on a GPU, the rows that torch decides among them."""
    n = len(batch.rows)
    where = Requests(batch.keys, batch.positions, torch.full((n,), start))
    with in_lockstep(kernels):
        return decide_fused(batch.logits, batch.rules, where, Combination(batch.vocab_size))


def forced(logits: torch.Tensor, decided: torch.Tensor | None, decision: Decision) -> torch.Tensor:
    """`force`, with the channel's numbers."""
    return force(logits, decision, decided, band=channel.BAND, limit=DELTA_LIMIT, beside=channel.BESIDE)


def hasten() -> None:
    """Make the interpreter 6 times as fast, by what it does again and again and does not need to.

    It patches triton.language at each call of a helper; but a kernel's launch does it for the helpers of the kernel's
    module, and those of Triton's own stay patched. And it computes every sum of integers twice, to find overflows.
    """
    patched = set()

    def call(self: interpreter.InterpretedFunction, *args: object, **kwargs: object) -> object:
        module = id(self.fn.__globals__)
        if module not in patched:
            interpreter._patch_lang(self.fn)
            patched.add(module)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call
    interpreter.TritonSemantic.binary_op_sanitize_overflow_impl = lambda *args, **kwargs: None


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # numpy's, about -inf - -inf in lanes that are masked
    hasten()
    folder = Path(sys.argv[1])
    for _ in sys.stdin:
        name, arguments = torch.load(folder / "asked.pt", weights_only=False)
        torch.save(
            {"run": run, "run_roughly": run_roughly, "fused": fused, "forced": forced}[name](**arguments),
            folder / "answered.pt",
        )
        print("done", flush=True)

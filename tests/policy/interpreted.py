"""The fused decision in Triton's interpreter, on a CPU: TRITON_INTERPRET=1 python -m tests.policy.interpreted IN OUT.

A process of its own, since Triton asks for the variable when it is first imported. IN holds a list of keyword arguments
of `run` (torch.save), OUT gets the list of what it returns.
"""

import sys
import warnings

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from harness.policy import kernels
from harness.policy.decision import Decision, Rule, RuleRow
from harness.policy.fused import _run, force


@triton.jit
def _spell_out(base, rl, constants, masses, width, stride, TILE: tl.constexpr):
    """The mass of every token under both policies, as the kernels compute it. Grid (n,)."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    b = tl.load(base + i * stride + column, mask=column < width, other=-float("inf")).to(tl.float32)
    r = tl.load(rl + i * stride + column, mask=column < width, other=-float("inf")).to(tl.float32)
    for policy in tl.static_range(2):
        mass = kernels._policy_mass(b, r, constants + i * kernels.CONSTANTS, policy)
        tl.store(masses + (i * 2 + policy) * width + column, mass, mask=column < width)


def run(
    base: torch.Tensor,
    rl: torch.Tensor,
    rows: list[RuleRow],
    keys: torch.Tensor,
    positions: torch.Tensor,
    vocab_size: int | None = None,
    tile: int = 4096,
    chunk: int = 128,
) -> dict[str, torch.Tensor]:
    """A decision by the kernels: its tensors, `statistics` (n, 4), `mass` (n, 2, vocab) float32 of both policies."""
    decision, constants = _run(base, rl, Rule(rows), keys, positions, vocab_size, tile=tile, chunk=chunk)
    n, vocab = len(base), vocab_size or base.shape[1]
    mass = torch.empty(n, 2, vocab)
    b, r = (logits[:, :vocab].contiguous() for logits in (base, rl))
    size = 1 << (vocab - 1).bit_length()
    _spell_out[(n,)](b, r, constants, mass, vocab, vocab, TILE=size)
    found = {name: getattr(decision, name) for name in ("token", "proposed", "replaced", "delta_logp")}
    first = kernels.STATISTICS_AT
    return {**found, "statistics": constants[:, first : first + 4].clone(), "mass": mass}


def forced(logits: torch.Tensor, decided: torch.Tensor | None, decision: Decision) -> torch.Tensor:
    """`force`, with the channel's numbers."""
    return force(logits, decision, decided, band=64.0, limit=30.0)


def _patch_once() -> None:
    """Spares the interpreter from patching triton.language at each call of a helper: 5 times as fast.

    A kernel's launch patches it for the helpers of the kernel's module; those of Triton's own stay patched.
    """
    patched = set()

    def call(self: interpreter.InterpretedFunction, *args: object, **kwargs: object) -> object:
        module = id(self.fn.__globals__)
        if module not in patched:
            interpreter._patch_lang(self.fn)
            patched.add(module)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # numpy's, about -inf - -inf in lanes that are masked
    _patch_once()
    called = {"run": run, "forced": forced}
    cases = torch.load(sys.argv[1], weights_only=False)
    torch.save([called[name](**arguments) for name, arguments in cases], sys.argv[2])

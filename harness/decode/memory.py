"""What the reference engine needs in memory, worked out from the configuration before anything is loaded.

It has no paged cache: every row of a batch may grow to its longest, and both models keep the keys and values of all of
it. On a GPU what does not fit ends a run of hours, so it is refused, or decoded fewer rows at a time; which rows share
a batch changes no token.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.errors import UserError

GIB = 2**30
LIMITED = {"cuda"}  # kinds of device whose memory cannot be lent from anywhere: refused there, elsewhere a warning
_USABLE = 0.92  # of what is free: the rest is the allocator's waste and the kernels' own
_DECISION = 64  # bytes a logit that a decision takes at its peak, both models' float32 logits among them


@dataclass(frozen=True)
class Shape:
    """Hold what a model's memory depends on."""

    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int

    @classmethod
    def of(cls, config: Any, trust_remote_code: bool = False) -> "Shape":
        """Read it from a transformers configuration; parameters are counted without making any."""
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
        text = config.get_text_config()
        heads = text.num_attention_heads
        return cls(
            parameters=sum(parameter.numel() for parameter in model.parameters()),  # tied ones are counted once
            layers=text.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
            hidden=text.hidden_size,
            intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocab=text.vocab_size,
        )

    def cached_numbers(self, tokens: int) -> int:
        """Count the keys and values of so many tokens of one row, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens


def batch_bytes(shapes: Sequence[Shape], rows: int, prompt: int, new: int, bytes_a_number: int) -> int:
    """Estimate the most that a batch takes beside the weights, if every row becomes `prompt` + `new` tokens long.

    Caches with their room to grow, one layer's keys and values copied for each head that shares them, the prompts'
    activations and mask, and the decision. `shapes` has one for each model: all caches are kept, and of what one model
    needs while it reads, the larger counts.
    """
    length = prompt + new
    room = length + max(32, length // 8)  # of a cache that grows
    moved = max(shape.cached_numbers(length) / shape.layers for shape in shapes)  # one layer's at a time
    caches = sum(shape.cached_numbers(room) for shape in shapes) + moved
    heads = max(2 * shape.heads * shape.head_dim * length for shape in shapes)
    prompts = max(prompt * (8 * shape.hidden + 3 * shape.intermediate) + prompt * prompt for shape in shapes)
    logits = sum(shape.vocab for shape in shapes) * bytes_a_number + max(shape.vocab for shape in shapes) * _DECISION
    return int(rows * ((caches + heads + prompts) * bytes_a_number + logits))


def rows_that_fit(shapes: Sequence[Shape], prompt: int, new: int, bytes_a_number: int, free: int, wanted: int) -> int:
    """Return how many rows of a batch fit into `free` bytes beside the weights, at most `wanted`; 0: not even one."""
    return min(wanted, int(_USABLE * free / batch_bytes(shapes, 1, prompt, new, bytes_a_number)))


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that a device has left, with what torch keeps there for later; None where nobody says."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    group = Path("/sys/fs/cgroup")  # a container's share
    try:
        limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return min(free, int(limit) - int(used)) if limit != "max" else free
    except (OSError, ValueError):
        return free


def check_weights(shapes: Sequence[Shape], dtype: str, device: torch.device) -> None:
    """Check that the models fit into what the device has left.

    Raises:
        UserError: they do not, on a GPU. Elsewhere that is a warning.
    """
    free, needed = free_bytes(device), sum(shape.parameters for shape in shapes) * _width(dtype)
    if free is None or needed <= _USABLE * free:
        return
    each = " and ".join(dict.fromkeys(f"{shape.parameters / 1e9:.2g}" for shape in shapes))
    what = f"{len(shapes)} models of {each} billion parameters take {_gib(needed)} GiB in {dtype}"
    if device.type in LIMITED:
        raise UserError(
            f"backend='transformers' is refused: {what}, and {device} has {_gib(free)} free; accepted: backend=vllm, "
            "which can cut them over several GPUs (tensor_parallel_size), a narrower dtype, or device=cpu"
        )
    warnings.warn(f"{what}, and {_gib(free)} GiB of this machine's memory are free", stacklevel=4)


def check_rows(shapes: Sequence[Shape], prompt: int, new: int, dtype: str, device: torch.device, wanted: int) -> int:
    """Return how many rows to decode at once, at most `wanted`; the weights are loaded. Fewer come with a warning.

    Raises:
        UserError: not even one row fits, on a GPU.
    """
    free, width = free_bytes(device), _width(dtype)
    if free is None:
        return wanted
    rows = rows_that_fit(shapes, prompt, new, width, free, wanted)
    if rows == wanted:
        return wanted
    each = _gib(batch_bytes(shapes, 1, prompt, new, width))
    what = (
        f"a row of {prompt} + {new} tokens can take {each} GiB, and {device} has {_gib(free)} free beside the weights"
    )
    if device.type not in LIMITED:
        warnings.warn(f"{wanted} rows at a time may be too many: {what}; max_num_seqs sets how many", stacklevel=4)
        return wanted
    if not rows:
        raise UserError(
            f"max_tokens={new} is refused by backend='transformers': {what}; accepted: fewer of them, or backend=vllm"
        )
    warnings.warn(f"{rows} rows are decoded at a time in place of {wanted}: {what}", stacklevel=4)
    return rows


def _width(dtype: str) -> int:
    return getattr(torch, dtype).itemsize


def _gib(size: float) -> str:
    return f"{size / GIB:.3g}"

"""Compute how much memory models need, from their configurations, before anything is loaded.

`ModelShape` is a model's size for decoding and training. vLLM itself measures what fits on a GPU; `vllm_bytes` is the
least that it needs. The reference engine has no paged cache: every row of a batch may grow to its longest, and all
models keep the keys and values of all of it. On a GPU, running out of memory would end a long run, so this is an error,
or fewer rows are decoded at a time. Which rows share a batch changes no token.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from pathlib import Path
from typing import Any

import torch

from rlvr_dir.checkpoints.beside_vllm import beside_vllm
from rlvr_dir.errors import UserError

GIB = 2**30
LIMITED = {"cuda"}  # kinds of device whose memory cannot be extended: an error there, a warning elsewhere
DECISION = 64  # bytes per logit at the peak of a decision, including both models' float32 logits
VLLM_OWN = 2 * GIB  # CUDA graphs, and the activations of a step of a few thousand tokens
_USABLE = 0.92  # of the free memory; the rest is for the allocator and the kernels


@dataclass(frozen=True)
class ModelShape:
    """Describe what a model's memory depends on."""

    tensors: Mapping[str, tuple[int, ...]] = field(repr=False)  # each parameter's shape; tied ones once
    names: frozenset[str] = field(repr=False)  # names in its weight files: buffers too, tied ones twice
    passed_over: tuple[str, ...]  # patterns of other allowed names, as in transformers
    dtype: str
    layers: int
    heads: int  # attention heads of a layer
    kv_heads: int  # key-value heads of a layer
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    context: int

    @classmethod
    def of(cls, config: Any, trust_remote_code: bool = False) -> "ModelShape":
        """Compute it from a transformers configuration, with a model that is built without memory."""
        from transformers import AutoModelForCausalLM

        with torch.device("meta"), beside_vllm(config):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
        text = config.get_text_config()
        heads = text.num_attention_heads
        return cls(
            tensors={name: tuple(parameter.shape) for name, parameter in model.named_parameters()},
            names=frozenset(model.state_dict()),
            passed_over=tuple(model._keys_to_ignore_on_load_unexpected or ()),
            dtype=dtype_of(config),
            layers=text.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
            hidden=text.hidden_size,
            intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocab=text.vocab_size,
            context=getattr(text, "max_position_embeddings", None) or 2**31,
        )

    @property
    def parameters(self) -> int:
        """Count the parameters."""
        return sum(map(prod, self.tensors.values()))

    @property
    def kv(self) -> int:
        """Count the numbers per token in the cache: keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def layer_activations(self) -> int:
        """Count the numbers per token that a layer stores for the gradients."""
        return 10 * self.hidden + 4 * self.intermediate


def dtype_of(config: Any) -> str:
    """Return the type of a checkpoint's weights in its configuration."""
    return str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")


def narrowest(dtypes: Iterable[str]) -> str:
    """Return the type in which checkpoints of these types are decoded: the last one that is not float32, if any."""
    return reduce(lambda first, other: first if other == "float32" else other, dtypes)


def width_of(dtype: str) -> int:
    """Return the bytes of a number."""
    return getattr(torch, dtype).itemsize


def gib(size: float) -> str:
    """Return bytes as GiB, without the unit."""
    return f"{max(size, 0) / GIB:.3g}"


def _size(parameters: int) -> str:
    """Return a number of parameters as `7.6 billion` or `135 million`."""
    return f"{parameters / 1e9:.2g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"


def vllm_bytes(shape: ModelShape, width: int, tokens: int) -> int:
    """Return the bytes of the weights and of the cache of one whole response with this many tokens, including its
    prompt.

    vLLM does not start without room for a response of the longest length. `width` is the bytes per number.
    """
    return width * (shape.parameters + shape.kv * tokens)


def batch_bytes(shapes: Sequence[ModelShape], rows: int, prompt: int, new: int, width: int) -> int:
    """Estimate the most memory that a batch needs besides the weights, if every row has `prompt` + `new` tokens.

    It consists of the caches with space to grow, one layer's keys and values copied for each head that shares them, the
    prompts' activations and mask, and the decision. `shapes` has one entry per model: all caches are kept at once, but
    only the larger model's temporary memory counts. `width` is the bytes per number.
    """
    length = prompt + new
    room = length + max(32, length // 8)  # of a cache that grows
    moved = max(shape.kv * length / shape.layers for shape in shapes)  # one layer's at a time
    caches = sum(shape.kv * room for shape in shapes) + moved
    heads = max(2 * shape.heads * shape.head_dim * length for shape in shapes)
    prompts = max(prompt * (8 * shape.hidden + 3 * shape.intermediate) + prompt * prompt for shape in shapes)
    logits = sum(shape.vocab for shape in shapes) * width + max(shape.vocab for shape in shapes) * DECISION
    return int(rows * ((caches + heads + prompts) * width + logits))


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that a device has left, including what torch keeps for reuse; None if unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    group = Path("/sys/fs/cgroup")  # a container's limit
    try:
        limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return min(free, int(limit) - int(used)) if limit != "max" else free
    except (OSError, ValueError):
        return free


def check_weights(shapes: Sequence[ModelShape], dtype: str, device: torch.device) -> None:
    """Check that the reference engine's models fit into the device's free memory.

    Raises:
        UserError: They do not, on a GPU. Elsewhere that is a warning.
    """
    free, needed = free_bytes(device), sum(shape.parameters for shape in shapes) * width_of(dtype)
    if free is None or needed <= _USABLE * free:
        return
    sizes = " and ".join(dict.fromkeys(_size(shape.parameters) for shape in shapes))
    need = f"{len(shapes)} models of {sizes} parameters take {gib(needed)} GiB in {dtype}"
    if device.type in LIMITED:
        raise UserError(
            f"is not possible here: {need}, and {device} has {gib(free)} free",
            argument="backend",
            value="transformers",
            accepted="backend=vllm, which can split them over several GPUs (tensor_parallel_size), a narrower dtype, "
            "or device=cpu",
        )
    warnings.warn(f"{need}, and {gib(free)} GiB of this machine's memory are free", stacklevel=4)


def check_rows(
    shapes: Sequence[ModelShape], prompt: int, new: int, dtype: str, device: torch.device, wanted: int
) -> int:
    """Return how many rows to decode at once, at most `wanted`, after loading the weights. Warn if there are fewer.

    Raises:
        UserError: Not even one row fits, on a GPU.
    """
    free = free_bytes(device)
    if free is None:
        return wanted
    bytes_of_row = batch_bytes(shapes, 1, prompt, new, width_of(dtype))
    rows = min(wanted, int(_USABLE * free / bytes_of_row))
    if rows == wanted:
        return wanted
    need = (
        f"a row of {prompt} + {new} tokens can take {gib(bytes_of_row)} GiB, "
        f"and {device} has {gib(free)} free beside the "
        "weights"
    )
    if device.type not in LIMITED:
        warnings.warn(f"{wanted} rows at a time may be too many: {need}; max_num_seqs sets how many", stacklevel=4)
        return wanted
    if not rows:
        raise UserError(
            f"does not fit into memory with backend='transformers': {need}",
            argument="max_tokens",
            value=new,
            accepted="fewer tokens, or backend=vllm",
        )
    warnings.warn(f"{rows} rows are decoded at a time instead of {wanted}: {need}", stacklevel=4)
    return rows

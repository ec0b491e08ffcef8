"""The pair whose RL model is base plus a LoRA adapter: one copy of the weights, and the adapter's low-rank terms.

RL is built without weights and then given base's own modules; only its attention layers, which hold the KV cache, and
the shells around them stay its own. Modules are shared, not parameters: backends repack a module's weight after loading
and empty the parameter.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.linear import LinearBase, RowParallelLinear

from harness.decode.adapter import Adapter

Terms = Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # projection -> A (rank, inputs), B (outputs, rank)


def lora_of(base: nn.Module, adapter: Adapter, make: Callable[..., nn.Module]) -> nn.Module:
    """Return RL made out of base's modules and the adapter's terms; `make` builds a model like base.

    It is told what tells its compiled code from that of other terms.
    """
    shape = sha256(repr(sorted(adapter.shapes.items())).encode()).hexdigest()
    with _Weightless():
        rl = make(rlvr_adapter=shape)
    share(rl, base, adapter.terms())
    return rl


class LoRALinear(nn.Module):
    """A projection of base, called where it is, plus RL's terms: y = base(x) + B A x. A drop-in for base's module.

    A packed projection (query, key and value; gate and up) has one term a part, or none: their A are stacked, each B
    adds to its own columns of y. Under tensor parallelism B is cut like base's outputs; where base's *inputs* are cut,
    A is cut with them and A x, `rank` numbers a token, is summed over the ranks.
    """

    a: torch.Tensor  # of all parts, stacked

    def __init__(self, base: LinearBase, parts: list[tuple[torch.Tensor, torch.Tensor] | None]) -> None:
        super().__init__()
        self.base = base
        self.summed = isinstance(base, RowParallelLinear) and base.tp_size > 1
        rows = [None if part is None else part[0] for part in parts]
        if self.summed:
            rows = [None if a is None else a.chunk(base.tp_size, dim=1)[base.tp_rank] for a in rows]
        self._own("a", torch.cat([a for a in rows if a is not None]))
        self.spans: list[tuple[int, int, int, int]] = []  # of each B: its part of A x, its columns of y
        low = column = 0
        for i, part in enumerate(parts):
            width, rank = self._cut(i)
            if part is not None:
                b = part[1] if width is None else part[1][rank * width : (rank + 1) * width]
                self._own(f"b{len(self.spans)}", b)
                self.spans.append((low, low + b.shape[1], column, column + b.shape[0]))
                low += b.shape[1]
            column += width or 0

    def _own(self, name: str, tensor: torch.Tensor) -> None:
        weight = self.base.get_parameter("weight")
        self.register_buffer(name, tensor.to(weight.device, weight.dtype).contiguous(), persistent=False)

    def _cut(self, part: int) -> tuple[int | None, int]:
        """Return how many outputs of a part this rank has (None: all), and which of the cuts they are."""
        base = self.base
        if isinstance(base, RowParallelLinear):
            return None, 0
        sizes = getattr(base, "output_sizes", [base.output_size])
        copies = getattr(base, "num_kv_head_replicas", 1) if part else 1  # fewer key heads than ranks: ranks share one
        return sizes[part] // base.tp_size, base.tp_rank // copies

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Project (tokens, inputs) -> (tokens, outputs), and return base's own second result with it."""
        y, bias = self.base(x)
        low = linear(x, self.a)
        if self.summed:
            low = tensor_model_parallel_all_reduce(low)
        for i, (start, end, first, last) in enumerate(self.spans):
            y[..., first:last] += linear(low[..., start:end], getattr(self, f"b{i}"))
        return y, bias


def share(rl: nn.Module, base: nn.Module, terms: Terms) -> None:
    """Give `rl`, built like `base`, base's modules in place of its own, and its terms.

    Raises:
        RuntimeError: a projection with terms is not where it was expected, or `rl` keeps a weight of its own.
    """
    packed, left = getattr(base, "packed_modules_mapping", {}), dict(terms)

    def visit(mine: nn.Module, theirs: nn.Module, path: str) -> None:
        for name, child in list(mine.named_children()):
            twin, inner = getattr(theirs, name), f"{path}{name}."
            parts = [left.pop(path + part, None) for part in packed.get(name, [name])]
            if any(part is not None for part in parts):
                setattr(mine, name, LoRALinear(twin, parts))
            elif isinstance(child, AttentionLayerBase):
                continue
            elif _has_attention(child) or any(each.startswith(inner) for each in left):
                visit(child, twin, inner)
            else:
                setattr(mine, name, twin)

    visit(rl, base, "")
    if left:
        raise RuntimeError(f"the adapter's {next(iter(left))} has no place in {type(rl).__name__}")
    if any(tensor.is_meta for tensor in chain(rl.parameters(), rl.buffers())):
        raise RuntimeError(f"{type(rl).__name__} has weights that it cannot share with base")


def _has_attention(module: nn.Module) -> bool:
    return any(isinstance(each, AttentionLayerBase) for each in module.modules())


class _Weightless(TorchFunctionMode):
    """Makes weights, which vLLM allocates by `torch.empty`, without memory; tables and scales are made as ever."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return func(*args, **({**kwargs, "device": "meta"} if func is torch.empty else kwargs))

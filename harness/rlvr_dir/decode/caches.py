"""Reduce the cost of long contexts with `transformers` on a CPU: caches that grow in place, and heads in groups.

Neither changes the results. `DynamicCache` copies every cached token for each new one. If a batch is padded or several
tokens are read, attention also copies the cache once for each head that shares it. `rlvr-dir bench decode` measures
both: `transformers` uses this module, `stock` does not.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "rlvr_grouped_sdpa"
# Arguments that change nothing if there is a mask. With any other argument a model gets its usual attention.
HANDLED = {"dropout", "scaling", "is_causal", "sliding_window", "position_ids", "cache_position", "use_cache"}


class GrowingLayer(DynamicLayer):
    """Store a layer's cache with space for more tokens: `keys` and `values` are the filled part of larger tensors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room: dict[str, torch.Tensor] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (rows, heads, new, dim) and return all of them, (rows, heads, cached + new, dim)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    def _append(self, name: str, cached: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        filled = cached.shape[-2] if cached.numel() else 0
        length, room = filled + new.shape[-2], self._room.get(name)
        # They move to other memory if rows were dropped or holes closed.
        kept = room is not None and cached.data_ptr() == room.data_ptr() and cached.shape[:2] == room.shape[:2]
        if room is None or not kept or room.shape[-2] < length:
            room = new.new_empty(*new.shape[:2], length + max(32, length // 8), new.shape[-1])
            if filled:
                room[..., :filled, :] = cached
            self._room[name] = room
        room[..., filled:length, :] = new
        return room[..., :length, :]


def growing_cache() -> Cache:
    """Make an empty cache, which gets as many layers as the model has."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def group_heads(model: Any) -> None:
    """Let a model on a CPU read keys and values that several heads share in place, without copies."""
    if model.config._attn_implementation == "sdpa" and model.device.type == "cpu":
        AttentionInterface.register(GROUPED, _grouped)
        AttentionMaskInterface.register(GROUPED, sdpa_mask)
        model.set_attn_implementation(GROUPED)


def _grouped(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    if attention_mask is None or any(kwargs[name] is not None for name in kwargs.keys() - HANDLED):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling"), enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None

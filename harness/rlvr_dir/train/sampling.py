"""Apply dynamic sampling to TRL's batches: take groups of them and join them.

A batch is TRL's dictionary of tensors with one row per response. The `samples` responses of a group are adjacent.
Prompt tensors are padded on the left, completion tensors on the right.
"""

from typing import Any

import torch

Batch = dict[str, Any]


def take_groups(batch: Batch, groups: torch.Tensor, samples: int) -> Batch:
    """Return the rows of some groups, in order. `join` recomputes the scalars (`num_items_in_batch`).

    Args:
        groups: (n,) int64, indices of groups.
    """
    rows = (groups[:, None] * samples + torch.arange(samples, device=groups.device)).flatten()
    return {key: value[rows] for key, value in batch.items() if isinstance(value, torch.Tensor) and value.dim()}


def join(batches: list[Batch], pad_token_id: int) -> Batch:
    """Stack batches below each other, padded to the longest."""
    joined: Batch = {}
    for key in batches[0]:
        tensors = [batch[key] for batch in batches]
        if tensors[0].dim() == 2:
            width = max(tensor.shape[1] for tensor in tensors)
            fill = pad_token_id if key in ("prompt_ids", "completion_ids") else 0
            on_left = key.startswith("prompt_")
            tensors = [_widen(tensor, width, fill, on_left) for tensor in tensors]
        joined[key] = torch.cat(tensors)
    return joined


def _widen(tensor: torch.Tensor, width: int, fill: float, on_left: bool) -> torch.Tensor:
    missing = width - tensor.shape[1]
    return torch.nn.functional.pad(tensor, (missing, 0) if on_left else (0, missing), value=fill)

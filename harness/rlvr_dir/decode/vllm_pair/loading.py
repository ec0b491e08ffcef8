"""Load the weights of the submodels, and refuse checkpoints that do not fill all of them.

vLLM does not check this itself. Its check for missing weights exempts every module that processes its weights after
loading, which is nearly all of them. A packed weight counts as loaded if only one of its parts is. So all weights are
set to NaN before loading. One that contains a NaN afterwards was not loaded, or only in part. Infinity is refused as
well.

A submodel is built with a tied head if its own configuration says so. If a file contains an `lm_head.weight` all the
same, that weight decides, as in transformers. If it equals the input embeddings the head stays tied; otherwise it
becomes the head.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm.model_executor.utils import set_weight_attrs

from rlvr_dir.errors import UserError

HEAD = "lm_head.weight"


def load_whole(
    model: nn.Module, checkpoints: Mapping[str, str], weights: Iterable[tuple[str, torch.Tensor]]
) -> set[str]:
    """Load the submodels of `model`.

    Args:
        model: Has a submodel for each role.
        checkpoints: The user's name for the checkpoint of each role (`rl`, `base`).
        weights: Names that begin with their role, and tensors.

    Returns:
        The names of the parameters that were loaded.

    Raises:
        UserError: A parameter is not, or only in part, in its checkpoint, or contains NaN or infinity there.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.fill_(float("nan"))
    heads: dict[str, torch.Tensor] = {}

    def without_tied_heads() -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in weights:
            role, inner = name.split(".", 1)
            if inner == HEAD and _is_tied(getattr(model, role)):
                heads[role] = weight.clone()  # copied, because a loader may reuse its memory
            else:
                yield name, weight

    loaded = AutoWeightsLoader(model).load_weights(without_tied_heads())
    for role, weight in heads.items():
        _settle_head(getattr(model, role), weight, role, checkpoints[role])
        loaded.add(f"{role}.{HEAD}")
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():  # a sum keeps NaN and infinity, and needs no memory
            missing = not parameter.sum(dtype=torch.float32).isfinite()
        else:
            missing = name not in loaded
        if missing:
            role, inner = name.split(".", 1)
            raise UserError(
                f"has no complete {inner}: its files do not contain all of it, or contain NaN or infinity",
                argument=role,
                value=checkpoints[role],
                accepted="a checkpoint with every weight of its model",
            )
    return loaded


def _is_tied(submodel: nn.Module) -> bool:
    head = getattr(getattr(submodel, "lm_head", None), "weight", None)
    return head is not None and any(head is embedding.weight for embedding in _embeddings(submodel))


def _embeddings(submodel: nn.Module) -> list[nn.Module]:
    of = VocabParallelEmbedding
    return [
        module for module in submodel.modules() if isinstance(module, of) and not isinstance(module, ParallelLMHead)
    ]


def _settle_head(submodel: nn.Module, weight: torch.Tensor, role: str, checkpoint: str) -> None:
    """Load a head for a tied submodel. Drop it if it equals the embeddings; otherwise make it the submodel's head."""
    head: Any = submodel.lm_head
    own = nn.Parameter(torch.empty_like(head.weight), requires_grad=False)
    set_weight_attrs(own, {"input_dim": 1, "output_dim": 0, "weight_loader": head.weight_loader})
    head.weight_loader(own, weight)
    if torch.equal(own, head.weight):
        return
    if not isinstance(head, ParallelLMHead):  # in older vLLM the head of a tied model is its embedding layer
        raise UserError(
            "has its own lm_head.weight, but its config.json ties lm_head to the input embeddings. "
            "This version of vLLM cannot load such a checkpoint",
            argument=role,
            value=checkpoint,
            accepted="tie_word_embeddings=false in its config.json",
        )
    head.weight = own

"""Loading that leaves no weight behind: what a submodel's checkpoint does not fill is refused by name.

vLLM does not see to it itself. Its check for missing weights exempts every module that knows how to rework its weights
once they are loaded, which is nearly all of them; and a packed weight counts as loaded with a single one of its parts.
So all weights are NaN before they are loaded, and one that holds a NaN afterwards was not, or not wholly. Infinity is
refused with it.

A submodel is built with a tied head where its own configuration says so. A file may hold an `lm_head.weight` all the
same, and then decides, as in transformers: equal to the input embeddings it stays tied, another one becomes the head.
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
        model: has a submodel for each role.
        checkpoints: role (`rl`, `base`) -> what the user called its checkpoint.
        weights: names that begin with their role, and tensors.

    Returns:
        The names of the parameters that were loaded.

    Raises:
        UserError: a parameter is not in its checkpoint, or not wholly, or holds NaN or infinity there.
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
                heads[role] = weight.clone()  # a loader may use its memory again
            else:
                yield name, weight

    loaded = AutoWeightsLoader(model).load_weights(without_tied_heads())
    for role, weight in heads.items():
        _settle_head(getattr(model, role), weight, f"{role}={checkpoints[role]!r}")
        loaded.add(f"{role}.{HEAD}")
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():  # NaN and infinity survive a sum, which needs no memory
            missing = not parameter.sum(dtype=torch.float32).isfinite()
        else:
            missing = name not in loaded
        if missing:
            role, inner = name.split(".", 1)
            raise UserError(
                f"{role}={checkpoints[role]!r}: its files lack {inner}, or a part of it, or hold NaN or infinity; "
                "accepted: a checkpoint with every weight of its model"
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


def _settle_head(submodel: nn.Module, weight: torch.Tensor, where: str) -> None:
    """Take a head from a tied submodel's file: drop it where it equals the embeddings, else make it the submodel's."""
    head: Any = submodel.lm_head
    own = nn.Parameter(torch.empty_like(head.weight), requires_grad=False)
    set_weight_attrs(own, {"input_dim": 1, "output_dim": 0, "weight_loader": head.weight_loader})
    head.weight_loader(own, weight)
    if torch.equal(own, head.weight):
        return
    if not isinstance(head, ParallelLMHead):  # older vLLM: the head of a tied model is its embedding layer
        raise UserError(
            f"{where}: its config.json ties lm_head to the input embeddings and its files hold another lm_head.weight, "
            "which this version of vLLM cannot load; accepted: tie_word_embeddings=false in its config.json"
        )
    head.weight = own

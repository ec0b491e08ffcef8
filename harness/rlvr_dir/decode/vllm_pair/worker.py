"""Define what the self-test queries in vLLM's workers, because the engine's process may not have the weights."""

from collections.abc import Sequence
from typing import Any

import torch

from rlvr_dir.checkpoints.weights import corner
from rlvr_dir.policy.given import Scoring


class PairWorker:
    """Hold methods that vLLM adds to its worker class (`worker_extension_cls`)."""

    def rlvr_corners(self: Any, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the flat `corner` of each named parameter that the model has and has not transformed."""
        corners = {}
        for name, parameter in self.get_model().named_parameters(remove_duplicate=False):
            if name in names and parameter.ndim in (1, 2) and parameter.numel():
                corners[name] = corner(parameter.detach()).float().flatten().tolist()
        return corners

    def rlvr_clear(self: Any) -> None:
        """Set all stored keys and values to zero, because a NaN would corrupt the next request that uses its memory."""
        for cache in self.model_runner.kv_caches:
            for tensor in cache if isinstance(cache, list | tuple) else (cache,):
                tensor.zero_()

    def rlvr_score(self: Any, *scoring: Any) -> None:
        """Return scores instead of logits from now on.

        `scoring` are the fields of a `Scoring`. Without any, logits are returned again.
        """
        self.get_model().scoring = Scoring(*scoring) if scoring else None

    def rlvr_compile_nothing(self: Any) -> None:
        """Compile nothing from now on.

        Otherwise vLLM compiles a helper of its sampler even if everything else is eager.
        """
        from torch.compiler import set_stance

        set_stance("force_eager")

    def rlvr_memory(self: Any) -> dict[str, int]:
        """Return the peak number of bytes that torch has used, and the GPU's size; empty on a CPU."""
        return (
            {
                "held": torch.cuda.max_memory_reserved(),
                "device": torch.cuda.get_device_properties(self.device).total_memory,
            }
            if self.device.type == "cuda"
            else {}
        )

    def rlvr_watch(self: Any) -> None:
        """Start to compare the hidden states of the two submodels, row by row."""
        self.get_model().watched = []

    def rlvr_watched(self: Any) -> tuple[int, int]:
        """Stop comparing; return the number of rows, and the number of rows with the same hidden state in both
        submodels.
        """
        model = self.get_model()
        steps, model.watched = model.watched, None
        return sum(rows for rows, _ in steps), sum(same for _, same in steps)

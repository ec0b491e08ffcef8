"""What the self-test asks vLLM's workers: the engine's process may not be the one that holds the weights."""

from collections.abc import Sequence
from typing import Any

import torch

from rlvr_dir.checkpoints.weights import corner
from rlvr_dir.policy.given import Scoring


class PairWorker:
    """Methods that vLLM adds to its worker class (`worker_extension_cls`)."""

    def rlvr_corners(self: Any, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the `corner` of each named parameter, flat; of those that the model has and has kept as they were."""
        corners = {}
        for name, parameter in self.get_model().named_parameters(remove_duplicate=False):
            if name in names and parameter.ndim in (1, 2) and parameter.numel():
                corners[name] = corner(parameter.detach()).float().flatten().tolist()
        return corners

    def rlvr_clear(self: Any) -> None:
        """Set all stored keys and values to zero: NaN among them would spoil whoever is given their memory next."""
        for cache in self.model_runner.kv_caches:
            for tensor in cache if isinstance(cache, list | tuple) else (cache,):
                tensor.zero_()

    def rlvr_score(self: Any, *scoring: Any) -> None:
        """Return scores in place of logits from here on, by the fields of a `Scoring`; without any, logits again."""
        self.get_model().scoring = Scoring(*scoring) if scoring else None

    def rlvr_compile_nothing(self: Any) -> None:
        """Compile nothing from here on: vLLM would compile a helper of its sampler even where all else is eager."""
        from torch.compiler import set_stance

        set_stance("force_eager")

    def rlvr_memory(self: Any) -> dict[str, int]:
        """Return the bytes that torch has held at most, and the GPU's; nothing on a CPU."""
        return (
            {
                "held": torch.cuda.max_memory_reserved(),
                "device": torch.cuda.get_device_properties(self.device).total_memory,
            }
            if self.device.type == "cuda"
            else {}
        )

    def rlvr_watch(self: Any) -> None:
        """Begin to compare the hidden states of the two submodels, row by row."""
        self.get_model().watched = []

    def rlvr_watched(self: Any) -> tuple[int, int]:
        """End it: return how many rows there were, and in how many both submodels had the same hidden state."""
        model = self.get_model()
        steps, model.watched = model.watched, None
        return sum(rows for rows, _ in steps), sum(same for _, same in steps)

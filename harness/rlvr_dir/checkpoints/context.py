"""How many tokens a prompt and its response may have together.

A model was built for so many positions (`max_position_embeddings`). Where a decoding reads both models, or all three,
the smallest number counts; `mode=rl` of a pair takes nothing from base, so RL's alone does, though base is computed all
the same (its part of Δ log p is then extrapolation). A `max_model_len` that somebody states counts for every decoding,
beyond the positions too where rotary embeddings can go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_dir.config import Decoding

UNKNOWN = 2048  # where neither configuration names its positions
# Rotary embeddings whose angles do not depend on how many positions the configuration names.
_GO_ON = ("default", "linear", "llama3")
_NAMED_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


@dataclass(frozen=True)
class Context:
    """The lengths that hold for an engine; `of` settles them."""

    length: int  # where all models are read
    rl_alone: int  # where RL is
    stated: bool = False
    models: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)  # role -> name and positions, if it says
    warned: set[tuple[int, int]] = field(
        default_factory=set, compare=False
    )  # cuts that were warned of: `max_tokens` and length

    @classmethod
    def of(cls, models: Mapping[str, tuple[str, int | None]], stated: int | None, base_extrapolates: bool) -> "Context":
        """Return the context of a pair's models; `base_extrapolates` says that base reads beyond its positions."""
        if stated is not None:
            return cls(stated, stated, True, models)
        least = min([n for _, n in models.values() if n] or [UNKNOWN])
        rl = models["rl"][1]
        return cls(least, rl if rl and base_extrapolates and len(models) == 2 else least, models=models)

    @property
    def beyond(self) -> dict[str, tuple[str, int]]:
        """Map the role of each model that is read beyond its positions to its name and these."""
        longest = max(self.length, self.rl_alone)
        return {role: (name, n) for role, (name, n) in self.models.items() if n and longest > n}

    def limit(self, decoding: Decoding) -> int:
        """Return how many tokens prompt and response may have together under a decoding."""
        return self.length if decoding.reads_base else self.rl_alone

    def limit_reason(self, limit: int) -> str:
        """Describe why a length is what it is."""
        if self.stated:
            return f"where max_model_len={limit} ends"
        rl, length = self.models["rl"]
        for role, (name, own) in self.models.items():
            if own == limit and length != limit:
                return f"where the {limit} positions of {role}={name!r} end (rl={rl!r} has {length or 'no limit'})"
        return f"where the {limit} positions of rl={rl!r} end"


def positions(config: Any) -> int | None:
    """Return how many positions a configuration says its model can be read at, None where it does not say.

    As vLLM 0.32 derives it: a rotary scaling multiplies them by its factor, but for the kinds whose configuration names
    them scaled.
    """
    named, rope = getattr(config, "max_position_embeddings", None), getattr(config, "rope_parameters", None)
    scaled = isinstance(rope, dict) and rope.get("rope_type", "default") not in _NAMED_SCALED
    factor = rope.get("factor") if scaled and rope else None
    return int(named * factor) if named and factor else named


def rope_extrapolates(config: Any) -> bool:
    """Return whether rotary embeddings go on by themselves beyond the positions that a configuration names."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict):
        return False
    return rope.get("rope_type", rope.get("type", "default")) in _GO_ON if "rope_theta" in rope else False

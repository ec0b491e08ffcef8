"""Decide how many tokens a prompt and its response may have together.

A model was built for a number of positions (`max_position_embeddings`). If a decoding reads both models, or all three,
the smallest number is the limit. `mode=rl` of a pair uses nothing from base, so only RL's is, although base is computed
nevertheless (its part of Δ log p is then extrapolated). A `max_model_len` that the user sets is the limit for every
decoding, even beyond the positions if rotary embeddings allow that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_dir.config import Decoding

UNKNOWN = 2048  # if neither configuration gives its positions
# Rotary embeddings whose angles do not depend on the number of positions in the configuration.
_GO_ON = ("default", "linear", "llama3")
_NAMED_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


@dataclass(frozen=True)
class Context:
    """Store the context lengths of an engine; `of` computes them."""

    length: int  # if all models are read
    rl_alone: int  # if only RL is
    stated: bool = False
    models: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)  # role -> name and positions, if known
    warned: set[tuple[int, int]] = field(
        default_factory=set, compare=False
    )  # cuts that have been warned of: `max_tokens` and length

    @classmethod
    def of(cls, models: Mapping[str, tuple[str, int | None]], stated: int | None, base_extrapolates: bool) -> "Context":
        """Return the context of a pair's models. `base_extrapolates` is whether base can read beyond its positions."""
        if stated is not None:
            return cls(stated, stated, True, models)
        least = min([n for _, n in models.values() if n] or [UNKNOWN])
        rl = models["rl"][1]
        return cls(least, rl if rl and base_extrapolates and len(models) == 2 else least, models=models)

    @property
    def beyond(self) -> dict[str, tuple[str, int]]:
        """Return the name and positions of each model that is read beyond its positions, by role."""
        longest = max(self.length, self.rl_alone)
        return {role: (name, n) for role, (name, n) in self.models.items() if n and longest > n}

    def limit(self, decoding: Decoding) -> int:
        """Return how many tokens prompt and response may have together under a decoding."""
        return self.length if decoding.reads_base else self.rl_alone

    def limit_reason(self, limit: int) -> str:
        """Explain a length."""
        if self.stated:
            return f"where max_model_len={limit} ends"
        rl, length = self.models["rl"]
        for role, (name, own) in self.models.items():
            if own == limit and length != limit:
                return f"where the {limit} positions of {role}={name!r} end (rl={rl!r} has {length or 'no limit'})"
        return f"where the {limit} positions of rl={rl!r} end"


def positions(config: Any) -> int | None:
    """Return how many positions a configuration gives its model; None if it does not.

    As in vLLM 0.32, a rotary scaling multiplies them by its factor, except for the kinds whose configuration gives the
    scaled number.
    """
    named, rope = getattr(config, "max_position_embeddings", None), getattr(config, "rope_parameters", None)
    scaled = isinstance(rope, dict) and rope.get("rope_type", "default") not in _NAMED_SCALED
    factor = rope.get("factor") if scaled and rope else None
    return int(named * factor) if named and factor else named


def rope_extrapolates(config: Any) -> bool:
    """Return whether rotary embeddings continue beyond the positions in a configuration."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict):
        return False
    return rope.get("rope_type", rope.get("type", "default")) in _GO_ON if "rope_theta" in rope else False

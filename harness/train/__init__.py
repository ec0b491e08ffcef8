"""Reinforcement learning with verifiable rewards, through TRL: DAPO with dynamic sampling.

`DapoSettings` is data; `train_dapo` and the trainer import torch and TRL, and only when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from harness.train.settings import DapoSettings

if TYPE_CHECKING:
    from harness.train.dapo import DapoTrainer, mixed_groups, train_dapo
    from harness.train.reward import accuracy

__all__ = ["DapoSettings", "DapoTrainer", "accuracy", "mixed_groups", "train_dapo"]

_HOMES = {
    "DapoTrainer": "harness.train.dapo",
    "accuracy": "harness.train.reward",
    "mixed_groups": "harness.train.dapo",
    "train_dapo": "harness.train.dapo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""Reinforcement learning with verifiable rewards, through TRL: DAPO with dynamic sampling and reweighted advantages.

`DapoSettings` and `TrainSpec` are data; what trains imports torch and TRL, and only when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from harness.train.settings import DapoSettings
from harness.train.spec import TrainSpec, load_train

if TYPE_CHECKING:
    from harness.train.cost import reweighting_cost
    from harness.train.dapo import DapoTrainer, train_dapo
    from harness.train.reward import accuracy
    from harness.train.run import Source, run_training

__all__ = [
    "DapoSettings",
    "DapoTrainer",
    "Source",
    "TrainSpec",
    "accuracy",
    "load_train",
    "reweighting_cost",
    "run_training",
    "train_dapo",
]

_HOMES = {
    "DapoTrainer": "harness.train.dapo",
    "Source": "harness.train.run",
    "accuracy": "harness.train.reward",
    "reweighting_cost": "harness.train.cost",
    "run_training": "harness.train.run",
    "train_dapo": "harness.train.dapo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

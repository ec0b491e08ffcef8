"""Reinforcement learning with verifiable rewards: DAPO with dynamic sampling and reweighted advantages.

Through TRL on one machine, or through verl on many. Everything is imported when it is asked for: verl's processes,
which have another environment, pass through here on their way to `harness.train.verl`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.train.dapo import DapoTrainer, train_dapo
    from harness.train.reward import accuracy
    from harness.train.run import TrainingSource, run_training
    from harness.train.settings import DapoSettings
    from harness.train.spec import TrainSpec, load_train

__all__ = [
    "DapoSettings",
    "DapoTrainer",
    "TrainSpec",
    "TrainingSource",
    "accuracy",
    "load_train",
    "run_training",
    "train_dapo",
]

_HOMES = {
    "DapoSettings": "harness.train.settings",
    "DapoTrainer": "harness.train.dapo",
    "TrainingSource": "harness.train.run",
    "TrainSpec": "harness.train.spec",
    "accuracy": "harness.train.reward",
    "load_train": "harness.train.spec",
    "run_training": "harness.train.run",
    "train_dapo": "harness.train.dapo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""Train with reinforcement learning with verifiable rewards: DAPO with dynamic sampling and reweighted advantages.

Trainings run through TRL on one machine, or through verl on many. Nothing is imported before it is used, because verl's
processes, which have another environment, import this package on their way to `rlvr_dir.train.verl`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_dir.train.dapo import DapoTrainer, train_dapo
    from rlvr_dir.train.reward import accuracy
    from rlvr_dir.train.run import TrainingSource, run_training
    from rlvr_dir.train.settings import DapoSettings
    from rlvr_dir.train.spec import TrainSpec, load_train

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
    "DapoSettings": "rlvr_dir.train.settings",
    "DapoTrainer": "rlvr_dir.train.dapo",
    "TrainingSource": "rlvr_dir.train.run",
    "TrainSpec": "rlvr_dir.train.spec",
    "accuracy": "rlvr_dir.train.reward",
    "load_train": "rlvr_dir.train.spec",
    "run_training": "rlvr_dir.train.run",
    "train_dapo": "rlvr_dir.train.dapo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""Complete a training: with the tiny base, it is trained and validated in the same way as the shipped RL model.

spec = complete(yaml.safe_load(text))
"""

from collections.abc import Mapping
from typing import Any

from rlvr_dir.config import TINY
from rlvr_dir.train.spec import TrainSpec, load_train

DAPO = {"steps": 8, "learning_rate": 2e-5}  # examples.tiny.recipe.TINY_DAPO
TASKS = ("tiny_medium",)
_TINY = {"base": TINY, "backend": "trl", "preset": None}  # # trainings with other values do not get these defaults


def complete(data: Mapping[str, Any]) -> TrainSpec:
    """Call `load_train`, with the tiny base's defaults if it is trained.

    Raises:
        UserError: `load_train` does not accept the training.
    """
    if not isinstance(data, Mapping) or any(data.get(name, value) != value for name, value in _TINY.items()):
        return load_train(data)
    if isinstance(validation := data.get("validation") or {}, Mapping):
        data = {**data, "validation": {"tasks": TASKS, **validation}}
    return load_train(data, DAPO)

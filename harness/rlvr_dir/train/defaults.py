"""A training as a person wrote it, completed: with the tiny base it is trained and checked as the shipped RL model was.

spec = complete(yaml.safe_load(text))
"""

from collections.abc import Mapping
from typing import Any

from rlvr_dir.config import TINY
from rlvr_dir.train.spec import TrainSpec, load_train

DAPO = {"steps": 8, "learning_rate": 2e-5}  # examples.tiny.recipe.TINY_DAPO
TASKS = ("tiny_medium",)
_TINY = {"base": TINY, "backend": "trl", "preset": None}  # a training that says otherwise is none of ours


def complete(data: Mapping[str, Any]) -> TrainSpec:
    """Call `load_train`, with the defaults of the tiny base where that is what is trained.

    Raises:
        UserError: what `load_train` refuses.
    """
    if not isinstance(data, Mapping) or any(data.get(name, value) != value for name, value in _TINY.items()):
        return load_train(data)
    if isinstance(validation := data.get("validation") or {}, Mapping):
        data = {**data, "validation": {"tasks": TASKS, **validation}}
    return load_train(data, DAPO)

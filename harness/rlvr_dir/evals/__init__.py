"""Turn decodings into results: read the records first, and decode what is missing.

    from rlvr_dir.evals import evaluate
    results = evaluate(EvalSpec(tasks=("aime24",), pair="dapo-32b"))

Names are imported on first use, so that importing this package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_dir.evals.loop import evaluate

__all__ = ["evaluate"]

_HOMES = {"evaluate": "loop"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"rlvr_dir.evals.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

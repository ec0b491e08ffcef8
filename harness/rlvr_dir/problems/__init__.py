"""What is asked: benchmarks, ours, lm-eval's and one's own, and the prompts that are made of them.

Names are resolved on first use, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_dir.problems.data import preflight, tasks_dir

__all__ = ["preflight", "tasks_dir"]

_HOMES = {"preflight": "data", "tasks_dir": "data"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"rlvr_dir.problems.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

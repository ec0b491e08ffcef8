"""Represent the results of evaluations and trainings, and decide which of them can be compared.

Names are imported on first use, so that importing this package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_dir.results.frames import frame
    from rlvr_dir.results.load_results import read_results
    from rlvr_dir.results.result import EvalResult

__all__ = ["EvalResult", "frame", "read_results"]

_HOMES = {"EvalResult": "result", "frame": "frames", "read_results": "load_results"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"rlvr_dir.results.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

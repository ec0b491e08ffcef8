"""Evaluation: the lm-eval model `rlvr_dir`, its tasks, and one call from decodings to results.

    from harness.evals import evaluate
    results = evaluate(EvalSpec(tasks=("aime24",), pair="dapo-32b"))

The loop is in `harness.evals.loop`.

Names are resolved on first use, so that importing this package costs nothing (the `rlvr-dir --help` path).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evals.data import preflight, tasks_dir
    from harness.evals.frames import frame
    from harness.evals.load_results import read_results
    from harness.evals.loop import evaluate
    from harness.evals.result import EvalResult

__all__ = ["EvalResult", "evaluate", "frame", "preflight", "read_results", "tasks_dir"]

_HOMES = {
    "EvalResult": "result", "evaluate": "loop", "frame": "frames", "preflight": "data", "read_results": "load_results",
    "tasks_dir": "data",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"harness.evals.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

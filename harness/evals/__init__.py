"""Evaluation: the lm-eval model `rlvr_dir`, its tasks, and one call from decodings to results.

    from harness.evals import evaluate
    results = evaluate(EvalSpec(tasks=("aime24",), pair="dapo-32b"))

The loop is in `harness.evals.loop`.

Names are resolved on first use, so that importing this package costs nothing (the `rlvr-dir --help` path).
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evals.data import preflight
    from harness.evals.loop import evaluate
    from harness.evals.result import EvalResult

__all__ = ["EvalResult", "evaluate", "preflight", "tasks_dir"]


def tasks_dir() -> Path:
    """Return the folder of our task files: `tasks/` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "tasks"
    return checkout if (checkout / "_math.yaml").is_file() else package / "_data" / "tasks"


def __getattr__(name: str) -> Any:
    homes = {"EvalResult": "result", "evaluate": "loop", "preflight": "data"}
    if name in homes:
        return getattr(import_module(f"harness.evals.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

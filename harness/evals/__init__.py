"""Evaluation: the lm-eval model `rlvr_dir`, its tasks, and one call from decodings to results.

    from harness.evals import evaluate
    results = evaluate(pair, [Decoding(mode="rl")], ["aime24"], Sampling())

Names are resolved on first use, so that importing this package costs nothing (the `rlvr-dir --help` path).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evals.result import EvalResult
    from harness.evals.run import evaluate, preflight

__all__ = ["EvalResult", "evaluate", "preflight", "tasks_dir"]


def tasks_dir() -> Path:
    """The folder of our task files: `tasks/` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "tasks"
    return checkout if (checkout / "_math.yaml").is_file() else package / "_data" / "tasks"


def __getattr__(name: str) -> Any:
    if name == "EvalResult":
        from harness.evals.result import EvalResult

        return EvalResult
    if name in ("evaluate", "preflight"):
        from harness.evals import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

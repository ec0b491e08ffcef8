"""Provide the tiny pair: a base and its DAPO-trained successor, both trained by this project from scratch on a CPU.

    tiny_pair()                      # paths of the shipped weights
    checkpoint("tiny@4")             # path of the RL model after 4 of its 8 steps
    benchmark("tiny_medium")         # 240 rows of id, problem, answer

None of it needs torch. `examples/tiny`, in a checkout, made the weights, and can make other pairs.
"""

from pathlib import Path

from rlvr_dir.config import TINY_BASE, TINY_RL, Pair
from rlvr_dir.errors import UserError
from rlvr_dir.tiny.problems import TINY_TASKS, benchmark

__all__ = ["TINY_TASKS", "WEIGHTS", "benchmark", "checkpoint", "tiny_pair"]

WEIGHTS = Path(__file__).resolve().parent / "weights"


def tiny_pair() -> Pair:
    """Return the shipped pair, by absolute paths.

    Raises:
        UserError: This installation has no tiny weights.
    """
    for name in ("base", "rl"):
        if not (WEIGHTS / name / "model.safetensors").is_file():
            raise UserError(
                f": {WEIGHTS / name} has no weights; in a checkout examples/tiny makes them",
                argument="pair",
                value="tiny",
            )
    return Pair(base=str(WEIGHTS / "base"), rl=str(WEIGHTS / "rl"))


def checkpoint(name: str) -> str:
    """Return the path of `tiny@base` or `tiny@STEP`; other names are returned unchanged.

    Raises:
        UserError: This installation does not have these weights.
    """
    if name not in (TINY_BASE, *TINY_RL):
        return name
    kept = name.rpartition("@")[2]
    folder = WEIGHTS / {TINY_BASE: "base", TINY_RL[-1]: "rl"}.get(name, f"step-{kept}")
    if not (folder / "model.safetensors").is_file():
        raise UserError(
            f"{name!r} is not in this installation: {folder} has no weights",
            hint="In a checkout, examples/tiny makes them.",
        )
    return str(folder)

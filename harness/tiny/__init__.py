"""The embedded pair: a base and its DAPO-trained successor, both trained by this project from nothing on a CPU.

    tiny_pair()                      # paths of the shipped weights
    benchmark("tiny_medium")         # 240 rows of id, problem, answer
    build("my-pair", seed=1)         # another pair, in some six minutes

The first two need no torch.
"""

from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.spec import TINY, Pair
from harness.tiny.problems import TINY_TASKS, benchmark

__all__ = ["TINY_TASKS", "WEIGHTS", "benchmark", "build", "checkpoints", "tiny_pair"]

WEIGHTS = Path(__file__).resolve().parent / "weights"


def tiny_pair() -> Pair:
    """Return the shipped pair, by absolute paths.

    Raises:
        UserError: this installation came without the weights.
    """
    for name in ("base", "rl"):
        if not (WEIGHTS / name / "model.safetensors").is_file():
            raise UserError(f"pair='tiny': {WEIGHTS / name} has no weights; make them with `rlvr-dir tiny build`")
    return Pair(base=str(WEIGHTS / "base"), rl=str(WEIGHTS / "rl"))


def checkpoints(pair: Pair | str) -> Pair:
    """Return the checkpoints of a pair, where it may also be named `tiny`.

    Raises:
        UserError: this installation came without the tiny weights.
    """
    return tiny_pair() if pair == TINY else Pair.model_validate(pair)


def build(out: Path | str, **options: Any) -> Pair:
    """Train a pair from nothing and save it under `out`; the options are those of `harness.tiny.recipe.build`."""
    from harness.tiny.recipe import build as train

    return train(out, **options)

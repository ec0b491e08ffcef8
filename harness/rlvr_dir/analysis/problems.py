"""Compute the accuracy of each problem as more tokens are replaced, and classify problems as the paper does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.results.settings import Setting

ProblemKind = Literal["never solved", "dips first", "rises", "falls", "always solved", "unclear"]
PROBLEM_KINDS: tuple[ProblemKind, ...] = ("never solved", "dips first", "rises", "falls", "always solved", "unclear")
SURE = 2.0  # standard errors of the difference of two binomial shares


@dataclass(frozen=True, slots=True, eq=False)
class Problems:
    """Hold the accuracy of each problem at each step.

    `accuracy` is (problems, steps): base first, then replacement in the order of its `ratios`. `rl` is RL's accuracy.
    `samples` is the smallest number of samples at any step. `seen` is the number of samples of a problem over all steps
    and RL.
    """

    task: str
    problem_ids: tuple[str, ...]
    ratios: tuple[float, ...]
    accuracy: np.ndarray
    samples: int
    seen: int
    rl: np.ndarray | None
    kinds: tuple[ProblemKind, ...]

    @property
    def counts(self) -> dict[ProblemKind, int]:
        """Return the number of problems of each kind."""
        return {kind: self.kinds.count(kind) for kind in PROBLEM_KINDS}


def problems(base: Setting, replaced: Sequence[Setting], rl: Setting | None = None) -> Problems:
    """Return the accuracy of each problem, and its kind as estimated from the samples.

    A difference counts if it exceeds two standard errors of the difference of two binomial shares:

    - *never solved*: no sample was correct, at any ratio or from RL; *always solved*: no sample was wrong;
    - *dips first*: some step before the last is below base, and the last is above that step again;
    - *rises*, *falls*: the last step is above, or below, base;
    - *unclear*: none of these, at this number of samples.

    Raises:
        UserError: Nothing was replaced, or the settings differ in their problems.
    """
    steps = [base, *sorted(replaced, key=lambda setting: setting.replacement_ratio)]
    if len(steps) < 2:
        raise UserError("replaced is empty", argument="replaced", accepted="at least one setting of replacement")
    if any((setting.task, setting.units) != (base.task, base.units) for setting in [*steps, *([rl] if rl else [])]):
        raise UserError(
            f"The results of {base.task} contain different problems",
            accepted="results with the same problems",
        )
    accuracy = np.stack([step.values.mean(axis=1) for step in steps], axis=1)  # (problems, steps)
    samples = min(step.samples for step in steps)
    alone = rl.values.mean(axis=1) if rl else None
    kinds: list[ProblemKind] = [problem_kind(row, samples) for row in accuracy]
    if alone is not None:
        belied: dict[ProblemKind, Any] = {"never solved": alone > 0, "always solved": alone < 1}
        kinds = ["unclear" if kind in belied and belied[kind][i] else kind for i, kind in enumerate(kinds)]
    return Problems(
        base.task,
        tuple(map(str, base.units)),
        tuple(step.replacement_ratio for step in steps),
        accuracy,
        samples,
        sum(setting.samples for setting in [*steps, *([rl] if rl else [])]),
        alone,
        tuple(kinds),
    )


def problem_kind(accuracy: np.ndarray, samples: int) -> ProblemKind:
    """Return the kind of one problem, from its accuracy at each step; see `problems`."""
    if not accuracy.any():
        return "never solved"
    if accuracy.all() and accuracy.min() == 1:
        return "always solved"
    first, last = accuracy[0], accuracy[-1]
    middle = accuracy[1:-1]
    if middle.size:
        lowest = middle.min()
        if _sure(first, lowest, samples) and _sure(last, lowest, samples):
            return "dips first"
    if _sure(last, first, samples):
        return "rises"
    return "falls" if _sure(first, last, samples) else "unclear"


def _sure(high: float, low: float, samples: int) -> bool:
    """Return whether `high` exceeds `low` by more than two standard errors."""
    p = (high + low) / 2
    return bool(high - low > SURE * np.sqrt(2 * p * (1 - p) / samples))

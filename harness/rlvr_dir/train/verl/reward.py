"""In verl's reward workers: the grader of evaluation, bounded, in any process.

`reward.custom_reward_function` names it; verl calls it for one response at a time, from many threads. Equal answers are
graded once a process, and math-verify runs in programs of its own that end when their processor time is up.
"""

import threading
from collections.abc import Sequence
from typing import Any

from rlvr_dir.grading import DEFAULT_GRADER, grade

AT_ONCE = 2  # of the programs that a reward worker may keep; verl starts 8 reward workers
_places = threading.BoundedSemaphore(AT_ONCE)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Sequence[str],
    extra_info: Any = None,
    grader: str = DEFAULT_GRADER,
    **_: Any,
) -> dict[str, float]:
    """Score a response for verl: `score` 1 if right, else -1 (the length penalty is verl's), `acc` 1 or 0.

    `ungraded` is 1 where the grader itself failed: verl has no place for a response without a reward, so it counts
    as wrong there; our log says how many there were. `problem` is the row in its file, by which a validation is
    counted problem by problem; a validation's row may name its own grader.
    """
    row = extra_info or {}
    gold = ground_truth if isinstance(ground_truth, str) else tuple(ground_truth)
    with _places:
        verdict = grade(gold, solution_str, grader=row.get("grader") or grader)
    return {
        "score": 1.0 if verdict.correct else -1.0,
        "acc": float(verdict.correct),
        "ungraded": float(not verdict.graded),
        **({"problem": float(row["index"])} if "index" in row else {}),
    }

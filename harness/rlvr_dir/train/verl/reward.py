"""Grade responses in verl's reward workers, with the grader of evaluation and a limit on its time.

`reward.custom_reward_function` names it. verl calls it for one response at a time, from many threads. Equal answers are
graded once per process. math-verify runs in its own programs, which end when their processor time is used up.
"""

import threading
from collections.abc import Sequence
from typing import Any

from rlvr_dir.grading import DEFAULT_GRADER, grade

AT_ONCE = 2  # # programs that a reward worker may keep; verl starts 8 reward workers
_places = threading.BoundedSemaphore(AT_ONCE)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Sequence[str],
    extra_info: Any = None,
    grader: str = DEFAULT_GRADER,
    **_: Any,
) -> dict[str, float]:
    """Score a response for verl: `score` is 1 if it is right, else -1 (verl adds the length penalty); `acc` is 1 or 0.

    `ungraded` is 1 if the grader itself failed. verl has no place for a response without a reward, so there it counts
    as wrong, and our log has the number of such responses. `problem` is the row in its file, by which a validation is
    counted per problem. A validation's row may name its own grader.
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

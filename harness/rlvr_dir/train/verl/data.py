"""Write problems as rows of verl's dataset: messages, the right answer, and the source."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.errors import UserError
from rlvr_dir.files import write_file
from rlvr_dir.train.data import check_size
from rlvr_dir.train.spec import TrainSpec


def rows(
    problems: Sequence[dict[str, Any]], spec: TrainSpec, name: str, least: int | None = None
) -> list[dict[str, Any]]:
    """Return the problems after checking that verl can train on them.

    Raises:
        UserError: There are fewer than `least` (by default a step's groups), or a prompt is plain text. verl formats
            every prompt with the model's chat template.
    """
    for number, row in enumerate(check_size(problems, spec, name, least)):
        if isinstance(row["prompt"], str):
            raise UserError(
                f"Problem {number} of {name} has a prompt that is plain text, which verl cannot use",
                accepted="'problem', or a prompt of messages",
            )
    return list(problems)


def write(path: Path, problems: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write problems by source, as a whole or not at all. verl names its validation metrics after the sources.

    If one problem has several right answers, all have lists of answers, because a column has one type. A row's
    `grader`, if it has one, grades the responses to it.
    """
    lists = any(not isinstance(row["answer"], str) for rows in problems.values() for row in rows)
    lines = (
        {
            "data_source": source,
            "prompt": row["prompt"],
            "reward_model": {"style": "rule", "ground_truth": _list(row["answer"]) if lists else row["answer"]},
            "extra_info": {"index": index, **({"grader": row["grader"]} if "grader" in row else {})},
        }
        for source, rows in problems.items()
        for index, row in enumerate(rows)
    )
    write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def _list(answer: Any) -> list[str]:
    return [answer] if isinstance(answer, str) else list(answer)

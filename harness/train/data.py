"""Training problems from a JSONL file: rows of `answer` and `prompt` (text or messages) or `problem`."""

import json
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.train.dapo_math import AFTER
from harness.train.spec import TrainSpec


def read_problems(path: str | Path, instruction: str) -> list[dict[str, Any]]:
    """Read rows of `prompt` and `answer`; a `problem` becomes a user's message with the instruction behind it.

    Raises:
        UserError: no such file, or a line that is no such row (the sentence has its number).
    """
    path = Path(path)
    if not path.is_file():
        made = f" (`rlvr-dir data {path.stem}` makes it)" if path.name == "dapo-math-17k.jsonl" else ""
        raise UserError(f"data={str(path)!r} is no file{made}; accepted: tiny, or a JSONL file of problems and answers")
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip():
            rows.append(_row(line, f"{path}, line {number}", instruction))
    return rows


def enough(rows: list[dict[str, Any]], spec: TrainSpec) -> list[dict[str, Any]]:
    """Return the problems of a training, which are as many as a step asks for.

    Raises:
        UserError: they are fewer.
    """
    if len(rows) < spec.dapo.prompts:
        raise UserError(
            f"dapo.prompts={spec.dapo.prompts} is refused: data={spec.data!r} has {len(rows)} problems; "
            "a step needs that many different ones"
        )
    return rows


def _row(line: str, where: str, instruction: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        raise UserError(f"{where} is not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("answer"), str | int | float):
        raise UserError(f"{where} has no answer; accepted: {{'problem': text, 'answer': text}}")
    prompt = data.get("prompt")
    if prompt is None and isinstance(data.get("problem"), str):
        prompt = [{"role": "user", "content": data["problem"] + instruction}]
    if not prompt or not isinstance(prompt, str | list):
        raise UserError(f"{where} has neither problem (text) nor prompt (text or messages)")
    if AFTER.strip() in str(prompt):
        raise UserError(
            f"{where} asks for 'Answer: ...', and the reward knows boxed answers alone: every response would be wrong; "
            "accepted: bare problems, as `rlvr-dir data dapo-math-17k` makes them"
        )
    return {"prompt": prompt, "answer": str(data["answer"])}

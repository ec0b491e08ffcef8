"""Read training problems from a JSONL file: rows of `answer` and `prompt` (text or messages) or `problem`."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.config.base import read_jsonl
from rlvr_dir.config.presentation import AFTER, rendered
from rlvr_dir.config.stored import is_number, is_text
from rlvr_dir.errors import UserError, mention, plain
from rlvr_dir.grading import grade_many
from rlvr_dir.text import visible
from rlvr_dir.train.spec import TrainSpec

_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")  # # every grader reads these


def read_problems(path: str | Path, spec: TrainSpec) -> list[dict[str, Any]]:
    """Read rows of `prompt` and `answer`. A `problem` becomes a user's message with the training's `prompt`, or its
    instruction.

    Raises:
        UserError: There is no such file, or a line is not such a row (the error names its number).
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(
            "is not a file",
            argument="data",
            value=str(path),
            accepted="tiny, or a JSONL file of problems and answers",
            hint=f"`rlvr-dir data {path.stem}` writes it." if path.name == "dapo-math-17k.jsonl" else "",
        )
    try:
        rows = read_jsonl(path, ("answer",))
    except OSError as error:
        raise UserError(f"cannot be read ({type(error).__name__})", argument="data", value=str(path)) from None
    problems = [_row(data, f"{path}, line {number}", spec) for number, data in rows]
    _check_golds([number for number, _ in rows], [problem["answer"] for problem in problems], path, spec)
    return problems


def _check_golds(lines: Sequence[int], golds: Sequence[str], path: Path, spec: TrainSpec) -> None:
    """Warn of gold answers that no response can be rewarded for, not even one that ends in that very answer.

    Raises:
        UserError: No answer can be rewarded.
    """
    grader = spec.dapo.grader
    form = "Answer: {}" if grader == "math_dapo" else "\\boxed{{{}}}"
    doubtful = [(line, gold) for line, gold in zip(lines, golds, strict=True) if not _NUMBER.fullmatch(gold)]
    verdicts = grade_many([(gold, form.format(gold)) for _, gold in doubtful], grader=grader)
    wrong = [place for place, verdict in zip(doubtful, verdicts, strict=True) if not verdict.correct]
    if not wrong:
        return
    line, gold = wrong[0]
    sentence = (
        f"{len(wrong)} of {len(golds)} answers cannot be read by {mention('dapo.grader', grader)}, the first one in "
        f"line {line}, {gold[:80]!r}. No response to these problems can be right"
    )
    if len(wrong) == len(golds):
        raise UserError(
            f": {sentence}",
            argument="data",
            value=str(path),
            accepted="answers that the grader reads, or another grader",
        )
    print(f"warning: data={visible(f'{str(path)!r}: {plain(sentence)}', None)}", file=sys.stderr)


def check_size(
    rows: Sequence[dict[str, Any]], spec: TrainSpec, name: str = "", least: int | None = None
) -> list[dict[str, Any]]:
    """Return the problems of a file (by default the training's own). A step needs that many, or `least`.

    Raises:
        UserError: There are fewer.
    """
    if len(rows) < (spec.dapo.prompts if least is None else least):
        raise UserError(
            f"is more than the problems of {mention('data', name or spec.data)}. A step needs that many different ones",
            argument="dapo.prompts",
            value=spec.dapo.prompts,
            accepted=f"up to {len(rows)}",
        )
    return list(rows)


def _row(data: dict[str, Any], where: str, spec: TrainSpec) -> dict[str, Any]:
    answer = data["answer"]
    if not (is_text(answer) or is_number(answer)):
        raise UserError(f"{where} has no answer", accepted="{'problem': text, 'answer': text}")
    prompt = data.get("prompt")
    if prompt is None and is_text(data.get("problem")):
        problem = data["problem"]
        content = rendered(spec.prompt, problem) if spec.prompt else problem + spec.instruction
        prompt = [{"role": "user", "content": content}]
    if not ((prompt and is_text(prompt)) or _is_messages(prompt)):
        raise UserError(f"{where} has no question", accepted="problem (text) or prompt (text or messages)")
    text = prompt if isinstance(prompt, str) else "".join(str(turn.get("content", "")) for turn in prompt or ())
    if AFTER.strip() in text and spec.dapo.grader != "math_dapo":
        raise UserError(
            f"reads boxed answers only, and {where} asks for 'Answer: ...', so every response would be wrong",
            argument="dapo.grader",
            value=spec.dapo.grader,
            accepted="math_dapo, or bare problems, as `rlvr-dir data dapo-math-17k` writes them",
        )
    if "answer:" not in text.lower() and spec.dapo.grader == "math_dapo":
        raise UserError(
            f"reads 'Answer: ...' only, and {where} does not ask for it, so every response would be wrong",
            argument="dapo.grader",
            value=spec.dapo.grader,
            accepted=f"{mention('prompt', 'math_dapo')} beside it, or another grader",
        )
    return {"prompt": prompt, "answer": str(answer)}


def _is_messages(prompt: Any) -> bool:
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(isinstance(turn, dict) and is_text(turn.get("role")) and is_text(turn.get("content")) for turn in prompt)

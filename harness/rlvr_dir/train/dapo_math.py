"""Make the presets' training data from DAPO-Math-17k: bare problems, one JSONL row of `problem` and `answer` for each.

    made = dapo_math(read_rows("dapo-math-17k.parquet"))

The hub's file has each problem about a hundred times (its own discussion and verl's issue 3065 say so), each in a
prompt that asks for "Answer: ...". The result has each problem once and without an instruction. A training adds its own
instruction, which may be that one (`prompt: math_dapo`).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_dir.config.presentation import AFTER, BEFORE
from rlvr_dir.errors import UserError

HUB, FILE = "BytedTsinghua-SIA/DAPO-Math-17k", "data/dapo-math-17k.parquet"
LEAST, MOST = 17_000, 17_999  # # the numbers of problems that "17k" can mean; other numbers are another training
_COLUMNS = ("prompt", "source_prompt", "problem", "answer", "reward_model")


@dataclass(frozen=True)
class BuiltData:
    """Hold the problems, in the order of their first rows, and the numbers of what was left out."""

    problems: list[dict[str, str]]
    rows: int  # # rows that were read
    ambiguous: int  # problems with several different answers, of which none is kept

    @property
    def text(self) -> str:
        """Return the text of a file that `rlvr-dir train --data` reads."""
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.problems)


def read_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or JSONL file as plain values. Of a Parquet file, only the needed columns are read.

    Raises:
        UserError: There is no such file, it has another format, or a line is not JSON.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(
            "is not a file", argument="source", value=str(path), accepted="a .parquet or .jsonl of DAPO-Math-17k"
        )
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise UserError(f"is not JSON in line {number}", argument="source", value=str(path)) from None
        return
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in file.schema_arrow.names if name in _COLUMNS]
        for batch in file.iter_batches(columns=columns):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"is not a Parquet file ({reason})", argument="source", value=str(path)) from None


def dapo_math(rows: Iterable[dict[str, Any]]) -> BuiltData:
    """Make the training's problems from the hub's rows, or from those of open-r1's copy, which has no repetitions.

    A row has `prompt` (messages around the problem) and `reward_model.ground_truth`, or a bare `problem` or `prompt`.

    Raises:
        UserError: A row has another form (the error names its number), or the number of problems is not that of 17k.
    """
    answers: dict[str, set[str]] = {}
    count = 0
    for count, row in enumerate(rows, 1):
        problem, answer = _read(row, count)
        answers.setdefault(problem, set()).add(answer)
    problems = [{"problem": text, "answer": next(iter(golds))} for text, golds in answers.items() if len(golds) == 1]
    if not LEAST <= len(answers) <= MOST:
        raise UserError(
            f"The source has {len(answers):,} different problems in {count:,} rows, so it is not all of DAPO-Math-17k",
            accepted=f"{LEAST:,} to {MOST:,} different problems",
            hint="`rlvr-dir train --data` reads other sets as they are.",
        )
    return BuiltData(problems, count, len(answers) - len(problems))


def download() -> Path:
    """Return the hub's file, from the cache if it is there.

    Raises:
        UserError: It is not in the cache, and the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    from rlvr_dir.hub import hub_or_cache

    try:
        with hub_or_cache():
            return Path(hf_hub_download(HUB, FILE, repo_type="dataset"))
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(
            f"dapo-math-17k is not on this machine, and {HUB!r} cannot be loaded from the hub ({reason})",
            hint=f"Download its file {FILE} on a machine with a network and give it as --source PATH.",
        ) from None


def _read(row: Any, number: int) -> tuple[str, str]:
    """Return the problem and the answer of a row."""
    row = row if isinstance(row, dict) else {}
    prompt = row.get("source_prompt") or row.get("problem") or row.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict):
        text = str(prompt[0].get("content", ""))
        bare = text.removeprefix(BEFORE).removesuffix(AFTER)
        prompt = bare if len(bare) == len(text) - len(BEFORE) - len(AFTER) else None
    answer = (row.get("reward_model") or {}).get("ground_truth", row.get("answer"))
    if not isinstance(prompt, str) or not prompt.strip() or not isinstance(answer, str | int) or not str(answer):
        raise UserError(
            f"Row {number} of the source is not one of DAPO-Math-17k's",
            accepted=f"its prompt (a message that begins with {BEFORE[:50]!r} and ends with {AFTER.strip()[-30:]!r}) "
            "or a bare problem, with reward_model.ground_truth or answer",
        )
    return prompt.strip(), str(answer)

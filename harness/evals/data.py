"""The problems of a benchmark: from the tiny generator, a local JSONL file or the hub, normalised and counted.

Minerva has two published versions of its answers; `GOLDS` names them and `gold_answers` gives one (docs/evaluate.md).

Order of places: `data_dir` (a setting: `--metadata '{"data_dir": "DIR"}'`, or `data_dir=` in the model arguments), then
the environment variable RLVR_DIR_DATA, then the Hugging Face hub. A folder holds one `<task>.jsonl` a benchmark, each
line an object with `id`, `problem` and `answer`; other fields are ignored.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.digest import digest, digest_of
from harness.errors import UserError, unknown
from harness.spec import GOLD_VERSIONS, PUBLISHED
from harness.tiny import TINY_TASKS

DATA_VARIABLE = "RLVR_DIR_DATA"


@dataclass(frozen=True)
class HubSource:
    """Where a benchmark is on the hub, and how many problems it must have. `fields` maps our names to the hub's."""

    rows: int
    hub: str
    split: str
    fields: Mapping[str, str] = field(default_factory=lambda: {"problem": "problem", "answer": "answer"})


SOURCES: dict[str, HubSource] = {
    "aime24": HubSource(30, "HuggingFaceH4/aime_2024", "train"),
    "aime25": HubSource(30, "math-ai/aime25", "test"),
    # 83 problems: the paper's AMC figures are multiples of 1/(83 x 32); the 40 of "amc23" cannot give them.
    "amc": HubSource(83, "AI-MO/aimo-validation-amc", "train"),
    "minerva": HubSource(272, "math-ai/minervamath", "test", {"problem": "question", "answer": "answer"}),
}
BENCHMARKS: tuple[str, ...] = (*SOURCES, *TINY_TASKS)
GROUPS: dict[str, tuple[str, ...]] = {"rlvr_math": tuple(SOURCES)}
TASKS: tuple[str, ...] = (*BENCHMARKS, *GROUPS)

Problem = dict[str, Any]  # id, problem, answer: text; answers_<version>: a list, where that version is at hand

# Versions of a benchmark's answers. `published` is the `answer` of its problems; of another one the file
# <task>_<version>_answers.jsonl holds lists `answers`, of which any one counts.
GOLDS: dict[str, tuple[str, ...]] = {"minerva": (PUBLISHED, "r1zero")}

_E_NOTATION = re.compile(r"([+-]?[0-9]*\.?[0-9]+)[eE]([+-]?[0-9]+)", re.ASCII)
_INTEGRAL = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)


def tasks_dir() -> Path:
    """Return the folder of our task files: `tasks/` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "tasks"
    return checkout if (checkout / "_math.yaml").is_file() else package / "_data" / "tasks"


def preflight(tasks: Sequence[str], data_dir: str | None = None, version: str = PUBLISHED) -> dict[str, str]:
    """Check names and data before any model loads: each benchmark asked for (groups expanded) and its data digest.

    Raises:
        UserError: an unknown or doubled task, or a benchmark without data or without that version of its answers (the
            sentence says what to set).
    """
    if not tasks:
        raise UserError(f"tasks is empty; accepted: {', '.join(TASKS)}")
    names: list[str] = []
    for task in tasks:
        if task not in TASKS:
            raise unknown("task", task, TASKS)
        names.extend(GROUPS.get(task, (task,)))
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UserError(f"tasks={','.join(tasks)} asks for {doubled[0]} twice; name it once, alone or in its group")
    found = {name: data_digest(name, data_dir) for name in names}
    for name in names:
        check_golds(name, version, data_dir)
    return found


def load(benchmark: str, data_dir: str | None = None, **_: Any) -> Any:
    """The benchmark as the dataset dict that lm-eval's `custom_dataset` wants: one split, `test`.

    Each row has the `digest` of the whole in `data`: the model is told where the questions come from by them alone.
    """
    from datasets import Dataset, DatasetDict

    data = data_digest(benchmark, data_dir)
    rows = [{**row, "data": data} for row in problems(benchmark, data_dir)]
    return DatasetDict({"test": Dataset.from_list(rows)})


def problems(benchmark: str, data_dir: str | None = None) -> tuple[Problem, ...]:
    """The problems (`id`, `problem`, `answer`, all text), read once a process and place.

    Raises:
        UserError: no such benchmark, no data (the sentence says what to set), a bad file, or a wrong number of rows.
    """
    if benchmark not in BENCHMARKS:
        raise unknown("task", benchmark, BENCHMARKS)
    place = None if benchmark in TINY_TASKS else data_dir or os.environ.get(DATA_VARIABLE) or None
    return _problems(benchmark, place)


def benchmark_size(benchmark: str) -> int | None:
    """Return how many problems a benchmark of ours has, without reading them; None for one that is not known."""
    if benchmark in TINY_TASKS:
        from harness.tiny.problems import BENCHMARK_SIZE

        return BENCHMARK_SIZE
    return SOURCES[benchmark].rows if benchmark in SOURCES else None


def data_digest(benchmark: str, data_dir: str | None = None) -> str:
    """First 16 hexadecimal digits of the SHA-256 over ids, problems and answers: equal digests, equal questions."""
    text = json.dumps([[row["id"], row["problem"], row["answer"]] for row in problems(benchmark, data_dir)])
    return digest(text)


def gold_answers(
    benchmark: str, version: str = PUBLISHED, data_dir: str | None = None
) -> dict[str, str | tuple[str, ...]]:
    """Return the right answer of each problem, by its id: text, or several of which any one counts.

    A benchmark that has only its published answers gives those, whatever the version.

    Raises:
        UserError: no such version, or its file is not at hand.
    """
    check_golds(benchmark, version, data_dir)
    rows = problems(benchmark, data_dir)
    if version == PUBLISHED or version not in GOLDS.get(benchmark, ()):
        return {row["id"]: row["answer"] for row in rows}
    return {row["id"]: tuple(row[f"answers_{version}"]) for row in rows}


def all_golds(benchmark: str, version: str, data_dir: str | None = None) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """Return each version of the gold answers that can be graded here, the one asked for first.

    Raises:
        UserError: no such version, or its file is not at hand.
    """
    check_golds(benchmark, version, data_dir)
    asked = version if version in GOLDS.get(benchmark, ()) else PUBLISHED
    found = dict.fromkeys((asked, *versions_at_hand(benchmark, data_dir)))
    return {each: gold_answers(benchmark, each, data_dir) for each in found}


def golds_name(version: str, answers: Mapping[str, str | tuple[str, ...]]) -> str:
    """Name a version of the answers as a result does: any but the published one with a digest of its answers."""
    if version == PUBLISHED:
        return version
    return f"{version} ({digest_of(answers, 8)})"


def check_golds(benchmark: str, version: str, data_dir: str | None = None) -> None:
    """Refuse a version of the answers that does not exist or is not at hand.

    Raises:
        UserError: naming the file that is missing.
    """
    if version not in GOLD_VERSIONS:
        raise unknown("golds", version, GOLD_VERSIONS)
    if version in GOLDS.get(benchmark, ()) and version not in versions_at_hand(benchmark, data_dir):
        raise UserError(
            f"golds={version!r} of {benchmark} needs {benchmark}_{version}_answers.jsonl (id, answers) in the folder "
            f"that {DATA_VARIABLE} or data_dir names; accepted without it: {PUBLISHED}"
        )


def versions_at_hand(benchmark: str, data_dir: str | None = None) -> tuple[str, ...]:
    """Return the versions of a benchmark's answers that can be graded here; the published one always."""
    first = problems(benchmark, data_dir)[0]
    return tuple(v for v in GOLDS.get(benchmark, (PUBLISHED,)) if v == PUBLISHED or f"answers_{v}" in first)


@lru_cache(maxsize=32)
def _problems(benchmark: str, place: str | None) -> tuple[Problem, ...]:
    if benchmark in TINY_TASKS:
        from harness.tiny import benchmark as generate

        rows, where = generate(benchmark), "harness.tiny"
    elif place is not None:
        where = str(Path(place).expanduser() / f"{benchmark}.jsonl")
        rows = _read(Path(where), benchmark)
    else:
        rows, where = _download(benchmark), f"the hub's {SOURCES[benchmark].hub!r}"
    rows = tuple(
        {"id": str(row["id"]), "problem": str(row["problem"]).strip(), "answer": gold(row["answer"])} for row in rows
    )
    if place is not None:
        for version in GOLDS.get(benchmark, ())[1:]:
            _add_answers(rows, Path(place).expanduser() / f"{benchmark}_{version}_answers.jsonl", version)
    expected = SOURCES[benchmark].rows if benchmark in SOURCES else len(rows)
    if len(rows) != expected:
        raise UserError(
            f"{where} has {len(rows)} problems; {benchmark} has {expected}, and a part of it is another score"
        )
    if len({row["id"] for row in rows}) != len(rows):
        raise UserError(f"{where} gives one id to several problems; ids must be unique, they key the sampling noise")
    return rows


def _add_answers(rows: tuple[Problem, ...], path: Path, version: str) -> None:
    """Puts another version's answers beside the published ones, where its file is there."""
    if not path.is_file():
        return
    lists = {str(row["id"]): row["answers"] for row in _read(path, path.stem, ("id", "answers"))}
    if set(lists) != {row["id"] for row in rows} or not all(isinstance(each, list) and each for each in lists.values()):
        raise UserError(f"{path} has not one non-empty list of answers for each problem of its benchmark")
    for row in rows:
        row[f"answers_{version}"] = [gold(answer) for answer in lists[row["id"]]]


def gold(answer: object) -> str:
    r"""An answer as text a grader can read: `142.0` is `142`, and `1.6e-19` is `1.6 \times 10^{-19}`.

    math-verify takes the `e` of e-notation for Euler's number, so a gold left that way could never be matched.
    """
    text = str(answer).strip()
    if match := _INTEGRAL.fullmatch(text):
        return match[1]
    if match := _E_NOTATION.fullmatch(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    return text


def _read(path: Path, benchmark: str, names: tuple[str, ...] = ("id", "problem", "answer")) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(
            f"{benchmark} needs {path}, which cannot be read ({reason}); "
            f"set {DATA_VARIABLE} or data_dir to the folder that holds it, or leave both unset to use the hub"
        ) from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise UserError(f"{path} line {number} is not JSON") from None
        missing = [name for name in names if not isinstance(row, dict) or name not in row]
        if missing:
            raise UserError(f"{path} line {number} lacks {missing[0]!r}; a line has {', '.join(names)}")
        rows.append(row)
    return rows


def _download(benchmark: str) -> list[dict[str, Any]]:
    source = SOURCES[benchmark]
    try:
        from datasets import load_dataset

        table: Any = load_dataset(source.hub, split=source.split)
        names = source.fields
        ids = table["id"] if "id" in table.column_names else range(len(table))
        return [
            {"id": str(key), "problem": row[names["problem"]], "answer": row[names["answer"]]}
            for key, row in zip(ids, table, strict=True)
        ]
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(
            f"{benchmark} is not on this machine and {source.hub!r} cannot be loaded from the hub ({reason}); "
            f"set {DATA_VARIABLE} to a folder that holds {benchmark}.jsonl (one object a line: id, problem, answer)"
        ) from None

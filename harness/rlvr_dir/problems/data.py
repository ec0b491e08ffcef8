"""Find benchmarks by name: shipped ones from the tiny generator, a folder or the hub, and users' own from their files.

`find_benchmark` returns one of them. `preflight` checks all requested ones before a model loads. Minerva's answers were
published in two versions; the second one is a separate benchmark (`TWINS`, docs/evaluate.md).

A `task` is a shipped name, or `PATH.jsonl` or `NAME=PATH` (`rlvr_dir.problems.benchmark`). A name is searched in this
order: `data_dir` (a setting: `--metadata '{"data_dir": "DIR"}'`, or `data_dir=` in the model arguments), then the
environment variable RLVR_DIR_DATA, then the Hugging Face Hub. A folder contains one `<task>.jsonl` per benchmark, of
any name.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_dir.config import EvalSpec, Presentation
from rlvr_dir.config.base import read_jsonl
from rlvr_dir.config.evaluation import is_task_file
from rlvr_dir.config.stored import is_number, is_text
from rlvr_dir.errors import UserError, mention, nearest
from rlvr_dir.files import shipped
from rlvr_dir.hub import hub_or_cache
from rlvr_dir.problems.benchmark import (
    ACCEPTED,
    AS_SHIPPED,
    BENCHMARKS,
    GROUPS,
    NAME,
    SOURCES,
    TASKS,
    TWINS,
    Benchmark,
    gold,
    named,
    problems_of,
    read_benchmark,
    read_problems,
)
from rlvr_dir.problems.lm_eval_tasks import declared, read_task
from rlvr_dir.tiny import TINY_TASKS

if TYPE_CHECKING:
    from rlvr_dir.config.sweep import SweepSpec

DATA_VARIABLE = "RLVR_DIR_DATA"
_TABLE = re.compile(r"\.(?:parquet|csv|tsv|json|jsonl\.gz|arrow|xlsx|txt)$")  # files of problems in other formats


class NoDataError(UserError):
    """Report that the problems of a shipped benchmark are not available. Their number is known nevertheless."""


def tasks_dir() -> Path:
    """Return the folder of our task files: `tasks/` of a checkout, or the copy inside the installed package."""
    return shipped("tasks")


def task_config(task: str, benchmark: Benchmark) -> str | dict[str, Any]:
    """Return what lm-eval's `TaskManager` loads: a shipped name, whose file it finds, or a user's own task.

    Both are `_math.yaml` with the name and the problems of a benchmark; `SampledMathTask` presents them.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    if task in TASKS:
        return task
    own = {"task": benchmark.name, "dataset_kwargs": {"benchmark": task}}
    return {**load_yaml(tasks_dir() / "_math.yaml"), **own}


def preflight(
    tasks: Sequence[str],
    data_dir: str | None = None,
    presentation: Presentation = AS_SHIPPED,
    include_path: str | None = None,
) -> dict[str, Benchmark]:
    """Check names and data before any model loads. Return each benchmark by its requested name, with groups expanded.

    A name that is not a benchmark's is searched among lm-eval tasks, in `include_path` or shipped with lm-eval. Only
    commands and specs do this, because the task's code is run.

    Raises:
        UserError: A task is unknown or repeated, or a benchmark has no data (the message explains what to set).
    """
    if not tasks:
        raise UserError(
            f"tasks is empty. Name some, such as {mention('tasks', 'tiny_easy')}",
            argument="tasks",
            accepted=f"{', '.join(TASKS)}, or {ACCEPTED}",
        )
    benchmarks: dict[str, Benchmark] = {}
    for task in (member for name in tasks for member in GROUPS.get(name, (name,))):
        benchmark = find_benchmark(task, data_dir, presentation, lambda name: _declared(name, include_path))
        if task in benchmarks or benchmark.name in (other.name for other in benchmarks.values()):
            raise UserError(
                (
                    f"asks for {benchmark.name} twice; name it once, alone or in its group, and one of two "
                    "files otherwise, as NAME=PATH"
                ),
                argument="tasks",
                value=",".join(tasks),
            )
        benchmarks[task] = benchmark
    return benchmarks


def preflight_of(spec: "EvalSpec | SweepSpec") -> dict[str, Benchmark]:
    """Check the tasks of an evaluation or a sweep, as `preflight` does."""
    return preflight(spec.tasks, spec.data_dir, spec, spec.include_path if isinstance(spec, EvalSpec) else None)


def find_benchmark(
    task: str,
    data_dir: str | None = None,
    presentation: Presentation = AS_SHIPPED,
    task_file: Callable[[str], str] | None = None,
) -> Benchmark:
    """Return a benchmark, which is read once per process and place.

    Args:
        task: A shipped name, a file of `data_dir` by its name, `PATH.jsonl`, `NAME=PATH`, or the YAML of an lm-eval
            task.
        presentation: The requested presentation and grader.
        task_file: Returns the YAML of an lm-eval task by its name; None if no other names are accepted.

    Raises:
        UserError: There is no such benchmark or file, no data (the message explains what to set), a file is not valid
            or has a shipped name, or a shipped benchmark has the wrong number of problems.
    """
    if is_task_file(task):
        if field := next(iter(presentation.non_default()), None):
            raise UserError(
                f"{field} is not allowed with task={task!r}, because the task defines it",
                accepted="benchmarks",
            )
        benchmark = read_task(task)
        if benchmark.name in TASKS:
            raise UserError(
                f": {benchmark.name} is shipped with rlvr-dir",
                argument="task",
                value=task,
                accepted="another name in `task:`",
            )
        return benchmark
    name, file = named(task)
    if file is not None and name in TASKS:
        raise UserError(
            f": {name} is shipped with rlvr-dir",
            argument="task",
            value=task,
            accepted=f"another name, as my_{name}={file}",
        )
    place = data_dir or os.environ.get(DATA_VARIABLE) or None
    if file is None and name not in BENCHMARKS:
        if (local := _local(name, data_dir)) is None:
            if task_file is None or not NAME.fullmatch(name):
                raise unknown_task(task)
            return find_benchmark(task_file(name), data_dir, presentation)
        file = str(local.resolve())
    as_read = _shipped(name, None if name in TINY_TASKS else place) if file is None else _own(name, file)
    return replace(as_read, presentation=presentation.applied_to(as_read.presentation))


def _local(name: str, data_dir: str | None) -> Path | None:
    """Return the file of a benchmark that is not shipped, by its name only."""
    place = data_dir or os.environ.get(DATA_VARIABLE)
    local = Path(place or "").expanduser() / f"{name}.jsonl"
    return local if place and NAME.fullmatch(name) and name not in GROUPS and local.is_file() else None


def _declared(name: str, include_path: str | None) -> str:
    """Return the YAML file of an lm-eval task by its name, from `include_path`, or else from those that lm-eval ships.

    Raises:
        UserError: There is none, or there are several.
    """
    tasks = declared(include_path)
    if name not in tasks:
        raise unknown_task(name, nearest(name, tasks))
    if len(tasks[name]) > 1:
        raise UserError(
            f"is declared by {' and '.join(tasks[name])}", argument="task", value=name, accepted="one of these paths"
        )
    return tasks[name][0]


def unknown_task(task: str, near: Sequence[str] = ()) -> UserError:
    """Return the error for an unknown task; `near` are lm-eval tasks with similar names."""
    if suffix := _TABLE.search(task):
        lines = Path(task).expanduser().with_suffix(".jsonl")
        meant = f"; {lines} is there" if lines.is_file() else ""
        return UserError(
            f"is a {suffix[0]} file, which is not read{meant}", argument="task", value=task, accepted=f"{ACCEPTED}"
        )
    typo = nearest(task, TASKS, 1)
    hints = [f"Did you mean {typo[0]!r}?"] if typo else []
    hints += [f"lm-evaluation-harness has similar tasks: {', '.join(near)}."] if near else []
    return UserError(
        "is not known",
        argument="task",
        value=task,
        accepted=f"{', '.join(TASKS)}; your own file as {ACCEPTED}; the name or the YAML file of a task of lm-eval",
        hint=" ".join(hints),
    )


@lru_cache(maxsize=32)
def _own(name: str, file: str) -> Benchmark:
    try:
        return read_benchmark(name, file)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", argument="task", value=file) from None


@lru_cache(maxsize=32)
def _shipped(name: str, place: str | None) -> Benchmark:
    if name in TINY_TASKS:
        from rlvr_dir.tiny import benchmark as generate

        return Benchmark(name, problems_of([(name, row) for row in generate(name)], name))
    if name in TWINS:
        return _twin(name, _shipped(TWINS[name], place), place)
    source = SOURCES[name]
    where, path = f"the hub's {source.hub!r}", Path(place or "").expanduser() / f"{name}.jsonl"
    try:
        rows = problems_of([(where, row) for row in _download(name)], where) if place is None else read_problems(path)
    except OSError as error:
        raise NoDataError(
            f"{name} needs {path}, which cannot be read ({error.strerror}); set {DATA_VARIABLE} or data_dir to the "
            "folder that holds it, or leave both unset to use the hub"
        ) from None
    if len(rows) != source.rows:
        raise UserError(
            f"{where if place is None else path} has {len(rows)} problems, and {name} has {source.rows}",
            hint=f"Scores of different problems differ, so give yours another name: `--tasks my_{name}=PATH`",
        )
    return Benchmark(name, rows)


def _twin(name: str, other: Benchmark, place: str | None) -> Benchmark:
    """Return a benchmark's problems with other answers.

    Raises:
        UserError: Their file is not available, or does not have answers to each problem.
    """
    path = Path(place or ".").expanduser() / f"{name}_answers.jsonl"
    if place is None or not path.is_file():
        raise UserError(
            f"{name} needs {path.name} (with id and answers) in the folder that {DATA_VARIABLE} or data_dir names",
            hint=f"{other.name} works without it",
        )
    lists = {str(row["id"]): row["answers"] for _, row in read_jsonl(path, ("id", "answers"))}
    right = all(isinstance(answers, list) and answers for answers in lists.values())
    if right and not all(is_text(answer) or is_number(answer) for answers in lists.values() for answer in answers):
        raise UserError(f"{path} has an answer that is neither text nor a number", accepted="texts and numbers")
    if set(lists) != {row["id"] for row in other.problems} or not right:
        raise UserError(
            f"{path} does not have one list of answers per problem", accepted="a non-empty list for each problem"
        )
    rows = [{**row, "answer": tuple(gold(answer) for answer in lists[row["id"]])} for row in other.problems]
    return Benchmark(name, tuple(rows), of=other)


def _download(benchmark: str) -> list[dict[str, Any]]:
    source = SOURCES[benchmark]
    try:
        from datasets import load_dataset

        with hub_or_cache():
            table: Any = load_dataset(source.hub, split=source.split)
        names = source.fields
        ids = table["id"] if "id" in table.column_names else range(len(table))
        return [
            {"id": str(key), "problem": row[names["problem"]], "answer": row[names["answer"]]}
            for key, row in zip(ids, table, strict=True)
        ]
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise NoDataError(
            f"{benchmark} is not on this machine and {source.hub!r} cannot be loaded from the hub ({reason}); "
            f"set {DATA_VARIABLE} to a folder that holds {benchmark}.jsonl (one object a line: id, problem, answer)"
        ) from None

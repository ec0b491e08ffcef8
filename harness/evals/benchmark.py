"""A benchmark as its files say it: the problems of a JSONL, and how they are put to a model by a YAML beside it.

    rlvr-dir eval --tasks sums.jsonl            # the benchmark `sums`; sums.yaml may say how it is put to a model
    rlvr-dir eval --tasks held_out=sums.jsonl   # the same problems, called `held_out`

A line of the JSONL has `problem`, `answer` and, if it likes, `id`; other keys are ignored. docs/benchmarks.md has both
files by example.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.digest import digest
from harness.errors import UserError
from harness.spec import Spec, parse, read_yaml

Problem = dict[str, Any]  # id, problem, answer: text; answers_<version>: a list, where that version is at hand

ACCEPTED = "PATH.jsonl or NAME=PATH, one object a line with problem, answer and, if you like, id"
OURS = "rlvr_dir"  # in lm-eval's documents: the facts of their benchmark, which tasks of others do not have
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)  # of a benchmark: it names folders, runs and figures
_E_NOTATION = re.compile(r"([+-]?[0-9]*\.?[0-9]+)[eE]([+-]?[0-9]+)", re.ASCII)
_INTEGRAL = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)


class Presentation(Spec, frozen=True):
    """Says how the problems of a benchmark are put to a model: the YAML beside its JSONL.

    `prompt` is a Jinja template of `problem`; `examples` come before it, each `problem` through the same template and
    followed by its `answer`, which is shown as it is written.
    """

    called = "benchmark"

    prompt: str | None = None
    examples: tuple[dict[str, str], ...] = ()


AS_SHIPPED = Presentation()


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """Identifies a benchmark in records and results: a digest of its content, its size, and its own file."""

    data: str | None = None
    problems: int | None = None
    file: str | None = None

    def provenance(self) -> dict[str, Any]:
        """Return what a result says of it."""
        return {"data": self.data, **({"benchmark_size": self.problems} if self.problems else {})}


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """The problems of a benchmark, in order, and how they are put to a model.

    `file` is the JSONL of a benchmark that is not shipped, where the answers to its records are found again.
    """

    name: str
    problems: tuple[Problem, ...]
    presentation: Presentation = AS_SHIPPED
    file: str | None = None

    @property
    def data(self) -> str:
        """Return 16 hexadecimal digits: equal digests, equal questions, put alike.

        They are the first of the SHA-256 over ids, problems and answers, and what the YAML says where there is one.
        """
        rows: list[Any] = [[row["id"], row["problem"], row["answer"]] for row in self.problems]
        asked = self.presentation.model_dump(mode="json", exclude_defaults=True)
        return digest(json.dumps([*rows, asked] if asked else rows))

    @property
    def facts(self) -> BenchmarkFacts:
        """Return what identifies it."""
        return BenchmarkFacts(self.data, len(self.problems), self.file)


def named(task: str) -> tuple[str, str | None]:
    """Return the name of a benchmark and, where `task` is `NAME=PATH` or `PATH.jsonl`, its file.

    Raises:
        UserError: the file does not exist, or its name cannot be a benchmark's.
    """
    name, equals, path = task.partition("=")
    if not equals and not task.endswith(".jsonl"):
        return task, None
    if not equals or Path(task).expanduser().is_file():
        name, path = Path(task).stem, task
    file = Path(path).expanduser()
    if not file.is_file():
        reason = f"{path} does not exist" if path and not file.is_dir() else f"{path!r} is no file"
        raise UserError(f"task={task!r}: {reason}; accepted: {ACCEPTED}")
    if not NAME.fullmatch(name):
        raise UserError(
            f"task={task!r}: {name!r} cannot be a benchmark's name; accepted: NAME={path} with a name "
            "of letters, digits, '_', '-' and '.'"
        )
    return name, str(file.resolve())


def read_benchmark(name: str, file: str) -> Benchmark:
    """Read a benchmark from its JSONL and the YAML of that name beside it.

    Raises:
        UserError: naming the file, the line and what would be accepted.
    """
    path = Path(file)
    beside = path.with_suffix(".yaml")
    presentation = _presentation(beside) if beside.is_file() else AS_SHIPPED
    return Benchmark(name, read_problems(path), presentation, file)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Return the problems of a JSONL: `id`, `problem` and `answer` as text. Without an id, a line's place is its id.

    Raises:
        UserError: naming the file, the line and what would be accepted.
    """
    return problems_of([(f"{path} line {number}", row) for number, row in read_rows(path, ("problem", "answer"))], path)


def problems_of(rows: list[tuple[str, dict[str, Any]]], where: object) -> tuple[Problem, ...]:
    """Return rows, each with the place that a sentence names, as problems.

    Raises:
        UserError: there are none, two have one id, or one has no text where text must be.
    """
    if not rows:
        raise UserError(
            f"{where} has no problem; accepted: one object a line with problem, answer and, if you like, id"
        )
    found: dict[str, Problem] = {}
    for place, row in rows:
        key = str(len(found)) if row.get("id") is None else str(row["id"])
        if key in found:
            raise UserError(f"{place} has the id {key!r} of an earlier problem; ids must be unique, they key the noise")
        for name in ("problem", "answer"):
            value = row[name]
            if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
                raise UserError(f"{place} has {name}={value!r}; accepted: text{' or a number' * (name == 'answer')}")
        found[key] = {"id": key, "problem": str(row["problem"]).strip(), "answer": gold(row["answer"])}
    return tuple(found.values())


def read_rows(path: Path, names: tuple[str, ...]) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a JSONL, each with the number of its line; all of them have the keys `names`.

    Raises:
        OSError: it cannot be read.
        UserError: a line is no object or lacks a key, or the file is not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8; accepted: one object a line with {', '.join(names)}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{path} line {number} is not JSON; accepted: an object with {', '.join(names)}") from None
        if missing := [name for name in names if not isinstance(row, dict) or name not in row]:
            raise UserError(f"{path} line {number} lacks {missing[0]!r}; accepted: an object with {', '.join(names)}")
        rows.append((number, row))
    return rows


def _presentation(path: Path) -> Presentation:
    """Read the YAML beside a JSONL.

    Raises:
        UserError: another key, a template that is none or leaves the problem out, or an example without an answer.
    """
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.meta import find_undeclared_variables

    given = read_yaml(path)
    try:
        found = parse(Presentation, given)
        read = find_undeclared_variables(Environment().parse(found.prompt or "{{problem}}"))
    except (UserError, TemplateSyntaxError) as error:
        raise UserError(f"{path}, which says how the JSONL beside it is put to a model: {error}") from None
    if read != {"problem"}:
        raise UserError(
            f"{path}: prompt={found.prompt!r} reads {sorted(read)}; accepted: a template of {{{{problem}}}}"
        )
    if bad := [each for each in found.examples if set(each) != {"problem", "answer"}]:
        raise UserError(f"{path}: examples has {bad[0]!r}; accepted: a list of {{problem: TEXT, answer: TEXT}}")
    return found


def gold(answer: object) -> str:
    r"""Return an answer as text a grader can read: `142.0` is `142`, and `1.6e-19` is `1.6 \times 10^{-19}`.

    math-verify takes the `e` of e-notation for Euler's number, so a gold left that way could never be matched.
    """
    text = str(answer).strip()
    if match := _INTEGRAL.fullmatch(text):
        return match[1]
    if match := _E_NOTATION.fullmatch(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    return text

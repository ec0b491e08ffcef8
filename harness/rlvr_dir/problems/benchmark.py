"""Read a benchmark from its files: problems from a JSONL, and how to present them from a YAML beside it.

    rlvr-dir eval --tasks sums.jsonl            # the benchmark `sums`, with sums.prompt.yaml if it exists
    rlvr-dir eval --tasks held_out=sums.jsonl   # the same problems, called `held_out`

A line of the JSONL has `problem`, `answer` and, optionally, `id` and `family`; other keys are ignored.
docs/benchmarks.md has examples of both files.
"""

import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rlvr_dir.config import Presentation, parse, read_yaml
from rlvr_dir.config.base import read_jsonl
from rlvr_dir.config.presentation import DEFAULT_GRADER
from rlvr_dir.config.stored import is_number, is_text
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError
from rlvr_dir.files import shipped
from rlvr_dir.grading import Gold
from rlvr_dir.tiny import TINY_TASKS
from rlvr_dir.tiny.problems import BENCHMARK_SIZE

Problem = dict[str, Any]  # id, problem, answer (text, or several of which any one counts) and, for all or none, family

ACCEPTED = "PATH.jsonl or NAME=PATH, one object per line with problem, answer and, optionally, id"
LM_EVAL = "lm-eval"  # the grader of an lm-eval task: its own `evaluate`
OURS = "rlvr_dir"  # a key in our lm-eval documents with the facts of their benchmark
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)  # of a benchmark: it names folders, runs and figures
_E_NOTATION = re.compile(r"([+-]?[0-9]*\.?[0-9]+)[eE]([+-]?[0-9]+)", re.ASCII)
MARKS = "####"  # before the final answer in GSM8K
_INTEGRAL = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)
AS_SHIPPED = Presentation()


@dataclass(frozen=True)
class HubSource:
    """Describe where a benchmark is on the hub, and how many problems it must have. `fields` maps our names to the
    hub's."""

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
# Benchmarks that grade another one's responses by other answers; of the `answers` in <name>_answers.jsonl any one
# counts.
TWINS: dict[str, str] = {"minerva_r1zero": "minerva"}
BENCHMARKS: tuple[str, ...] = (*SOURCES, *TWINS, *TINY_TASKS)


class _GroupLoader(yaml.SafeLoader):
    """Read the file of an lm-eval group, without the functions that it names."""


_GroupLoader.add_constructor("!function", lambda loader, node: None)


def _members(group: str) -> tuple[str, ...]:
    """Return the benchmarks of a group, from the file that lm-eval reads, too."""
    text = (shipped("tasks") / f"{group}.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, _GroupLoader)["task"])


GROUPS: dict[str, tuple[str, ...]] = {"rlvr_math": _members("rlvr_math")}
TASKS: tuple[str, ...] = (*BENCHMARKS, *GROUPS)


def benchmark_size(name: str) -> int | None:
    """Return the number of problems in a shipped benchmark, without reading them; None for another one."""
    source = SOURCES.get(TWINS.get(name, name))
    return BENCHMARK_SIZE if name in TINY_TASKS else source.rows if source else None


@dataclass(frozen=True, slots=True)
class BenchmarkMetadata:
    """Hold what records and results store of a benchmark.

    These are a digest of its content, its size, its own file, how it is presented to the models if not by default (as
    plain values), and its grader. For an lm-eval task none of these are known. A benchmark that grades the responses to
    another one, by other answers, names that one and has the digest of its content. `families` are those of its
    problems, by their ids, if its file defines them.
    """

    data: str | None = None
    problems: int | None = None
    file: str | None = None
    presentation: dict[str, Any] | None = None
    grader: str | None = None
    of: str | None = None
    of_data: str | None = None
    families: dict[str, str] | None = None

    def provenance(self) -> dict[str, Any]:
        """Return what a result stores of it. Only for our own benchmarks this includes the number of examples."""
        size = {"benchmark_size": self.problems} if self.problems else {}
        examples = (
            {"examples": len((self.presentation or {}).get("examples", ()))}
            if self.grader not in (None, LM_EVAL)
            else {}
        )
        return {"data": self.data, **size, **examples}


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """Hold the problems of a benchmark, in order, and how they are presented to a model.

    `file` is the JSONL of a benchmark that is not shipped, in which the answers to its records are found later. `of` is
    another benchmark with the same questions, whose responses this one grades by its own answers; both share their
    records.
    """

    name: str
    problems: tuple[Problem, ...]
    presentation: Presentation = AS_SHIPPED
    file: str | None = None
    of: "Benchmark | None" = None

    @property
    def golds(self) -> dict[str, Gold]:
        """Return the right answer of each problem, by its id: text, or several of which any one counts."""
        return {row["id"]: row["answer"] for row in self.problems}

    @property
    def data(self) -> str:
        """Return 16 hexadecimal digits that are equal for equal questions with the same presentation.

        They are the first digits of the SHA-256 over ids, problems and answers, and over a presentation that is not the
        default. The grader is not part of it.
        """
        rows: list[Any] = [[row["id"], row["problem"], row["answer"]] for row in self.problems]
        presentation = self.presentation.non_default()
        return digest(json.dumps([*rows, presentation] if presentation else rows))

    @property
    def grader(self) -> str:
        """Return the name of the grader."""
        return self.presentation.grader or DEFAULT_GRADER

    @property
    def metadata(self) -> BenchmarkMetadata:
        """Return what identifies it."""
        presentation = self.presentation.model_dump(mode="json", exclude={"grader"}, exclude_none=True)
        whole = {"examples": [], **presentation} if presentation else None  # no later change of a YAML adds to it
        families = {row["id"]: row["family"] for row in self.problems if "family" in row} or None
        metadata = BenchmarkMetadata(self.data, len(self.problems), self.file, whole, self.grader, families=families)
        if self.of is None:
            return metadata
        other = replace(self.of, presentation=self.presentation)
        return replace(metadata, of=other.name, of_data=other.data)


def named(task: str) -> tuple[str, str | None]:
    """Return the name of a benchmark and, for `NAME=PATH` or `PATH.jsonl`, its file.

    Raises:
        UserError: The file does not exist, or its name cannot be a benchmark's.
    """
    name, equals, path = task.partition("=")
    if not equals and not task.endswith(".jsonl"):
        return task, None
    if not equals or Path(task).expanduser().is_file():
        name, path = Path(task).stem, task
    file = Path(path).expanduser()
    if not file.is_file():
        reason = f"{path} does not exist" if path and not file.is_dir() else f"{path!r} is no file"
        raise UserError(f": {reason}", argument="task", value=task, accepted=f"{ACCEPTED}")
    if not NAME.fullmatch(name):
        raise UserError(
            f": {name!r} cannot be a benchmark's name",
            argument="task",
            value=task,
            accepted=f"NAME={path} with a name of letters, digits, '_', '-' and '.'",
        )
    return name, str(file.resolve())


def read_benchmark(name: str, file: str) -> Benchmark:
    """Read a benchmark from its JSONL, `NAME.jsonl`, and from `NAME.prompt.yaml` beside it, if it exists.

    Raises:
        UserError: A file is not valid; the error names the file, the line and what is accepted.
    """
    path = Path(file)
    return Benchmark(name, read_problems(path), presentation_beside(path), file)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Return the problems of a JSONL: `id`, `problem` and `answer` as text. Without an id, a line's number is its id.

    Raises:
        UserError: The file is not valid; the error names the file, the line and what is accepted.
    """
    rows = read_jsonl(path, ("problem", "answer"))
    return problems_of([(f"{path} line {number}", row) for number, row in rows], path)


def problems_of(rows: list[tuple[str, dict[str, Any]]], where: object) -> tuple[Problem, ...]:
    """Return rows, each with its place for messages, as problems.

    Raises:
        UserError: There are no rows, two have the same id, a value is not text, or only some have a family.
    """
    if not rows:
        raise UserError(
            f"{where} has no problem", accepted="one object a line with problem, answer and, if you like, id"
        )
    problems: dict[str, Problem] = {}
    first_family = rows[0][1].get("family")
    for place, row in rows:
        if not (row.get("id") is None or is_text(row["id"]) or is_number(row["id"])):
            raise UserError(f"{place} has id={str(row['id'])[:80]!r}", accepted="text or a number")
        key = str(len(problems)) if row.get("id") is None else str(row["id"])
        if key in problems:
            raise UserError(
                f"{place} has the id {key!r} of an earlier problem",
                accepted="unique ids, because they seed the sampling",
            )
        for name in ("problem", "answer"):
            value = row[name]
            if not (is_text(value) or is_number(value)) or not str(value).strip():
                text = repr(value)[:80]
                raise UserError(f"{place} has {name}={text}", accepted=f"text{' or a number' * (name == 'answer')}")
        problems[key] = {"id": key, "problem": str(row["problem"]).strip(), "answer": gold(row["answer"])}
        if (family := row.get("family")) is None and first_family is None:
            continue
        if not isinstance(family, str) or not (is_text(family) and family.strip()) or first_family is None:
            raise UserError(
                (f"{place} has family={repr(family)[:80]}{', and the first line none' * (first_family is None)}"),
                accepted="text in every line, or no family in any",
            )
        problems[key]["family"] = family.strip()
    _warn_of_two_answers(problems.values())
    if marked := [row for _, row in rows if MARKS in str(row["answer"])]:
        warnings.warn(
            f"{where}: {len(marked)} answers have the form of GSM8K; the part after {MARKS} is used as the answer",
            stacklevel=3,
        )
    return tuple(problems.values())


def _warn_of_two_answers(problems: Iterable[Problem]) -> None:
    first: dict[str, Problem] = {}
    for problem in problems:
        earlier = first.setdefault(problem["problem"], problem)
        if earlier["answer"] != problem["answer"]:
            warnings.warn(
                f"{earlier['id']} and {problem['id']} are the same problem with two answers, {earlier['answer']!r} and "
                f"{problem['answer']!r}: no response is right in both",
                stacklevel=4,
            )
            return


def presentation_beside(jsonl: Path) -> Presentation:
    """Read the YAML beside a JSONL, if it exists. Files that it names are relative to it.

    Raises:
        UserError: A key is unknown, a template is not valid or does not contain the problem, or an example has no
            answer.
    """
    path = jsonl.with_suffix(".prompt.yaml")
    if not path.is_file():
        return AS_SHIPPED
    fields = read_yaml(path)
    for name in ("prompt", "examples"):
        if isinstance(fields.get(name), str) and os.path.isfile(beside := path.parent / fields[name]):
            fields[name] = str(beside)
    try:
        return parse(Presentation, fields)
    except UserError as error:
        raise UserError(f"{path}, the presentation of the JSONL beside it: {error}") from None


def gold(answer: object) -> str:
    r"""Return an answer as text that a grader can read: `142.0` is `142`, and `1.6e-19` is `1.6 \times 10^{-19}`.

    For an answer in the form of GSM8K, a worked solution and `#### 5`, it is the text after the last marks. math-verify
    would read the `e` of e-notation as Euler's number, so such a gold could never be matched.
    """
    text = str(answer).strip()
    if after := text.rpartition(MARKS)[2].strip():
        text = after.replace(",", "") if MARKS in text else text
    if match := _INTEGRAL.fullmatch(text):
        return match[1]
    if match := _E_NOTATION.fullmatch(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    return text

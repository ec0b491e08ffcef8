"""A benchmark as its files say it: the problems of a JSONL, and how they are put to a model by a YAML beside it.

    rlvr-dir eval --tasks sums.jsonl            # the benchmark `sums`; sums.prompt.yaml may say how it is put
    rlvr-dir eval --tasks held_out=sums.jsonl   # the same problems, called `held_out`

A line of the JSONL has `problem`, `answer` and, if it likes, `id` and `family`; other keys are ignored.
docs/benchmarks.md has both files by example.
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

Problem = dict[str, Any]  # id, problem, answer (text, or several of which any one counts) and, of all or none, family

ACCEPTED = "PATH.jsonl or NAME=PATH, one object a line with problem, answer and, if you like, id"
LM_EVAL = "lm-eval"  # the grader of a task of lm-eval's: its own `evaluate`
OURS = "rlvr_dir"  # in lm-eval's documents: the facts of their benchmark, which tasks of others do not have
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)  # of a benchmark: it names folders, runs and figures
_E_NOTATION = re.compile(r"([+-]?[0-9]*\.?[0-9]+)[eE]([+-]?[0-9]+)", re.ASCII)
MARKS = "####"  # before the final answer in GSM8K
_INTEGRAL = re.compile(r"([+-]?[0-9]+)\.0+", re.ASCII)
AS_SHIPPED = Presentation()


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
# The responses to a benchmark by other answers: of lists `answers` in <name>_answers.jsonl any one counts.
TWINS: dict[str, str] = {"minerva_r1zero": "minerva"}
BENCHMARKS: tuple[str, ...] = (*SOURCES, *TWINS, *TINY_TASKS)


class _GroupLoader(yaml.SafeLoader):
    """Reads the file of a group of lm-eval's, without the functions that it names."""


_GroupLoader.add_constructor("!function", lambda loader, node: None)


def _members(group: str) -> tuple[str, ...]:
    """Return the benchmarks of a group, from the file that lm-eval reads, too."""
    text = (shipped("tasks") / f"{group}.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, _GroupLoader)["task"])


GROUPS: dict[str, tuple[str, ...]] = {"rlvr_math": _members("rlvr_math")}
TASKS: tuple[str, ...] = (*BENCHMARKS, *GROUPS)


def benchmark_size(name: str) -> int | None:
    """Return how many problems a shipped benchmark has, without reading them; None for another one."""
    source = SOURCES.get(TWINS.get(name, name))
    return BENCHMARK_SIZE if name in TINY_TASKS else source.rows if source else None


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """Hold what records and results say of a benchmark.

    A digest of its content, its size, its own file, how it is put to the models otherwise than by default (as plain
    values), and who grades it. Of a task of lm-eval's none of these are known. One that grades the responses to another
    benchmark, by other answers, names that one and has the digest of its content. `families` are those of its problems,
    by their ids, where its file names them.
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
        """Return what a result says of it; how many examples are shown, of a benchmark of ours alone."""
        size = {"benchmark_size": self.problems} if self.problems else {}
        examples = (
            {"examples": len((self.presentation or {}).get("examples", ()))}
            if self.grader not in (None, LM_EVAL)
            else {}
        )
        return {"data": self.data, **size, **examples}


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """The problems of a benchmark, in order, and how they are put to a model.

    `file` is the JSONL of a benchmark that is not shipped, where the answers to its records are found again. `of` is
    another one with the same questions, whose responses it grades by answers of its own: they share their records.
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
        """Return 16 hexadecimal digits: equal digests, equal questions, put alike.

        They are the first of the SHA-256 over ids, problems and answers, and over how they are shown to the models
        where that is not the default. Who grades the responses is no part of it.
        """
        rows: list[Any] = [[row["id"], row["problem"], row["answer"]] for row in self.problems]
        presentation = self.presentation.non_default()
        return digest(json.dumps([*rows, presentation] if presentation else rows))

    @property
    def grader(self) -> str:
        """Return who grades the responses."""
        return self.presentation.grader or DEFAULT_GRADER

    @property
    def facts(self) -> BenchmarkFacts:
        """Return what identifies it."""
        presentation = self.presentation.model_dump(mode="json", exclude={"grader"}, exclude_none=True)
        whole = {"examples": [], **presentation} if presentation else None  # no later change of a YAML adds to it
        families = {row["id"]: row["family"] for row in self.problems if "family" in row} or None
        facts = BenchmarkFacts(self.data, len(self.problems), self.file, whole, self.grader, families=families)
        if self.of is None:
            return facts
        other = replace(self.of, presentation=self.presentation)
        return replace(facts, of=other.name, of_data=other.data)


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
    """Read a benchmark from its JSONL, `NAME.jsonl`, and `NAME.prompt.yaml` where that is beside it.

    Raises:
        UserError: naming the file, the line and what would be accepted.
    """
    path = Path(file)
    return Benchmark(name, read_problems(path), presentation_beside(path), file)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Return the problems of a JSONL: `id`, `problem` and `answer` as text. Without an id, a line's place is its id.

    Raises:
        UserError: naming the file, the line and what would be accepted.
    """
    rows = read_jsonl(path, ("problem", "answer"))
    return problems_of([(f"{path} line {number}", row) for number, row in rows], path)


def problems_of(rows: list[tuple[str, dict[str, Any]]], where: object) -> tuple[Problem, ...]:
    """Return rows, each with the place that a sentence names, as problems.

    Raises:
        UserError: there are none, two have one id, one has no text where text must be, or some name their family and
            others do not.
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
            raise UserError(f"{place} has the id {key!r} of an earlier problem; ids must be unique, they key the noise")
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
                f"{earlier['id']} and {problem['id']} are one problem with two answers, {earlier['answer']!r} and "
                f"{problem['answer']!r}: no response is right in both",
                stacklevel=4,
            )
            return


def presentation_beside(jsonl: Path) -> Presentation:
    """Read the YAML beside a JSONL, where there is one; files that it names are beside it, too.

    Raises:
        UserError: another key, a template that is invalid or leaves the problem out, or an example without an answer.
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
        raise UserError(f"{path}, which says how the JSONL beside it is put to a model: {error}") from None


def gold(answer: object) -> str:
    r"""Return an answer as text a grader can read: `142.0` is `142`, and `1.6e-19` is `1.6 \times 10^{-19}`.

    Of an answer in the form of GSM8K, a worked solution and `#### 5`, it is what follows the last marks.

    math-verify takes the `e` of e-notation for Euler's number, so a gold left that way could never be matched.
    """
    text = str(answer).strip()
    if after := text.rpartition(MARKS)[2].strip():
        text = after.replace(",", "") if MARKS in text else text
    if match := _INTEGRAL.fullmatch(text):
        return match[1]
    if match := _E_NOTATION.fullmatch(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    return text

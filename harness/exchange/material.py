"""What an export is made of: a result, and where its record is at hand, every response with question and verdict."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from harness.errors import UserError
from harness.evals.benchmark import Problem
from harness.evals.from_records import benchmark_of, record_of
from harness.evals.result import EvalResult
from harness.exchange.system import System, system_of
from harness.grading import Gold
from harness.records import Key, Record, Row, judge_name
from harness.records.verdicts import StoredVerdict


@dataclass(frozen=True, slots=True)
class Response:
    """A response as it is handed on. `answer` is what the grader read, None where it read none or did not say.

    `kind` is the grader's verdict (`correct`, `wrong`, ...); `gold` are the accepted answers.
    """

    problem: str
    sample: int
    question: str
    gold: tuple[str, ...]
    rollout: Row
    correct: bool
    kind: str
    answer: str | None


@dataclass(frozen=True, eq=False)
class Material:
    """A result with what its record adds. `why_none` says why there are no responses, else it is empty."""

    result: EvalResult
    system: System
    record: Record | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    golds: Mapping[str, Gold] = field(default_factory=dict)
    why_none: str = ""

    @property
    def name(self) -> str:
        """Return the name that sentences about it begin with."""
        return f"{self.result.benchmark}, {self.result.label}"

    @cached_property
    def when(self) -> datetime | None:
        """Return when its record was begun, in UTC; None where nobody knows."""
        told = self.record.about.created if self.record else None
        try:
            return datetime.strptime(str(told), "%Y-%m-%d %H:%M:%S").astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            return None

    def responses(self) -> Iterator[Response]:
        """Yield every response of the result, problem by problem; none where `why_none` says so."""
        if self.record is None or self.why_none:
            return
        given, result = self._verdicts, self.result
        for i, problem in enumerate(result.problem_ids):
            for sample in range(result.samples):
                key, correct = (f"{self.record.task}/{problem}", sample), bool(result.correct[i, sample])
                kind, answer, gold = "correct" if correct else "wrong", None, self.golds.get(problem, ())
                if (one := given.get(key)) and one.verdict.correct == correct:  # else another version's: of no use here
                    kind, answer, gold = one.kind, one.answer, one.gold
                golds = (gold,) if isinstance(gold, str) else tuple(gold)
                row = self.record.rows[key].load()
                yield Response(problem, sample, self.questions[problem], golds, row, correct, kind, answer)

    @cached_property
    def _verdicts(self) -> dict[Key, StoredVerdict]:
        if self.record is None:
            return {}
        grader = str(self.result.provenance.get("grader"))
        return self.record.verdicts(judge_name(grader, self.result.task, self.record.task))

    @property
    def drawn(self) -> dict[str, Any]:
        """Return what is known of the sampling, the number of samples aside."""
        every = self.result.sampling.drawing.model_dump(mode="json")
        return {name: value for name, value in every.items() if name not in self.result.lacks}

    def facts(self) -> dict[str, str]:
        """Return what is known of how it was made, as text by name; nothing that names a place on this machine."""
        told = self.result.provenance
        config = self.record.config if self.record else None
        found: dict[str, Any] = {
            "decoded_by": self.system.kind,
            "rule": self.result.decoding.label(),
            "decoding": self.result.decoding.model_dump_json(),
            **{f"{role}_model": model for role, model in self.system.models.items()},
            **{
                f"{role}_identity": identity
                for role, model in self.system.models.items()
                if config is not None
                and (identity := config.weights.get(role, "")).startswith(("weights:", f"{model}@"))
            },
            "samples": self.result.samples,
            "sampling": json.dumps(self.drawn),
            **{name: told.get(name) for name in ("grader", "data", "record", "partial")},
            "graded_with": _compact(told.get("graded_with")),
            "versions": _compact(told.get("versions")),
            "config_hash": self.result.config_hash,
            "limited": self.result.limited,
            "lacks": ", ".join(self.result.lacks),
        }
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


def material_of(result: EvalResult, data_dir: str | None = None) -> Material:
    """Return a result with its responses, where they, their questions and the right answers are at hand."""
    system, record = system_of(result), record_of(result)
    if not result.shares:
        why = "lm-eval's metrics judge a problem, so no single response has a verdict to hand on"
        return Material(result, system, record, why_none=why)
    if record is None:
        return Material(result, system, why_none="its record is not at hand")
    try:
        benchmark = benchmark_of(record, result.task, data_dir=data_dir)
        problems: Mapping[str, Problem] = {row["id"]: row for row in benchmark.problems}
    except UserError as error:
        return Material(result, system, record, why_none=f"its questions are not at hand: {error}")
    if lacking := [key for key in result.problem_ids if key not in problems]:
        return Material(result, system, record, why_none=f"the question of {lacking[0]} is not at hand")
    questions = {key: str(problems[key]["problem"]) for key in result.problem_ids}
    golds = {key: benchmark.golds[key] for key in result.problem_ids}
    return Material(result, system, record, questions, golds)


def _compact(value: Any) -> str | None:
    return ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) and value else None

"""What an export is made of: a result, and where its record is at hand, every response with question and verdict."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from harness.errors import UserError
from harness.evals.benchmark import Problem
from harness.evals.foreign import LmEvalResult
from harness.evals.from_records import benchmark_of, record_of
from harness.evals.result import EvalResult
from harness.exchange.system import System, system_of
from harness.grading import Gold
from harness.records import Snapshot, StoredRollout, judge_name
from harness.records.verdicts import read_verdicts


@dataclass(frozen=True, slots=True)
class Response:
    """A response as it is handed on. `answer` is what the grader read, None where it read none or did not say.

    `kind` is the grader's verdict (`correct`, `wrong`, ...); `gold` are the accepted answers.
    """

    problem: str
    sample: int
    question: str
    gold: tuple[str, ...]
    rollout: StoredRollout
    correct: bool
    kind: str
    answer: str | None


@dataclass(frozen=True, eq=False)
class Material:
    """A result with what its record adds. `why_none` says why there are no responses, else it is empty."""

    result: EvalResult
    system: System
    snapshot: Snapshot | None = None
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
        told = self.snapshot.about.get("created") if self.snapshot else None
        try:
            return datetime.strptime(str(told), "%Y-%m-%d %H:%M:%S").astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            return None

    def responses(self) -> Iterator[Response]:
        """Yield every response of the result, problem by problem; none where `why_none` says so."""
        if self.snapshot is None or self.why_none:
            return
        rows, result = self._verdicts, self.result
        for i, problem in enumerate(result.problem_ids):
            key = f"{self.snapshot.task}/{problem}"
            for sample in range(result.samples):
                entry, correct = self.snapshot.entry((key, sample)), bool(result.correct[i, sample])
                row = rows.get((key, sample), {})
                if row.get("text") != entry.text_digest or (row.get("kind") == "correct") != correct:
                    row = {"kind": "correct" if correct else "wrong"}  # another version's verdict: of no use here
                gold = row.get("gold", self.golds.get(problem, ()))
                golds = (gold,) if isinstance(gold, str) else tuple(gold)
                kind, answer = str(row["kind"]), row.get("answer")
                yield Response(problem, sample, self.questions[problem], golds, entry.load(), correct, kind, answer)

    @cached_property
    def _verdicts(self) -> dict[Any, dict[str, Any]]:
        told = self.result.provenance
        judge = judge_name(str(told.get("grader")), str(told.get("golds") or "published").split()[0])
        return read_verdicts(self.snapshot.folder, judge) if self.snapshot else {}

    @property
    def drawn(self) -> dict[str, Any]:
        """Return what is known of the sampling, the number of samples aside."""
        every = self.result.sampling.drawing.model_dump(mode="json")
        return {name: value for name, value in every.items() if name not in self.result.lacks}

    def facts(self) -> dict[str, str]:
        """Return what is known of how it was made, as text by name; nothing that names a place on this machine."""
        told = self.result.provenance
        config = self.snapshot.config if self.snapshot else None
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
            **{name: told.get(name) for name in ("grader", "golds", "data", "record", "partial")},
            "graded_with": _compact(told.get("graded_with")),
            "versions": _compact(told.get("versions")),
            "config_hash": self.result.config_hash,
            "limited": self.result.limited,
            "lacks": ", ".join(self.result.lacks),
        }
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


def material_of(result: EvalResult, data_dir: str | None = None) -> Material:
    """Return a result with its responses, where they, their questions and the right answers are at hand."""
    system, snapshot = system_of(result), record_of(result)
    if isinstance(result, LmEvalResult):
        why = "lm-eval's metrics judge a problem, so no single response has a verdict to hand on"
        return Material(result, system, snapshot, why_none=why)
    if snapshot is None:
        return Material(result, system, why_none="its record is not at hand")
    try:
        problems: Mapping[str, Problem] = {row["id"]: row for row in benchmark_of(snapshot, data_dir=data_dir).problems}
    except UserError as error:
        return Material(result, system, snapshot, why_none=f"its questions are not at hand: {error}")
    if lacking := [key for key in result.problem_ids if key not in problems]:
        return Material(result, system, snapshot, why_none=f"the question of {lacking[0]} is not at hand")
    questions = {key: str(problems[key]["problem"]) for key in result.problem_ids}
    golds = {key: str(problems[key]["answer"]) for key in result.problem_ids}
    return Material(result, system, snapshot, questions, golds)


def _compact(value: Any) -> str | None:
    return ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) and value else None

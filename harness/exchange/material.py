"""What an export is made of: a result, its scores, and where its record is at hand every response with its question."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from harness.errors import UserError
from harness.evals.from_records import benchmark_of, record_of
from harness.evals.result import EvalResult
from harness.exchange.responses import Response
from harness.grading import Gold
from harness.records import Record, judge_name
from harness.spec.pair import model_name

_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
_SPELT = {"τ": "tau", "γ": "gamma", "≥": "-at-least-", " ": "-"}
RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
_NAME = re.compile(r"(avg|pass|maj)@([0-9]+)(?:_(.+))?")
_IDS = {"avg": ("accuracy", "Avg@{}"), "pass": ("pass_at_k", "Pass@{}"), "maj": ("maj_at_k", "Maj@{}")}


@dataclass(frozen=True, slots=True)
class System:
    """Hold the name of what decoded: `id` as a hub's `ORG/NAME`, `models` by role, as others know them.

    `single` tells whether one published model did it alone. A checkpoint on a disk is `local/NAME-ROLE`: its path
    belongs to a machine and is not told.
    """

    name: str
    id: str
    models: dict[str, str]
    single: bool

    @property
    def developer(self) -> str:
        """Return the first part of `id`."""
        return self.id.partition("/")[0]

    @property
    def model(self) -> str:
        """Return the second part of `id`."""
        return self.id.partition("/")[2]

    @property
    def kind(self) -> str:
        """Say how many models it is, and whether a rule is part of it."""
        if self.single:
            return "one model"
        return "one model, by a rule" if len(self.models) == 1 else "several models at once, by a rule"

    @property
    def on_hub(self) -> bool:
        """Tell whether it is one model that a hub knows by this id."""
        return self.single and self.developer not in ("local", "unknown")


def system_of(result: EvalResult) -> System:
    """Return what produced a result.

    Base or RL alone is that model. Two models at once (or three), and weights that were extrapolated
    from two, are a system of its own, whose name has the rule; so is one model that is drawn from its law to a power.
    """
    models = {role: _public(place, role) for role, place in {"base": "", "rl": "", **result.models}.items()}
    mode = result.decoding.mode
    if mode in ("base", "rl") and len(models) == 2:
        return System(models[mode].rpartition("/")[2], models[mode], {mode: models[mode]}, True)
    if mode == "power" and result.decoding.primary and len(models) == 2:
        only = models[result.decoding.primary]
        name = f"{only.rpartition('/')[2]}, {result.decoding.label()}"
        return System(name, f"rlvr-dir/{slug(name)}", {result.decoding.primary: only}, False)
    base, rl, *third = (model.rpartition("/")[2] for model in models.values())
    rule = result.decoding.label()
    name = " on ".join([f"{rl} with {base}", *third])
    return System(f"{name}, {rule}", f"rlvr-dir/{slug(f'{name} {rule}')}", models, False)


def slug(text: str) -> str:
    """Return a text as a part of a path: letters, digits, '.', '_' and '-', at most 150 of them."""
    spelt = "".join(_SPELT.get(letter, letter) for letter in text)
    return (
        re.sub(r"-{2,}(?![0-9])", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", spelt)).strip("-. ")[:150].rstrip("-. ") or "x"
    )


def _public(checkpoint: str, role: str) -> str:
    """Return a checkpoint's hub id; of one on a disk a name without its place."""
    if not checkpoint or checkpoint == "?":
        return f"unknown/{role}"
    if _HUB.fullmatch(checkpoint) and not Path(checkpoint).exists():
        return checkpoint
    own = model_name(checkpoint)
    return f"local/{slug(own if PurePath(own).name == role else f'{own}-{role}')}"


@dataclass(frozen=True, slots=True)
class Target:
    """Hold what only the person who exports can know, and when that is.

    `datasets` are the hub's dataset and its task's id by the name of a benchmark.
    """

    organization: str = "unknown"
    relationship: str = "other"
    source_url: str | None = None
    datasets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))


@dataclass(frozen=True, slots=True)
class Written:
    """Hold the files of an export and, a sentence each, what is not in them."""

    files: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """Hold one score. `value` is a fraction of 1 (`proportion`), but for lm-eval's metrics, which have their own units.

    `error` is the standard error over problems, None where none is computed.
    """

    name: str
    id: str
    shown: str
    value: float
    parameters: dict[str, int] = field(default_factory=dict)
    error: float | None = None
    lower_is_better: bool = False
    proportion: bool = True


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
        result, record, known = self.result, self.record, "n_tokens" not in self.result.lacks
        given = record.verdicts(judge_name(str(result.provenance.get("grader")), result.task, record.task))
        for i, problem in enumerate(result.problem_ids):
            for sample in range(result.samples):
                key, correct = (f"{record.task}/{problem}", sample), bool(result.correct[i, sample])
                kind, answer, gold = "correct" if correct else "wrong", None, self.golds.get(problem, ())
                if (one := given.get(key)) and one.verdict.correct == correct:  # else another version's: of no use here
                    kind, answer, gold = one.kind, one.answer, one.gold
                row = record.rows[key].load()
                read = row.prompt_token_ids
                yield Response.model_construct(
                    problem=problem,
                    sample=sample,
                    text=row.text,
                    gold=(gold,) if isinstance(gold, str) else tuple(gold),
                    correct=correct,
                    kind=kind,
                    answer=answer,
                    question=self.questions[problem],
                    finish_reason=row.finish_reason,
                    n_tokens=row.n_tokens if known else None,
                    prompt_tokens=len(read) if known and read is not None else None,
                    replaced=tuple(row.replaced.nonzero()[0].tolist()),
                    changed=tuple(row.changed.nonzero()[0].tolist()),
                )

    def scores(self) -> list[Score]:
        """Return the scores of the result, the first of which is the one that its single responses make."""
        result, found = self.result, []
        for name in result.metric_names:
            value, lower = (result.scores or {})[name], name in result.lower_is_better
            error = _finite(result.of_metric(name).standard_error) if name in result.values else None
            found.append(Score(name, name, name, value, error=error, lower_is_better=lower, proportion=False))
        for name, value in result.metrics().items():
            match = _NAME.fullmatch(name)
            if match is not None and match[3] not in ("se", "se_sampling"):
                (id_, shown), of = _IDS[match[1]], "samples" if match[1] == "avg" else "k"
                error = _finite(result.standard_error) if match[1] == "avg" else None
                found.append(Score(name, id_, shown.format(match[2]), value, {of: int(match[2])}, error))
        return [score for score in found if math.isfinite(score.value)]

    def counts(self) -> dict[str, float]:
        """Return what is counted of the responses: shares of tokens and responses, and mean lengths, by name."""
        return {name: each for name, each in self.result.metrics().items() if "@" not in name and math.isfinite(each)}

    @property
    def drawn(self) -> dict[str, Any]:
        """Return what is known of the sampling, the number of samples aside."""
        every = self.result.sampling.drawing.model_dump(mode="json")
        return {name: value for name, value in every.items() if name not in self.result.lacks}

    def facts(self) -> dict[str, str]:
        """Return what is known of how it was made, as text by name; nothing that names a place on this machine."""
        told, models = self.result.provenance, self.system.models
        weights = self.record.config.weights if self.record and self.record.config else {}
        known = {role: weights.get(role, "") for role in models}
        found: dict[str, Any] = {
            "decoded_by": self.system.kind,
            "rule": self.result.decoding.label(),
            "decoding": self.result.decoding.model_dump_json(),
            **{f"{role}_model": model for role, model in models.items()},
            **{
                f"{role}_identity": id_
                for role, id_ in known.items()
                if id_.startswith(("weights:", f"{models[role]}@"))
            },
            "samples": self.result.samples,
            "sampling": json.dumps(self.drawn),
            **{name: told.get(name) for name in ("grader", "data", "record", "partial")},
            **{
                name: ", ".join(f"{key} {each}" for key, each in (told.get(name) or {}).items())
                for name in ("graded_with", "versions")
            },
            "config_hash": self.result.config_hash,
            "limited": self.result.limited,
            "lacks": ", ".join(self.result.lacks),
        }
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def material_of(result: EvalResult, data_dir: str | None = None) -> Material:
    """Return a result with its responses, where they, their questions and the right answers are at hand."""
    system, record = system_of(result), record_of(result)
    if not result.shares or record is None:
        theirs = "lm-eval's metrics judge a problem, so no single response has a verdict to hand on"
        return Material(result, system, record, why_none="its record is not at hand" if result.shares else theirs)
    try:
        benchmark = benchmark_of(record, result.task, data_dir=data_dir)
    except UserError as error:
        return Material(result, system, record, why_none=f"its questions are not at hand: {error}")
    questions = {row["id"]: str(row["problem"]) for row in benchmark.problems}
    if lacking := [key for key in result.problem_ids if key not in questions]:
        return Material(result, system, record, why_none=f"the question of {lacking[0]} is not at hand")
    return Material(result, system, record, questions, benchmark.golds)

"""The result of a task that is not ours: what lm-eval computed, problem by problem, beside what our engine counted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AllowInfNan, model_validator

from harness import stats
from harness.digest import digest_of
from harness.errors import DamagedError, UserError
from harness.evals.result import ARRAYS, EvalResult, ResultFile, config_hash_of
from harness.spec import Decoding, Sampling
from harness.spec.stored import Number, Stored, Text, check_stored, read_json

COUNTED = ("n_tokens", "n_replaced", "n_changed", "truncated")


@dataclass(frozen=True)
class TaskScores:
    """Holds lm-eval's scores of a task, in its own units; a metric is named `METRIC/FILTER`, or `METRIC` alone.

    `scores` are aggregated as the task says, with `METRIC_stderr` beside them where lm-eval computed it. `by_problem`
    has the values of each problem where their mean is the score: what may be compared problem by problem. Of a metric
    in `lower_is_better` less is more.
    """

    scores: dict[str, float]
    by_problem: dict[str, tuple[float, ...]]
    lower_is_better: tuple[str, ...] = ()


class TaskScoresFile(Stored, frozen=True):
    """Scores as `plain` writes them. What lm-eval itself could not compute is NaN in `scores`, and is shown so."""

    called: ClassVar[str] = "scores"

    scores: dict[str, Annotated[Number, AllowInfNan()]]
    by_problem: dict[str, tuple[Number, ...]]
    lower_is_better: tuple[Text, ...]

    @model_validator(mode="after")
    def _check_named(self) -> "TaskScoresFile":
        if unnamed := [name for name in self.by_problem if name not in self.scores]:
            raise ValueError(f"by_problem has {unnamed[0]!r}, which scores lacks")
        return self

    @property
    def scored(self) -> TaskScores:
        """Return the scores."""
        return TaskScores(self.scores, self.by_problem, self.lower_is_better)


class LmEvalResultFile(ResultFile, frozen=True):
    """A result of a task of lm-eval, as `LmEvalResult.to_json` writes it."""

    lm_eval: TaskScoresFile


@dataclass(frozen=True, eq=False)
class LmEvalResult(EvalResult):
    """A result by lm-eval's metrics, of which `metric` is the one that is looked at: `correct` has its values.

    `correct` is (problems, 1) float here: lm-eval makes one value of all samples of a problem; NaN where the task has
    no metric that is a mean over problems. `by_metric` gives a result for each. Nobody has judged single samples, so
    there is no Pass@k, no error of sampling alone, and nothing without a box.
    """

    scored: TaskScores = field(default_factory=lambda: TaskScores({}, {}))
    metric: str = ""

    @classmethod
    def of(
        cls,
        task: str,
        decoding: Decoding,
        sampling: Sampling,
        samples: Mapping[str, Sequence[Mapping[str, Any]]],
        scored: TaskScores,
        *,
        seconds: float = 0.0,
        provenance: dict[str, Any] | None = None,
    ) -> "LmEvalResult":
        """Make it from the counts of each response (`GradedResponse.counts`), by problem, and lm-eval's scores."""
        rows = list(samples.values())
        counts = {name: [[each[name] for each in row] for row in rows] for name in COUNTED[:3]}
        counts["truncated"] = [[each["finish_reason"] == "length" for each in row] for row in rows]
        return cls._make(task, decoding, sampling, tuple(samples), counts, scored, seconds, provenance or {})

    @classmethod
    def _make(
        cls,
        task: str,
        decoding: Decoding,
        sampling: Sampling,
        problem_ids: tuple[str, ...],
        counts: Mapping[str, Any],
        scored: TaskScores,
        seconds: float,
        provenance: dict[str, Any],
    ) -> "LmEvalResult":
        none = np.zeros((len(problem_ids), sampling.samples), dtype=bool)
        metric = next(iter(scored.by_problem), "")
        return cls(
            task,
            decoding,
            sampling,
            problem_ids,
            correct=_column(scored, metric, len(problem_ids)),
            no_box=none,
            ungraded=none,
            seconds=seconds,
            provenance=provenance,
            scored=scored,
            metric=metric,
            **{name: counts[name] for name in COUNTED},
        )

    def _table(self, name: str, table: Any, flags: bool) -> np.ndarray:
        if name != "correct":
            return super()._table(name, table, flags)
        value = np.asarray(table, dtype=float)
        if value.shape != (len(self.problem_ids), 1):
            raise UserError(
                f"{self.metric} of {self.task} has values of {len(value)} of {len(self.problem_ids)} problems"
            )
        value.setflags(write=False)
        return value

    @property
    def metric_names(self) -> list[str]:
        """Return the names of all metrics, without their errors."""
        return [name for name in self.scored.scores if "_stderr" not in name]

    def by_metric(self) -> list[EvalResult]:
        """Return a result for each metric that is a mean over problems."""
        values = [(name, _column(self.scored, name, len(self.problem_ids))) for name in self.scored.by_problem]
        return [replace(self, metric=name, correct=column) for name, column in values]

    def of_metric(self, name: str) -> EvalResult:
        """Return its result by one metric that is a mean over problems; itself where it has none of that name."""
        return next((one for one in self.by_metric() if one.subject == f"{self.task} {name}"), self)

    @property
    def subject(self) -> str:
        """Return what is compared: the task and the metric."""
        return f"{self.task} {self.metric}".strip()

    @property
    def benchmark(self) -> str:
        """The task and the metric, marked where only some problems were asked or where less is better."""
        notes = [*([self.limited] if self.limited else [])]
        notes += ["lower is better"] if self.metric in self.scored.lower_is_better else []
        return self.subject + (f" ({', '.join(notes)})" if notes else "")

    @property
    def avg(self) -> float:
        """The mean of the metric over problems, in lm-eval's own units."""
        return float(self.correct.mean())

    @property
    def sampling_error(self) -> float:
        """NaN: what another run would give cannot be told from one value a problem."""
        return float("nan")

    def pass_at(self, k: int) -> float:
        """Refuse: nobody has judged single samples.

        Raises:
            UserError: always.
        """
        raise UserError(f"pass@{k} of {self.task} does not exist: lm-eval makes one value of a problem's samples")

    def alike(self) -> dict[str, Any]:
        """Return what must be equal in results that are compared, the metric among them."""
        return {**super().alike(), "grader": (self.metric, *(super().alike()["grader"]))}

    @property
    def config_hash(self) -> str:
        """Name what was asked and what lm-eval made of it: its metrics are not ours to define."""
        asked = config_hash_of(self.task, self.decoding, self.sampling, self.problem_ids, self.provenance)
        return digest_of([asked, {name: self.scored.scores[name] for name in self.metric_names}])

    def metrics(self) -> dict[str, float]:
        """Return our counts, as fractions: replacement ratios, lengths, the share of truncated responses."""
        rows = zip(*(getattr(self, name).tolist() for name in COUNTED), strict=True)
        return stats.benchmark_metrics([stats.Responses(**dict(zip(COUNTED, row, strict=True))) for row in rows])

    def only(self, problems: Sequence[str]) -> "LmEvalResult":
        """Return the part that some of its problems make; of its metrics those that are means over problems.

        Raises:
            KeyError: it has no such problem.
        """
        at = {key: i for i, key in enumerate(self.problem_ids)}
        rows = [at[key] for key in problems]
        by = {name: tuple(values[row] for row in rows) for name, values in self.scored.by_problem.items()}
        means = {name: float(np.mean(values)) for name, values in by.items()}
        tables = {name: getattr(self, name)[rows] for name in ARRAYS}
        scored = replace(self.scored, scores=means, by_problem=by)
        return replace(self, problem_ids=tuple(problems), seconds=0.0, scored=scored, **tables)

    def to_json(self) -> str:
        """Write everything as JSON; `read_result` reads it back."""
        return json.dumps(
            {
                "task": self.task,
                "decoding": self.decoding.model_dump(mode="json"),
                "sampling": self.sampling.model_dump(mode="json"),
                "problem_ids": list(self.problem_ids),
                "lm_eval": plain(self.scored),
                **{name: getattr(self, name).astype(int).tolist() for name in COUNTED},
                "seconds": self.seconds,
                "provenance": self.provenance,
            },
            ensure_ascii=False,
        )

    @classmethod
    def of_plain(cls, data: Any, where: object) -> "LmEvalResult":
        """Make it from a result file's plain values; raises what `from_json` does."""
        file = check_stored(data, LmEvalResultFile, where)
        about = (file.task, file.decoding, file.sampling, file.problem_ids)
        counts = {name: getattr(file, name) for name in COUNTED}
        try:
            found = cls._make(*about, counts, file.lm_eval.scored, file.seconds, data.get("provenance", {}))
            found.by_metric()  # each of which checks that it has a value for every problem
        except UserError as error:
            raise DamagedError(f"{where}: {error}") from None
        return found


def read_result(file: Path) -> EvalResult:
    """Read a result file, of our benchmarks or of a task of lm-eval.

    Raises:
        DamagedError: it is none; names the file, the key, its value and what would be accepted.
    """
    data = read_json(file)
    kind = LmEvalResult if isinstance(data, dict) and "lm_eval" in data else EvalResult
    return kind.of_plain(data, file)


def plain(scored: TaskScores) -> dict[str, Any]:
    """Return scores as JSON has them."""
    return {
        "scores": scored.scores,
        "by_problem": {name: list(values) for name, values in scored.by_problem.items()},
        "lower_is_better": list(scored.lower_is_better),
    }


def _column(scored: TaskScores, metric: str, problems: int) -> np.ndarray:
    """Return the values of a metric as (problems, 1); NaN where the task has none that is a mean."""
    return np.asarray(scored.by_problem.get(metric, [np.nan] * problems), dtype=float)[:, None]

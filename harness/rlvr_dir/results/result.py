"""Represent one finished evaluation: a decoding on a benchmark, sample by sample, and its metrics.

result = result_of_record(record)
result.avg, result.metrics()["pass@8"]; read_result(result.write(folder))
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BeforeValidator,
    Field,
    model_validator,
)

from rlvr_dir import stats
from rlvr_dir.config import Decoding, Sampling, parse
from rlvr_dir.config.pair import model_name, places_of
from rlvr_dir.config.stored import MOST, Name, Number, Plain, Stored, Text, parse_json, read_json
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import folder_name, write_file
from rlvr_dir.grading import Verdict
from rlvr_dir.problems.benchmark import Benchmark, benchmark_size
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark
from rlvr_dir.records import Key, Record
from rlvr_dir.results.fields import Counts, Flags, Votes, checked_provenance, distinct

# The provenance of a result that can change its numbers: the settings of its tokens, the data, and the grading.
REQUEST_FACTS = ("settings", "data", "graded_with", "partial")
COUNTS = ("n_tokens", "n_replaced", "n_changed")
FLAGS = ("truncated", "no_box", "ungraded")
STROKE = "\u2215"  # replaces / in a name that is not a path


class TaskResult(Stored, frozen=True):
    """Store a decoding's result on a task, from this evaluator or lm-eval. All tables have shape (problems, samples).

    Row i belongs to `problem_ids[i]`, column j to sample j. `truncated` marks responses that reached the token limit.
    `families` has the family of each problem if the benchmark defines them. `seconds` is this result's share, by
    tokens, of the engine's decoding time (all tasks of one `evaluate` call decode together); it is 0 if rollouts came
    from a record, because then no speed is known. `name` is the user's name for its RL model (`DAPO`); it is not
    stored.
    """

    called: ClassVar[str] = "result"
    __eq__, __hash__ = object.__eq__, object.__hash__  # pyright: ignore[reportAssignmentType]

    task: Annotated[Name, Field(pattern=r"^[^/\\\x00-\x1f]{1,200}$")]  # part of file names
    decoding: Decoding
    sampling: Sampling
    problem_ids: Annotated[tuple[Text, ...], Field(min_length=1), AfterValidator(distinct)]
    n_tokens: Counts
    n_replaced: Counts
    n_changed: Counts
    truncated: Flags
    seconds: Annotated[Number, Field(ge=0, le=MOST)] = 0.0
    provenance: Annotated[Plain, BeforeValidator(checked_provenance)] = Field(default_factory=dict)
    families: tuple[Text, ...] | None = None
    name: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        shape = len(self.problem_ids), self.sampling.samples
        for name, table in self.tables().items():
            if table.shape != shape:
                raise ValueError(
                    f"{name} of {self.task} has shape {table.shape}, not {shape} (problems, samples), so it is "
                    "incomplete and cannot be aggregated"
                )
        if self.families is not None and len(self.families) != shape[0]:
            raise UserError(
                f"families of {self.task} has {len(self.families)} labels",
                argument="families",
                accepted=f"{shape[0]} labels, one per problem",
            )
        for name in ("n_replaced", "n_changed"):
            for row, column in np.argwhere(getattr(self, name) > self.n_tokens)[:1]:
                raise ValueError(
                    f"{name} of {self.task}, {self.problem_ids[row]} sample {column}, is "
                    f"{getattr(self, name)[row, column]} of {self.n_tokens[row, column]} tokens"
                )
        return self

    def tables(self) -> dict[str, np.ndarray]:
        """Return the tables that it has, by name."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    @property
    def scores_hashed(self) -> dict[str, float]:
        """Return the scores that are not computed from its tables, and so are part of its hash."""
        return {}

    def replace(self, **changes: Any) -> Self:
        """Return a checked copy with some fields changed."""
        return parse(type(self), {**{name: getattr(self, name) for name in type(self).model_fields}, **changes})

    # What it describes

    @property
    def samples(self) -> int:
        """Return the number of samples per problem."""
        return self.sampling.samples

    @property
    def partial(self) -> str | None:
        """Return the part that it is (`first 5 of 32 samples`); None for a whole result. Print it next to every
        number."""
        return self.provenance.get("partial")

    @property
    def label(self) -> str:
        """Return the decoding's label, marked if the result is partial."""
        return self.decoding.label() + (f" ({self.partial})" if self.partial else "")

    @property
    def limited(self) -> str | None:
        """Return the part of the problems that it has (`16 of 83 problems`); None if they are all, or if it is
        unknown."""
        n_problems, whole = len(self.problem_ids), self.provenance.get("benchmark_size") or benchmark_size(self.task)
        return f"{n_problems} of {whole} problems" if whole is not None and n_problems != whole else None

    @property
    def benchmark(self) -> str:
        """Return the task, marked if only some problems were used or they have families. Print it next to every
        number."""
        marks = [self.limited, f"over {stats.count_families(self.families)} families" if self.families else None]
        note = ", ".join(filter(None, marks))
        return self.task + (f" ({note})" if note else "")

    @property
    def engine(self) -> dict[str, Any]:
        """Return the settings of the engine that decoded it, if they are known."""
        return self.provenance.get("engine") or {}

    @property
    def models(self) -> dict[str, str]:
        """Return the place of each model that the result names, by role."""
        return places_of(self.engine.get("pair"))

    @property
    def pair(self) -> tuple[str, str]:
        """Return the checkpoints, base and RL, as the result names them; `?` if it does not.

        With a third model both names contain it, `RL (on THIRD)`, to distinguish them from the pair's own. A stroke in
        its name does not separate folders. Base's name contains its place.
        """
        models = self.models
        base, rl = (models.pop(role, "?") for role in ("base", "rl"))
        for place in models.values():
            base = f"{base} (on {place.replace('/', STROKE)})"
            rl = f"{rl} (on {model_name(place).replace('/', STROKE)})"
        return base, rl

    @property
    def weights(self) -> dict[str, str]:
        """Return what identifies the models, by role; empty if unknown."""
        return self.provenance.get("weights") or {}

    @property
    def read_weights(self) -> dict[str, str]:
        """Return the `weights` that its tokens depend on."""
        unread = {"base": not self.decoding.reads_base, "rl": self.decoding.mode == "base"}
        return {role: name for role, name in self.weights.items() if not unread.get(role)}

    # Its metrics

    @property
    def replacement_ratio(self) -> float:
        """Return flagged tokens divided by generated tokens, summed over all responses."""
        return float(self.n_replaced.sum() / max(1, self.n_tokens.sum()))

    @property
    def changed_ratio(self) -> float:
        """Return changed tokens divided by generated tokens, summed over all responses."""
        return float(self.n_changed.sum() / max(1, self.n_tokens.sum()))

    def responses(self, i: int) -> stats.Responses:
        """Return the responses to the i-th problem."""
        return stats.Responses(**{name: getattr(self, name)[i].tolist() for name in (*COUNTS, "truncated")})

    def metrics(self) -> dict[str, float]:
        """Return all of our metrics by their names in lm-eval's tables."""
        return dict(self._metrics)

    @cached_property
    def _metrics(self) -> dict[str, float]:
        return stats.benchmark_metrics([self.responses(i) for i in range(len(self.problem_ids))])

    # Its file

    @cached_property
    def config_hash(self) -> str:
        """Return what identifies it: 16 digits of a digest of everything that can change its numbers.

        From `provenance` these are `settings` (the hash of the record's config: weights, engine, versions, prompt),
        `data`, `graded_with` (the grader and its versions) and `partial`. lm-eval's scores are included as well,
        because we do not define its metrics (`scores_hashed`).
        """
        hashed = {
            "task": self.task,
            "decoding": self.decoding.model_dump(mode="json"),
            "sampling": self.sampling.model_dump(mode="json"),
            "problems": list(self.problem_ids),
            "scores": self.scores_hashed,
            **({"families": list(self.families)} if self.families else {}),
            **{name: self.provenance[name] for name in REQUEST_FACTS if self.provenance.get(name) is not None},
        }
        return digest_of(hashed)

    def to_json(self) -> str:
        """Return everything as JSON, including the metrics, which `read_result` computes again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "name"}
        fields |= {name: getattr(self, name).model_dump(mode="json") for name in ("decoding", "sampling")}
        fields["metrics"] = {name: None if value != value else value for name, value in self.metrics().items()}
        present = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(present, ensure_ascii=False, default=lambda table: (table + 0).tolist())  # 0 and 1 for flags

    @property
    def file_name(self) -> str:
        """Return the name of its file, by what identifies it, so that another setting never overwrites it."""
        return f"{folder_name('task', self.task)}-{self.decoding.mode}-{self.config_hash}.json"

    def write(self, folder: Path) -> Path:
        """Write it into a file of `folder`. An existing file has the same numbers, and may also have its decoding
        time."""
        path = folder / self.file_name
        try:
            read_any_result(path)
        except DamagedError:
            write_file(path, self.to_json())
        return path

    @classmethod
    def from_json(cls, text: str | bytes, where: object = "result") -> Self:
        """Read the result that `to_json` wrote. Messages begin with `where`, its file."""
        return cls.from_plain(parse_json(text, where), where)


class EvalResult(TaskResult, frozen=True):
    """Store the result on one of our benchmarks: `correct` is the verdict on each response.

    `votes` numbers the different answers of a problem, for Maj@n: equal boxed text votes together, -1 is no answer.
    `no_box` marks responses without a closed box, and `ungraded` those whose grading timed out or failed (they count as
    wrong, and the results mention them).
    """

    correct: Flags
    no_box: Flags | None = None
    ungraded: Flags | None = None
    votes: Votes | None = None

    def of_pair(self, base: str, rl: str) -> "EvalResult":
        """Return a result of base as that of another pair with this base, because its numbers do not depend on RL."""
        weights = {"weights": self.read_weights} if self.weights else {}
        engine = {**self.engine, "pair": {"base": base, "rl": rl}}
        return self.replace(provenance={**self.provenance, **weights, "engine": engine})

    @property
    def avg(self) -> float:
        """Return Avg@n, n = `samples`, as a fraction."""
        return float(self.correct.mean())

    @property
    def standard_error(self) -> float:
        """Return the standard error of `avg` over problems, or over their families."""
        return stats.standard_error(self.correct, self.families)

    @property
    def sampling_error(self) -> float:
        """Return the standard error of `avg` from sampling only, for these same problems."""
        return stats.sampling_error(self.correct)

    def pass_at(self, k: int) -> float:
        """Return Pass@k as a fraction, for any k up to `samples`."""
        return stats.pass_at_k(self.correct, k)

    @property
    def maj(self) -> float | None:
        """Return Maj@n: the share of problems whose most frequent answer is right; None if the answers are not
        known."""
        return self.metrics().get(f"maj@{self.samples}")

    def metrics(self) -> dict[str, float]:
        """Return all of our metrics by their names in lm-eval's tables, Avg@n with its two error bars."""
        n, errors = self.samples, (self.standard_error, self.sampling_error)
        scores = {f"avg@{n}": self.avg, f"avg@{n}_se": errors[0], f"avg@{n}_se_sampling": errors[1]}
        return {**scores, **self._metrics}

    def responses(self, i: int) -> stats.Responses:
        """Return the responses to the i-th problem."""
        columns = {name: table[i].tolist() for name, table in self.tables().items()}
        if "votes" in columns:
            columns["votes"] = [None if vote < 0 else vote for vote in columns["votes"]]
        return stats.Responses(**columns)

    def only(self, problems: Sequence[str]) -> "EvalResult":
        """Return the result on some of its problems, in their order."""
        at = {key: i for i, key in enumerate(self.problem_ids)}
        rows = [at[key] for key in problems]
        cut = {name: table[rows] for name, table in self.tables().items()}
        families = tuple(self.families[row] for row in rows) if self.families else None
        return self.replace(problem_ids=tuple(problems), families=families, seconds=0.0, **cut)


class LmEvalResult(TaskResult, frozen=True):
    """Store the result on an lm-eval task, with the scores from lm-eval's own `evaluate`, in its units.

    A metric is named `METRIC/FILTER`, or `METRIC` alone. `METRIC_stderr` is next to it if lm-eval computed it (NaN if
    it could not). For a metric in `lower_is_better`, less is better. Such a result is shown and logged, but never
    compared.
    """

    scores: dict[str, Annotated[Number, AllowInfNan()]]
    lower_is_better: tuple[Text, ...] = ()

    @property
    def metric_names(self) -> list[str]:
        """Return the names of its metrics, without their errors."""
        return [name for name in self.scores if "_stderr" not in name]

    @property
    def scores_hashed(self) -> dict[str, float]:
        """Return lm-eval's scores, because we do not define its metrics."""
        return {name: self.scores[name] for name in self.metric_names}


class NoResultError(UserError):
    """Report that no result for comparison is available: it is unfinished, without right answers, or in lm-eval's own
    units."""


def lm_eval_refusal(task: str, purpose: str) -> NoResultError:
    """Return the error for a task of lm-eval that cannot be used for a `purpose`, such as `compared`."""
    return NoResultError(
        f"is scored by lm-eval in its own units, so it is not {purpose}",
        argument="task",
        value=task,
        accepted="benchmarks with right answers, ours or a JSONL of your own",
    )


def refuse_lm_eval_tasks(benchmarks: Mapping[str, Benchmark], purpose: str) -> None:
    """Reject lm-eval tasks, whose scores have their own units, for a purpose: `compared`, `swept`, ….

    Raises:
        UserError: There is one; the error names the task and what is accepted.
    """
    for task, benchmark in benchmarks.items():
        if isinstance(benchmark, LmEvalBenchmark):
            raise lm_eval_refusal(task, purpose)


def read_any_result(file: Path) -> EvalResult | LmEvalResult:
    """Read a result file of this evaluator or of lm-eval.

    Raises:
        DamagedError: It is not a result; the error names the file, the key, its value and what is accepted.
    """
    data = read_json(file)
    kind = LmEvalResult if isinstance(data, dict) and "scores" in data else EvalResult
    return kind.from_plain(data, file)


def read_result(file: Path) -> EvalResult:
    """Read a result file that can be compared.

    Raises:
        DamagedError: It is not a result.
        NoResultError: It is that of an lm-eval task.
    """
    result = read_any_result(file)
    if isinstance(result, LmEvalResult):
        raise NoResultError(f"{file}: {lm_eval_refusal(result.task, 'compared')}")
    return result


def result_from(
    record: Record,
    task: str,
    names: Sequence[str],
    samples: int,
    *,
    verdicts: Mapping[Key, Verdict] | None = None,
    scores: Mapping[str, Any] | None = None,
    **provenance: Any,
) -> EvalResult | LmEvalResult:
    """Make the result of some responses of a record. Results of both kinds are only made here.

    `names` are problems as the record names them, `TASK/ID`; the first `samples` of each are used. `provenance` has
    further fields of the result. Pass either `verdicts` on the responses or the `scores` from lm-eval.
    """

    def table(of: Callable[[Key], Any]) -> list[list[Any]]:
        return [[of((name, sample)) for sample in range(samples)] for name in names]

    config, rows, families = record.config, record.rows, record.metadata.families
    assert config is not None
    ids = [name.partition("/")[2] for name in names]
    fields: dict[str, Any] = {
        "task": task,
        "decoding": config.decoding,
        "sampling": parse(Sampling, {"samples": samples, **config.sampling.model_dump()}),
        "problem_ids": tuple(ids),
        "families": tuple(families[key] for key in ids) if families else None,
        "truncated": table(lambda key: rows[key].finish_reason == "length"),
        **{name: table(lambda key, name=name: getattr(rows[key], name)) for name in COUNTS},
        **provenance,
    }
    if verdicts is None:
        return parse(LmEvalResult, {**fields, **(scores or {})})
    answers = table(lambda key: verdicts[key].answer)
    graded = {
        "correct": table(lambda key: verdicts[key].correct),
        "no_box": [[answer is None for answer in row] for row in answers],
        "ungraded": table(lambda key: not verdicts[key].graded),
        "votes": [stats.numbered(row) for row in answers],
    }
    return parse(EvalResult, {**fields, **graded})

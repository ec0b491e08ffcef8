"""One finished evaluation: a decoding on a benchmark, sample by sample, and the numbers that follow from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, Field, Strict

from harness import stats
from harness.digest import digest_of
from harness.errors import DamagedError, UserError
from harness.evals.data import benchmark_size
from harness.evals.metrics import responses_of
from harness.files import folder_name, write_file
from harness.spec import Decoding, Sampling
from harness.spec.pair import model_name, places_of
from harness.spec.stored import MOST, Count, Flag, Name, Number, Plain, Stored, Text, check_stored, parse_json

# What must be equal before two results are subtracted or put into one column; another decoding, seed, number of samples
# or pair of models is what they are compared for.
ALIKE = ("grader", "data", "problems", "temperature", "top_p", "max_tokens")
UNTOLD = ("data", "temperature", "top_p", "max_tokens")  # of these, what a source need not say
# What of a result's provenance can change its numbers: the settings of its tokens, the data, and who graded.
ASKED = ("settings", "data", "graded_with", "partial")
ARRAYS = ("correct", "n_tokens", "n_replaced", "n_changed", "truncated", "no_box", "ungraded")
_BOOLS = ("correct", "truncated", "no_box", "ungraded")

_Flags = tuple[tuple[Flag, ...], ...]  # (problems, samples), as all tables
_Counts = tuple[tuple[Count, ...], ...]
_Votes = tuple[tuple[Annotated[int, Strict(), Field(ge=-1, le=MOST)], ...], ...]


def _distinct(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise ValueError(f"problem_ids names {next(key for key in ids if ids.count(key) > 1)!r} twice")
    return ids


class TrainedFile(Stored, frozen=True):
    """The training that a result is of."""

    name: Text
    seed: Count


class ProvenanceFile(Stored, frozen=True):
    """Hold what a result says of where it comes from, as far as that is read again; older results say less."""

    settings: Text | None = None
    weights: dict[str, Text] | None = None
    shared: Text | None = None
    data: Text | None = None
    benchmark_size: Count | None = None
    examples: Count | None = None
    grader: Text | None = None
    graded_with: dict[str, Text] | None = None
    partial: Text | None = None
    part: Text | None = None
    records: Text | None = None
    record: Text | None = None
    engine: Plain | None = None
    versions: Plain | None = None
    argv: tuple[Text, ...] | None = None
    pruned: dict[Text, Count] | None = None
    training: TrainedFile | None = None
    lacks: tuple[Text, ...] | None = None


class ResultFile(Stored, frozen=True):
    """Hold what the files of all results have."""

    called: ClassVar[str] = "result"

    task: Annotated[Name, Field(pattern=r"^[^/\\\x00-\x1f]{1,200}$")]  # it names files
    decoding: Decoding
    sampling: Sampling
    problem_ids: Annotated[tuple[Text, ...], AfterValidator(_distinct)]
    n_tokens: _Counts
    n_replaced: _Counts
    n_changed: _Counts
    truncated: _Flags
    seconds: Annotated[Number, Field(ge=0, le=MOST)] = 0.0
    provenance: ProvenanceFile = Field(default_factory=ProvenanceFile)


class BenchmarkResultFile(ResultFile, frozen=True):
    """A result of a benchmark of ours, as `EvalResult.to_json` writes it."""

    correct: _Flags
    no_box: _Flags
    ungraded: _Flags
    votes: _Votes | None = None
    n_forwards: _Counts | None = None


STROKE = "\u2215"  # in a name that is no path, where a path would have /


@dataclass(frozen=True, eq=False)
class EvalResult:
    """All arrays have shape (problems, samples); row i belongs to `problem_ids[i]`, column j to sample j.

    `votes` numbers the different answers of a problem, for Maj@n: equal boxed text votes together, -1 is no answer.
    `n_forwards` counts the tokens that one model was run for (`mode=power`); None is one for each token and model.
    `no_box` marks responses without a closed box, `truncated` those that ran into the token limit, `ungraded` those
    whose grading timed out or failed (they count as wrong, and say so). `seconds` is this result's share,
    by tokens, of what the engine spent on its decoding (all tasks of one `evaluate` call decode together); 0 where
    rollouts came from a record, since then no speed can be told. `name` is what the reader calls its RL model
    (`DAPO`), and is not written.
    """

    task: str
    decoding: Decoding
    sampling: Sampling
    problem_ids: tuple[str, ...]
    correct: np.ndarray
    n_tokens: np.ndarray
    n_replaced: np.ndarray
    n_changed: np.ndarray
    truncated: np.ndarray
    no_box: np.ndarray
    ungraded: np.ndarray
    votes: np.ndarray | None = None
    n_forwards: np.ndarray | None = None
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        for name in ARRAYS:
            object.__setattr__(self, name, self._table(name, getattr(self, name), name in _BOOLS))
        for name in ("votes", "n_forwards"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._table(name, getattr(self, name), False))
        for name in ("n_replaced", "n_changed"):
            for row, column in np.argwhere(getattr(self, name) > self.n_tokens)[:1]:
                raise UserError(
                    f"{name} of {self.task}, {self.problem_ids[row]} sample {column}, is "
                    f"{getattr(self, name)[row, column]} of {self.n_tokens[row, column]} tokens"
                )

    def _table(self, name: str, table: Any, flags: bool) -> np.ndarray:
        shape = (len(self.problem_ids), self.sampling.samples)
        try:
            value = np.asarray(table, dtype=bool if flags else np.int64)
        except ValueError:
            raise UserError(f"{name} of {self.task} has rows of different lengths, not of {shape[1]} samples") from None
        if value.shape != shape or not shape[0]:
            raise UserError(
                f"{name} of {self.task} has shape {value.shape}, not {shape} (problems, samples): refusing to "
                "aggregate a part as if it were the whole"
            )
        value.setflags(write=False)
        return value

    @classmethod
    def from_samples(
        cls,
        task: str,
        decoding: Decoding,
        sampling: Sampling,
        samples: Mapping[str, Sequence[Mapping[str, Any]]],
        *,
        seconds: float = 0.0,
        provenance: dict[str, Any] | None = None,
    ) -> "EvalResult":
        """Make it from the samples of each problem, by its id: objects as in lm-eval's `doc["samples"]`.

        Raises:
            UserError: a problem has fewer samples than were asked for.
        """
        for key, row in samples.items():
            if len(row) != sampling.samples:
                raise UserError(f"refusing to aggregate {task}: {key} has {len(row)} of {sampling.samples} samples")

        rows = [responses_of(row) for row in samples.values()]
        return cls(
            task=task,
            decoding=decoding,
            sampling=sampling,
            problem_ids=tuple(samples),
            votes=np.array([stats.numbered(row.votes or ()) for row in rows]),
            n_forwards=None if rows[0].n_forwards is None else np.array([row.n_forwards for row in rows]),
            seconds=seconds,
            provenance=provenance or {},
            name="",
            **{each: np.array([getattr(row, each) for row in rows]) for each in ARRAYS},
        )

    @property
    def samples(self) -> int:
        """Samples a problem."""
        return self.sampling.samples

    @property
    def avg(self) -> float:
        """Avg@n, n = `samples`, as a fraction."""
        return stats.avg_at_k(self.correct)

    @property
    def standard_error(self) -> float:
        """Of `avg`, over problems."""
        return stats.standard_error(self.correct)

    @property
    def sampling_error(self) -> float:
        """Of `avg`, from sampling alone, the benchmark held fixed."""
        return stats.sampling_error(self.correct)

    def pass_at(self, k: int) -> float:
        """Return Pass@k as a fraction, for any k up to `samples`."""
        return stats.pass_at_k(self.correct, k)

    @property
    def maj(self) -> float | None:
        """Maj@n: the share of problems whose commonest answer is right; None where the answers are not known."""
        if self.votes is None or "votes" in self.lacks:
            return None
        rows = [[None if vote < 0 else int(vote) for vote in row] for row in self.votes]
        return stats.maj_at_k(rows, self.correct.tolist())

    @property
    def partial(self) -> str | None:
        """Of what this is a part (`first 5 of 32 samples`); None for a whole result. Print it beside every number."""
        return self.provenance.get("partial")

    @property
    def lacks(self) -> tuple[str, ...]:
        """Names what its source did not say (`seed`, `n_tokens`, ...); empty for what was decoded here."""
        return tuple(self.provenance.get("lacks") or ())

    @property
    def label(self) -> str:
        """The decoding's label, marked where the result is partial."""
        return self.decoding.label() + (f" ({self.partial})" if self.partial else "")

    @property
    def limited(self) -> str | None:
        """Of what its problems are a part (`16 of 83 problems`); None where all were asked, or nobody can tell."""
        asked, whole = len(self.problem_ids), self.provenance.get("benchmark_size") or benchmark_size(self.task)
        return f"{asked} of {whole} problems" if whole is not None and asked != whole else None

    @property
    def benchmark(self) -> str:
        """The benchmark's name, marked where only some of its problems were asked. Print it beside every number."""
        return self.task + (f" ({self.limited})" if self.limited else "")

    @property
    def subject(self) -> str:
        """Return what its scores are of, by which comparisons go: the benchmark's name alone."""
        return self.task

    def by_metric(self) -> list["EvalResult"]:
        """Return what is compared of it: the result itself, which has one metric."""
        return [self]

    def of_metric(self, name: str) -> "EvalResult":
        """Return the result itself: its scores are Avg@n, whatever is asked of lm-eval's tasks."""
        return self

    @property
    def pair(self) -> tuple[str, str]:
        """The checkpoints, base and RL, as the result names them; `?` where it does not.

        With a third model both are named with it, `RL (on THIRD)`, so that nobody takes them for the pair's own; a
        stroke in its name is not one of a path. Base's says where it is.
        """
        models = self.models
        base, rl = (models.pop(role, "?") for role in ("base", "rl"))
        for place in models.values():
            base = f"{base} (on {place.replace('/', STROKE)})"
            rl = f"{rl} (on {model_name(place).replace('/', STROKE)})"
        return base, rl

    @property
    def models(self) -> dict[str, str]:
        """The place of each model that the result names, by role."""
        engine = self.provenance.get("engine")
        return places_of(engine.get("pair") if isinstance(engine, dict) else None)

    @property
    def weights(self) -> dict[str, str]:
        """What identifies the models, by role; empty where that is not told."""
        return self.provenance.get("weights") or {}

    @property
    def read_weights(self) -> dict[str, str]:
        """Of `weights` those that its tokens depend on."""
        unread = {"base": not self.decoding.reads_base, "rl": self.decoding.mode == "base"}
        return {role: name for role, name in self.weights.items() if not unread.get(role)}

    def of_pair(self, base: str, rl: str) -> "EvalResult":
        """Return a result of base as that of another pair with this base: its numbers do not depend on RL."""
        engine = {**self.provenance.get("engine", {}), "pair": {"base": base, "rl": rl}}
        told = {"weights": self.read_weights} if self.weights else {}
        return replace(self, provenance={**self.provenance, **told, "engine": engine})

    def alike(self) -> dict[str, Any]:
        """Return what must be equal in results that are compared (`ALIKE`), as values that can be hashed.

        The grader is its name with the versions that it graded with; None is what the result does not say. `top_p` is
        however policies were truncated.
        """
        p = self.provenance
        return {
            "grader": (p.get("grader"), json.dumps(p.get("graded_with"), sort_keys=True)),
            "data": p.get("data"),
            "problems": self.problem_ids,
            "temperature": self.sampling.temperature,
            "max_tokens": self.sampling.max_tokens,
            "top_p": self.sampling.truncation.words,
            **{name: None for name in ("temperature", "top_p", "max_tokens") if name in self.lacks},
        }

    def unlike(self, other: "EvalResult") -> list[str]:
        """Return the names of `ALIKE` in which two results differ.

        Data and settings of the sampling that either does not tell are not among them: imported records have no digest
        of their data, and may not say how they were drawn. Their problems are compared by id.
        """
        mine, theirs = self.alike(), other.alike()
        differing = [name for name in ALIKE if mine[name] != theirs[name]]
        return [name for name in differing if name not in UNTOLD or None not in (mine[name], theirs[name])]

    @property
    def replacement_ratio(self) -> float:
        """Positions where the criterion held over generated tokens, summed over all responses."""
        return float(self.n_replaced.sum() / max(1, self.n_tokens.sum()))

    @property
    def changed_ratio(self) -> float:
        """Positions where another token was drawn than the proposed one over generated tokens."""
        return float(self.n_changed.sum() / max(1, self.n_tokens.sum()))

    @property
    def config_hash(self) -> str:
        """Names what was asked, `config_hash_of` of it: results of equal hashes hold equal numbers."""
        return config_hash_of(self.task, self.decoding, self.sampling, self.problem_ids, self.provenance)

    def metrics(self) -> dict[str, float]:
        """Return every metric by the name it has in lm-eval's tables, with the two error bars of Avg@n beside it."""
        n = self.samples
        errors = {f"avg@{n}_se": self.standard_error, f"avg@{n}_se_sampling": self.sampling_error}
        return {f"avg@{n}": self.avg, **errors, **stats.benchmark_metrics([self._responses(i) for i in self._rows])}

    def metrics_of_problem(self, i: int) -> dict[str, float | tuple[float, float]]:
        """Return the metrics of the i-th problem, as lm-eval's samples files have them: ratios as pairs."""
        return stats.problem_metrics(self._responses(i))

    @property
    def _rows(self) -> range:
        return range(len(self.problem_ids))

    def _responses(self, i: int) -> stats.Responses:
        """Return the responses to the i-th problem."""
        votes = (
            None
            if self.votes is None or "votes" in self.lacks
            else [None if vote < 0 else int(vote) for vote in self.votes[i]]
        )
        counted = {"n_tokens", "n_replaced"}.isdisjoint(self.lacks)
        told = [name for name in ARRAYS if name not in self.lacks and (counted or name not in ARRAYS[1:4])]
        return stats.Responses(
            votes=votes,
            **{name: getattr(self, name)[i].tolist() for name in told},
        )

    def minus(self, other: "EvalResult") -> stats.PairedDifference:
        """Subtract the Avg@n of `other`, paired by problem.

        Raises:
            UserError: the two are of different benchmarks, or not alike (`ALIKE`).
        """
        if differing := self.unlike(other) if self.task == other.task else ["task"]:
            what = ", ".join(differing)
            raise UserError(
                f"{self.label} on {self.benchmark} and {other.label} on {other.benchmark} differ in {what}; a paired "
                "difference needs the same problems, drawn and graded alike"
            )
        return stats.paired_difference(self.correct, other.correct)

    def only(self, problems: Sequence[str]) -> "EvalResult":
        """Return the part that some of its problems make, in their order.

        Raises:
            KeyError: it has no such problem.
        """
        at = {key: i for i, key in enumerate(self.problem_ids)}
        rows = [at[key] for key in problems]
        tables = {name: getattr(self, name)[rows] for name in ARRAYS}
        votes = None if self.votes is None else self.votes[rows]
        forwards = None if self.n_forwards is None else self.n_forwards[rows]
        return replace(self, problem_ids=tuple(problems), votes=votes, n_forwards=forwards, seconds=0.0, **tables)

    @property
    def context(self) -> int | None:
        """Tokens that a prompt and its response may have had together; None where that is not told."""
        engine = self.provenance.get("engine")
        engine = engine if isinstance(engine, dict) else {}
        alone = None if self.decoding.reads_base else engine.get("max_model_len_rl")
        length = alone or engine.get("max_model_len")
        return length if isinstance(length, int) else None

    @property
    def cut_by_context(self) -> int:
        """Responses that ended where the context did, before `max_tokens`; 0 where lengths are not told."""
        if not {"n_tokens", "truncated", "max_tokens"}.isdisjoint(self.lacks):
            return 0
        return int((self.truncated & (self.n_tokens < self.sampling.max_tokens)).sum())

    def to_json(self) -> str:
        """Write everything as JSON; `from_json` reads it back."""
        return json.dumps(
            {
                "task": self.task,
                "decoding": self.decoding.model_dump(mode="json"),
                "sampling": self.sampling.model_dump(mode="json"),
                "problem_ids": list(self.problem_ids),
                **{name: getattr(self, name).astype(int).tolist() for name in ARRAYS},
                **({} if self.votes is None else {"votes": self.votes.tolist()}),
                **({} if self.n_forwards is None else {"n_forwards": self.n_forwards.tolist()}),
                "seconds": self.seconds,
                "provenance": self.provenance,
            },
            ensure_ascii=False,
        )

    @property
    def file_name(self) -> str:
        """Return the name of its file: what was asked.

        Raises:
            UserError: the task's name is none that a file can have.
        """
        return f"{folder_name('task', self.task)}-{self.decoding.mode}-{self.config_hash}.json"

    def write(self, folder: Path) -> Path:
        """Write `to_json` into a file of `folder` named after what was asked: another setting never overwrites it.

        A file that is there and can be read has the same numbers, and is left: it may also know how long they took.
        """
        path = folder / self.file_name
        try:
            type(self).from_json(path.read_text())
        except (OSError, ValueError):
            write_file(path, self.to_json())
        return path

    @classmethod
    def from_json(cls, text: str | bytes, where: object = "result") -> "EvalResult":
        """Read the result that `to_json` wrote; `where`, its file, begins the sentence of a refusal.

        Raises:
            DamagedError: it is none; names the key, its value and what would be accepted.
        """
        return cls.of_plain(parse_json(text, where), where)

    @classmethod
    def of_plain(cls, data: Any, where: object) -> "EvalResult":
        """Make it from a result file's plain values; raises what `from_json` does."""
        file = check_stored(data, BenchmarkResultFile, where)
        said = {name: getattr(file, name) for name in BenchmarkResultFile.model_fields}
        try:
            return cls(**{**said, "provenance": data.get("provenance", {})})
        except UserError as error:
            raise DamagedError(f"{where}: {error}") from None


def config_hash_of(
    task: str, decoding: Decoding, sampling: Sampling, problem_ids: Sequence[str], provenance: Mapping[str, Any]
) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of everything that can change a result's numbers.

    Of `provenance` these are `settings` (the hash of the record's config: weights, engine, versions, prompt), `data`,
    `graded_with` (the grader and its versions) and `partial`.
    """
    asked = {
        "task": task,
        "decoding": decoding.model_dump(mode="json"),
        "sampling": sampling.model_dump(mode="json"),
        "problems": list(problem_ids),
        **{name: provenance[name] for name in ASKED if provenance.get(name) is not None},
    }
    return digest_of(asked)

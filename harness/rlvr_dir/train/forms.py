"""The forms of the files that a training keeps and reads again: scores, lines of the log, facts, summary."""

from typing import Annotated, Any

from pydantic import AllowInfNan, Field, model_validator

from rlvr_dir.config.stored import Count, Number, Plain, Stored, Text

Share = Annotated[Number, Field(ge=0.0, le=1.0)]
Logged = Annotated[Number, AllowInfNan()] | None  # as the trainer logged it, which may be no number


class LoggedScore(Stored, frozen=True):
    """A validation on one benchmark as the log has it; `right` counts the right samples of each problem.

    `families` are those of the problems, where the benchmark names them.
    """

    samples: Annotated[Count, Field(ge=1)]
    problems: Count
    limited: Text | None = None
    avg: Share
    error: Logged = None
    tokens: Annotated[Number, Field(ge=0.0)] | None = None
    truncated: Logged = None
    pass_k: Share = Field(alias="pass")
    right: dict[str, Count] | None = None
    families: dict[str, Text] | None = None

    @model_validator(mode="after")
    def _check_right(self) -> "LoggedScore":
        if self.families and set(self.families) != set(self.right or ()):
            raise ValueError("families names other problems than right; accepted: one for each of them")
        if too_many := [key for key, count in (self.right or {}).items() if count > self.samples]:
            raise ValueError(f"right has more than {self.samples} samples of {too_many[0]!r}")
        return self


class ScoreFile(LoggedScore, frozen=True):
    """The validation of one checkpoint on one benchmark, whose responses our engine made."""

    @model_validator(mode="after")
    def _check_tokens(self) -> "ScoreFile":
        if self.tokens is None:
            raise ValueError("tokens is missing")
        return self


Scores = dict[str, ScoreFile]  # by benchmark


class GroupsFile(Stored, frozen=True):
    """How many groups of a step were learned from."""

    kept: Count
    dropped: Count


class LogLine(Stored, frozen=True):
    """A line of `log.jsonl`: a step, or a validation."""

    step: Count
    validation: dict[str, LoggedScore] | None = None
    accuracy: Logged = None
    length: Logged = None
    entropy: Logged = None
    clip_fraction: Logged = None
    weight: Logged = None
    seconds: Logged = None
    reweighting_seconds: Logged = None
    groups: GroupsFile | None = None
    gradient_share: tuple[Number, ...] = ()
    token_share: tuple[Number, ...] = ()
    verl: dict[str, Annotated[Number, AllowInfNan()]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_step(cls, data: Any) -> Any:
        needed = ("accuracy", "length", "entropy", "clip_fraction", "weight", "groups", "seconds")
        if isinstance(data, dict) and "validation" not in data and (missing := [n for n in needed if n not in data]):
            raise ValueError(f"{missing[0]} is missing")
        return data


class SeedFile(Stored, frozen=True):
    """`done.json`: what is known of a finished seed."""

    scores: Scores
    accuracy: Annotated[tuple[Logged, ...], Field(min_length=1)]
    length: Annotated[tuple[Logged, ...], Field(min_length=1)]
    seconds: Annotated[Number, Field(ge=0.0)]
    reweighting_seconds: Annotated[Number, Field(ge=0.0)] | None = None
    machine: Text | None = None


class Input(Stored, frozen=True):
    """Something a training reads, which may change between two runs of it: its file, and what identifies its content.

    `judges`: scores depend on it, so that trainings are compared on equal ones only.
    """

    file: Text
    digest: Text
    judges: Annotated[bool, Field(strict=True)]


class CheckpointMark(Stored, frozen=True):
    """The mark of a whole checkpoint."""

    step: Count
    state: list[Any]


class ChosenStep(Stored, frozen=True):
    """Which step's model the trained one is, and what was asked."""

    checkpoint: Text | int | None = None
    step: Count


class SeedSummary(Stored, frozen=True):
    """A finished seed: its scores, its first and last step, means over its steps, and sums."""

    scores: Scores
    accuracy: tuple[Logged, Logged]
    length: tuple[Logged, Logged]
    entropy: tuple[Logged, Logged]
    clip_fraction: Logged
    weight: Logged
    gradient_share: Logged = Field(alias="gradient_share_below_0.3")
    token_share: Logged = Field(alias="token_share_below_0.3")
    kept: Count
    dropped: Count
    seconds: Number
    reweighting_share: Logged


class MetricSummary(Stored, frozen=True):
    """A metric of one benchmark: the base's, the mean over seeds, and what `stats.Comparison.facts` says of the gain,
    and of the difference to another training where there is one."""

    base: Number
    mean: Number
    low: Number | None
    high: Number | None
    gain: Plain
    against: Plain | None = None


class OtherTraining(Stored, frozen=True):
    """Which training another was compared with."""

    folder: Text
    label: Text


class SummaryFile(Stored, frozen=True):
    """`summary.json`: a training over its finished seeds."""

    name: Text
    label: Text
    training: Plain  # all that was asked
    base: Scores
    seeds: dict[str, SeedSummary]
    against: OtherTraining | None = None
    benchmarks: dict[str, dict[str, MetricSummary]] = Field(default_factory=dict)

    @property
    def untaught(self) -> list[str]:
        """The seeds of which no step kept a group of responses, so that the model is the base."""
        return [seed for seed, facts in self.seeds.items() if facts.dropped and not facts.kept]

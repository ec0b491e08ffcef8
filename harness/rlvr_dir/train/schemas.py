"""Define the files that a training stores and reads again: scores, lines of the log, outcomes, and the summary."""

from typing import Annotated, Any

from pydantic import AllowInfNan, Field, model_validator

from rlvr_dir.config.stored import Count, Number, Plain, Stored, Text

Share = Annotated[Number, Field(ge=0.0, le=1.0)]
Logged = Annotated[Number, AllowInfNan()] | None  # # as the trainer logged it; it may be NaN


class LoggedScore(Stored, frozen=True):
    """Define a validation on one benchmark, as the log has it. `right` counts the right samples of each problem.

    `families` are the families of the problems, if the benchmark has some.
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
            raise ValueError("families and right name different problems")
        if too_many := [key for key, count in (self.right or {}).items() if count > self.samples]:
            raise ValueError(f"right has more than {self.samples} samples of {too_many[0]!r}")
        return self


class ScoreFile(LoggedScore, frozen=True):
    """Define the validation of one checkpoint on one benchmark, whose responses our engine generated."""

    @model_validator(mode="after")
    def _check_tokens(self) -> "ScoreFile":
        if self.tokens is None:
            raise ValueError("tokens is missing")
        return self


Scores = dict[str, ScoreFile]  # by benchmark


class GroupsFile(Stored, frozen=True):
    """Count the groups of a step from which it learned."""

    kept: Count
    dropped: Count


class LogLine(Stored, frozen=True):
    """Define a line of `log.jsonl`: a step, or a validation."""

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
    """Define `done.json`: the outcome of a finished seed."""

    scores: Scores
    accuracy: Annotated[tuple[Logged, ...], Field(min_length=1)]
    length: Annotated[tuple[Logged, ...], Field(min_length=1)]
    seconds: Annotated[Number, Field(ge=0.0)]
    reweighting_seconds: Annotated[Number, Field(ge=0.0)] | None = None
    machine: Text | None = None


class Input(Stored, frozen=True):
    """Identify an input of a training, which may change between two runs: its file, and the digest of its content.

    `judges` is true if scores depend on it, so only trainings with the same content are compared.
    """

    file: Text
    digest: Text
    judges: Annotated[bool, Field(strict=True)]


class CheckpointMark(Stored, frozen=True):
    """Mark a checkpoint as complete."""

    step: Count
    state: list[Any]


class ChosenStep(Stored, frozen=True):
    """Store the trained model's step, and the rule that chose it."""

    checkpoint: Text | int | None = None
    step: Count


class SeedSummary(Stored, frozen=True):
    """Summarise a finished seed: its scores, its first and last step, means over its steps, and sums."""

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
    """Summarise a metric of one benchmark: the base's, the mean over seeds, and the comparison
    (`stats.Comparison.to_dict`) of the gain, and of the difference from another training if there is one."""

    base: Number
    mean: Number
    low: Number | None
    high: Number | None
    gain: Plain
    against: Plain | None = None


class OtherTraining(Stored, frozen=True):
    """Identify the training with which this one was compared."""

    folder: Text
    label: Text


class SummaryFile(Stored, frozen=True):
    """Define `summary.json`: a training over its finished seeds."""

    name: Text
    label: Text
    training: Plain  # # all settings
    base: Scores
    seeds: dict[str, SeedSummary]
    against: OtherTraining | None = None
    benchmarks: dict[str, dict[str, MetricSummary]] = Field(default_factory=dict)

    @property
    def untaught(self) -> list[str]:
        """Return the seeds of which no step kept a group of responses, so the model equals the base."""
        return [number for number, seed in self.seeds.items() if seed.dropped and not seed.kept]

"""Train the points of a sweep: a point is trained once with each seed, and is the mean over its seeds.

Trainings are kept beside the sweeps, in a folder that is a function of what was asked: sweeps share them, and a point
that was interrupted goes on from its checkpoint.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rlvr_dir import stats
from rlvr_dir.config.search import LISTED
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import duration, markdown_table
from rlvr_dir.report.sweep import CompleteTrial, TrainingSummary, against
from rlvr_dir.results import EvalResult
from rlvr_dir.results.load_results import read_training
from rlvr_dir.results.trainings import TrainingPlace
from rlvr_dir.sweep.lists import Cost
from rlvr_dir.sweep.outcome import Confirmation, Outcome, Outcomes, Places
from rlvr_dir.sweep.points import Point, listed_points
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.sweep.study import Trial
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.train.folder import SeedFolder, TrainingFolder
from rlvr_dir.train.run import TrainerError, ValidationScores
from rlvr_dir.train.spec import TrainSpec, check_machine, plain
from rlvr_dir.train.training import benchmarks, inputs


@dataclass(frozen=True, eq=False)
class SeedResult:
    """A finished seed of a training, as its files have it."""

    spec: TrainSpec
    seed: int
    folder: SeedFolder
    facts: dict[str, Any]

    @property
    def scores(self) -> ValidationScores:
        """Return the scores of the trained model, by benchmark."""
        return self.facts["scores"]

    def log(self, run: SweepRun) -> None:
        """Log it to MLflow, as a run of its own under the sweep's."""
        from rlvr_dir.tracking import Training

        folder, run_facts = self.folder, {"experiment": run.experiment, "parent": run.id, "tags": {"sweep": run.name}}
        training = Training(run.where, self.spec.dapo.label, plain(self.spec), **run_facts)
        training.done(self.seed, self.facts, folder.records(), [folder.log, folder.done, folder.rl / "README.md"])


def folder_of(spec: TrainSpec, store: Path) -> Path:
    """Return the folder of a training in a store: a name to be read, and a digest of what was asked except the seeds.

    Only what differs from a default is in the digest, so that a new setting leaves the old trainings where they are.
    """
    settings = spec.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"})
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    return store / f"{spec.dapo.label.replace(' α', '-').replace(' ', '-')}-{digest}"


def seeds_of(spec: TrainSpec, store: Path) -> list[SeedResult] | None:
    """Return the results of all seeds of a training; None where one is not finished."""
    folder, results = TrainingFolder(folder_of(spec, store)), []
    for seed in spec.seeds:
        if (facts := folder.seed(seed).facts()) is None:
            return None
        results.append(SeedResult(spec, seed, folder.seed(seed), facts))
    return results


def train_seeds(training: TrainSpec, store: Path, say: Callable[[str], None]) -> list[SeedResult]:
    """Train what is not trained yet of a training in the store; the results of its seeds."""
    from rlvr_dir.train.training import run

    run(training, folder_of(training, store), bases=store / "bases", say=say)
    return seeds_of(training, store) or []


def metrics(spec: TrainingSweep, scores: ValidationScores) -> dict[str, float]:
    """Return the metrics of a seed by their names in sweeps: the unweighted mean over benchmarks."""
    fields = dict(zip(spec.metrics, ("avg", "pass", "truncated", "tokens"), strict=True))
    return {name: fmean(score[field] for score in scores.values()) for name, field in fields.items()}


def outcome_of(spec: TrainingSweep, point: Point, results: Sequence[SeedResult]) -> Outcome:
    """Return what came of a point: each metric's mean over its seeds, and those of each seed."""
    seeds = {str(result.seed): metrics(spec, result.scores) for result in results}
    means = {name: fmean(values[name] for values in seeds.values()) for name in next(iter(seeds.values()))}
    return Outcome(point, results, means, seeds=seeds)


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """What a sweep of trainings will cost. `seconds` of a seed is measured on finished ones; None without any."""

    size: str
    rows: list[tuple[TrainSpec, int]]  # each training, and how many of its seeds are done
    seconds: float | None
    store: Path

    @property
    def total(self) -> Cost:
        """Return the rollouts left to learn from, at most."""
        pending = [(spec, len(spec.seeds) - done) for spec, done in self.rows]
        return Cost(
            ways=sum(seeds for _, seeds in pending),
            responses=sum(spec.dapo.steps * spec.dapo.responses * seeds for spec, seeds in pending),
            thresholds=0,
            tokens=sum(spec.dapo.steps * spec.dapo.step_tokens * seeds for spec, seeds in pending),
        )

    def text(self, *, points: bool) -> str:
        """Write it as a person reads it; `points` lists them one by one."""
        seeds = len(self.rows[0][0].seeds)
        lines = [f"{self.size}; with plain DAPO {len(self.rows)} trainings x {seeds} seed{'s' * (seeds > 1)}"]
        if points:
            cells = []
            for spec, done in self.rows:
                dapo, name = spec.dapo, folder_of(spec, self.store).name
                cells.append([dapo.label, str(dapo.steps), f"{dapo.steps * dapo.responses:,}", f"{done}/{seeds}", name])
            head = ["training", "steps", "responses learned from, a seed", "seeds done", "folder"]
            lines += ["", markdown_table(head, cells, left=1), ""]
        pending = sum(seeds - done for _, done in self.rows)
        if self.seconds is not None:
            cost = f"{duration(self.seconds * pending)} of steps ({duration(self.seconds)} a seed, as measured)"
        else:
            cost = (
                f"rollouts that are learned from have at most {self.total.tokens:,} tokens; those that dynamic "
                "sampling throws away, updates and validations are not counted"
            )
        lines.append(f"seeds done: {sum(done for _, done in self.rows)}; to be trained: {pending}, {cost}")
        return "\n".join(lines)


class TrainingObjective:
    """Trains one point after the other."""

    def __init__(self, spec: TrainingSweep, places: Places, say: Callable[[str], None]) -> None:
        self.spec, self.say, self.store = spec, say, places.trainings

    def check(self) -> None:
        """Refuse benchmarks that cannot be had, and what this machine cannot train; raises UserError."""
        plain_dapo = self.spec.plain_dapo
        benchmarks(plain_dapo, plain_dapo.validation.tasks)
        check_machine(plain_dapo)

    def estimate(self) -> TrainingEstimate:
        """Estimate from the trainings that are there; load no weights, write nothing.

        A search shows plain DAPO and as many times the file's own training as it may propose points.
        """
        spec = self.spec
        points = [spec.training(point) for point in listed_points(spec)]
        if spec.method not in LISTED:
            points = [spec.training({})] * (spec.run_cap or 0)
        reference = [] if any(training.same == spec.plain_dapo.same for training in points) else [spec.plain_dapo]
        rows, seconds = [], []
        for training in (*reference, *points):
            folder = TrainingFolder(folder_of(training, self.store))
            done = [facts for seed in training.seeds if (facts := folder.seed(seed).facts())]
            rows.append((training, len(done)))
            seconds += [facts["seconds"] for facts in done]
        mean = sum(seconds) / len(seconds) if seconds else None
        return TrainingEstimate(spec.size(), rows, mean, self.store)

    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return plain DAPO, unless a point is just that."""
        among = any(self.spec.training(point).same == self.spec.plain_dapo.same for point in points)
        return [] if among else [{"pair": next(iter(self.spec.pairs)), "reference": {"method": "none"}}]

    def run(self, points: Sequence[Point], outcomes: Outcomes) -> None:
        """Train, or go on, and complete each point with its metrics and each seed's.

        Raises:
            UserError: the machine cannot do it, or another process trains the same.
        """
        for point in points:
            try:
                results = train_seeds(self.spec.training(point), self.store, self.say)
            except TrainerError as error:
                self.say(f"failed: {error}")
                outcomes.fail(point, str(error))
            else:
                outcomes.complete(outcome_of(self.spec, point, results))

    def results(self, trial: Trial) -> list[SeedResult] | None:
        """Return the seeds of a point."""
        return seeds_of(self.spec.training(trial.point), self.store)

    def is_current(self, trial: Trial) -> bool:
        """Tell whether all seeds are there.

        Raises:
            UserError: a file has other content now than when they were trained.
        """
        TrainingFolder(folder_of(self.spec.training(trial.point), self.store)).check(inputs(self.spec.plain_dapo))
        return self.results(trial) is not None

    def entry(self, point: Point, results: Sequence[Any], number: int, metrics: dict[str, float]) -> CompleteTrial:
        """Return a finished training with its label: `low_prob α0.2`, and what else the point sets."""
        spec, varied = results[0].spec, None if "reference" in point else point
        in_label = ("train.method", "train.alpha", "train.top_p")
        more = [f"{n.partition('.')[2]} {v}" for n, v in (varied or {}).items() if n not in (*in_label, "pair")]
        facts = {
            "dapo": spec.dapo.model_dump(mode="json", exclude={"seed"}),
            "folder": str(results[0].folder.path.parent),
        }
        label = ", ".join([spec.dapo.label, *more])
        entry = CompleteTrial(point["pair"], number, varied, label, tuple(results), metrics, facts=facts)
        return replace(entry, scores=[*entry.trained.runs.values()])

    def summary(self, entries: list[CompleteTrial], **counts: Any) -> TrainingSummary:
        """Return the summary, every training beside plain DAPO."""
        plain_dapo = self.spec.plain_dapo
        dapo, reference = plain_dapo.dapo, next((e for e in entries if e.results[0].spec.same == plain_dapo.same), None)

        def results() -> list[EvalResult]:
            places = [TrainingPlace(e.label, Path(e.facts["folder"]), tuple(self.spec.seeds)) for e in entries]
            return [result for place in places for result in read_training(place, place.name)]

        return TrainingSummary(
            spec=self.spec,
            results=results,
            entries=entries,
            reference=reference,
            comparisons=[] if reference is None else against(reference, entries),
            base=TrainingFolder(folder_of(entries[0].results[0].spec, self.store)).base_scores if entries else {},
            samples=plain_dapo.validation.sampling.samples,
            seeds=self.spec.seeds,
            training=f"{dapo.steps} steps of {dapo.prompts} x {dapo.samples} responses",
            **counts,
        )

    def confirm(
        self, best: CompleteTrial, summary: Any, seeds: Sequence[int], tasks: Sequence[str] | None, limit: int | None,
        run: SweepRun,
    ) -> Iterator[Confirmation]:  # fmt: skip
        """Train the winner and plain DAPO with new seeds; they are validated on the sweep's problems."""
        if tasks or limit:
            option = f"tasks={','.join(tasks)}" if tasks else f"limit={limit}"
            raise UserError(
                f"{option} is refused: new trainings are validated as the sweep's were; score their checkpoints "
                "elsewhere with `rlvr-dir eval --pair FOLDER/seed-N`"
            )
        if summary.reference is None or best is summary.reference:
            raise UserError(f"sweep {self.spec.name!r}: the best point is plain DAPO itself; it has no lead to confirm")
        scores: list[Sequence[stats.Scores]] = []
        for entry in (best, summary.reference):
            point = entry.point or {"pair": entry.pair, "reference": {"method": "none"}}
            results = train_seeds(self.spec.training(point).replace(seeds=tuple(seeds)), self.store, self.say)
            for result in results:
                run.child(result)
            scores.append(self.entry(point, results, 0, {}).scores)
        for winner, control in zip(*scores, strict=True):
            yield Confirmation(winner, control, "the same, on which it was chosen")

    def close(self) -> None:
        """Do nothing: a training ends what it starts."""

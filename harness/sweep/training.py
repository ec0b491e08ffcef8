"""Sweeps of trainings: a point is trained once with each seed, and is the mean over its seeds.

Trainings are kept beside the sweeps, in a folder that is a function of what was asked: sweeps share them, and a point
that was interrupted goes on from its checkpoint.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness import stats
from harness.errors import UserError
from harness.evals import EvalResult
from harness.evals.places import read_training
from harness.evals.trainings import TrainingPlace
from harness.markdown import duration, markdown_table
from harness.report.sweep import CompleteTrial, TrainingSummary, against
from harness.spec.search import LISTED
from harness.sweep.base import Again, Sweep
from harness.sweep.points import Point, listed_points
from harness.sweep.several import Cost
from harness.sweep.track import SweepRun
from harness.sweep.training_spec import TrainingSweep
from harness.sweep.trials import Trial
from harness.train.folder import SeedFolder, TrainingFolder
from harness.train.run import TrainerError, ValidationScores
from harness.train.spec import TrainSpec, check_machine, plain
from harness.training import benchmarks, inputs


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


def folder_of(spec: TrainSpec, store: Path) -> Path:
    """Return the folder of a training in a store: a name to be read, and a digest of what was asked except the seeds.

    Only what differs from a default is in the digest, so that a new setting leaves the old trainings where they are.
    """
    asked = spec.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"})
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    return store / f"{spec.dapo.label.replace(' α', '-').replace(' ', '-')}-{digest}"


def seeds_of(spec: TrainSpec, store: Path) -> list[SeedResult] | None:
    """Return the results of all seeds of a training; None where one is not finished."""
    folder, found = TrainingFolder(folder_of(spec, store)), []
    for seed in spec.seeds:
        if (facts := folder.seed(seed).facts()) is None:
            return None
        found.append(SeedResult(spec, seed, folder.seed(seed), facts))
    return found


def train_seeds(training: TrainSpec, store: Path, say: Callable[[str], None]) -> list[SeedResult]:
    """Train what is not trained yet of a training in the store; the results of its seeds."""
    from harness.training import run

    run(training, folder_of(training, store), bases=store / "bases", say=say)
    return seeds_of(training, store) or []


def metrics(spec: TrainingSweep, scores: ValidationScores) -> dict[str, float]:
    """Return the metrics of a seed by their names in sweeps: the unweighted mean over benchmarks."""
    fields = dict(zip(spec.metrics, ("avg", "pass", "truncated", "tokens"), strict=True))
    return {name: fmean(score[field] for score in scores.values()) for name, field in fields.items()}


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
        left = [(spec, len(spec.seeds) - done) for spec, done in self.rows]
        return Cost(
            ways=sum(seeds for _, seeds in left),
            responses=sum(spec.dapo.steps * spec.dapo.responses * seeds for spec, seeds in left),
            thresholds=0,
            tokens=sum(spec.dapo.steps * spec.dapo.step_tokens * seeds for spec, seeds in left),
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
        left = sum(seeds - done for _, done in self.rows)
        if self.seconds is not None:
            cost = f"{duration(self.seconds * left)} of steps ({duration(self.seconds)} a seed, as measured)"
        else:
            cost = (
                f"rollouts that are learned from have at most {self.total.tokens:,} tokens; those that dynamic "
                "sampling throws away, updates and validations are not counted"
            )
        lines.append(f"seeds done: {sum(done for _, done in self.rows)}; to be trained: {left}, {cost}")
        return "\n".join(lines)


class Trainings(Sweep[TrainingSweep]):
    """Trains one point after the other."""

    @property
    def store(self) -> Path:
        """The folder of trainings."""
        return self.places.trainings

    @property
    def seeds(self) -> Sequence[int]:
        """Those of each training."""
        return self.spec.seeds

    def check(self) -> None:
        """Refuse benchmarks that cannot be had, and what this machine cannot train; raises UserError."""
        asked = self.spec.plain_dapo
        benchmarks(asked, asked.validation.tasks)
        check_machine(asked)

    def estimate(self) -> TrainingEstimate:
        """Estimate from the trainings that are there; load no weights, write nothing.

        A search shows plain DAPO and as many times the file's own training as it may propose points.
        """
        spec = self.spec
        points = [spec.training(point) for point in listed_points(spec)]
        if spec.method not in LISTED:
            points = [spec.training({})] * (spec.run_cap or 0)
        reference = [] if any(each.same == spec.plain_dapo.same for each in points) else [spec.plain_dapo]
        rows, seconds = [], []
        for each in (*reference, *points):
            folder = TrainingFolder(folder_of(each, self.store))
            done = [facts for seed in each.seeds if (facts := folder.seed(seed).facts())]
            rows.append((each, len(done)))
            seconds += [facts["seconds"] for facts in done]
        mean = sum(seconds) / len(seconds) if seconds else None
        return TrainingEstimate(spec.size(), rows, mean, self.store)

    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return plain DAPO, unless a point is just that."""
        among = any(self.spec.training(point).same == self.spec.plain_dapo.same for point in points)
        return [] if among else [{"pair": next(iter(self.spec.pairs)), "reference": {"method": "none"}}]

    def run(self, points: Sequence[Point]) -> None:
        """Train, or go on, and complete each point with its metrics and each seed's.

        Raises:
            UserError: the machine cannot do it, or another process trains the same.
        """
        for point in points:
            training = self.spec.training(point)
            try:
                seeds = train_seeds(training, self.store, self.say)
            except TrainerError as error:
                self.say(f"failed: {error}")
                self.fail(point, str(error))
            else:
                by_seed = {str(each.seed): metrics(self.spec, each.scores) for each in seeds}
                first = next(iter(by_seed.values()))
                means = {name: fmean(values[name] for values in by_seed.values()) for name in first}
                files = [str(each.folder.done.relative_to(self.store)) for each in seeds]
                self.complete(point, seeds, files, means, seeds=by_seed)

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

    def entry(
        self, point: Point, results: Sequence[SeedResult], number: int, metrics: dict[str, float]
    ) -> CompleteTrial:
        """Return a finished training with its label: `low_prob α0.2`, and what else the point sets."""
        spec, asked = results[0].spec, None if "reference" in point else point
        shown = ("train.method", "train.alpha", "train.top_p")
        more = [f"{n.partition('.')[2]} {v}" for n, v in (asked or {}).items() if n not in (*shown, "pair")]
        about = {
            "dapo": spec.dapo.model_dump(mode="json", exclude={"seed"}),
            "folder": str(results[0].folder.path.parent),
        }
        label = ", ".join([spec.dapo.label, *more])
        return CompleteTrial(point["pair"], number, asked, label, tuple(results), metrics, about=about)

    def scores(self, entry: CompleteTrial) -> list[stats.Scores]:
        """Return the scores of its seeds, a benchmark each."""
        return [*entry.trained.runs.values()]

    def summarise(self, entries: list[CompleteTrial], **told: Any) -> TrainingSummary:
        """Return the summary, every training beside plain DAPO."""
        asked = self.spec.plain_dapo
        dapo, reference = asked.dapo, next((e for e in entries if e.results[0].spec.same == asked.same), None)

        def results() -> list[EvalResult]:
            places = [TrainingPlace(e.label, Path(e.about["folder"]), tuple(self.spec.seeds)) for e in entries]
            return [result for place in places for result in read_training(place, place.name)]

        return TrainingSummary(
            spec=self.spec,
            results=results,
            entries=entries,
            reference=reference,
            comparisons=[] if reference is None else against(reference, entries),
            base=TrainingFolder(folder_of(entries[0].results[0].spec, self.store)).base_scores if entries else {},
            samples=asked.validation.sampling.samples,
            seeds=self.spec.seeds,
            training=f"{dapo.steps} steps of {dapo.prompts} x {dapo.samples} responses",
            **told,
        )

    def log(self, run: SweepRun, result: SeedResult) -> None:
        """Log a seed as a run of its own."""
        from harness.tracking import Training

        folder, about = result.folder, {"experiment": run.experiment, "parent": run.id, "tags": {"sweep": run.name}}
        told = Training(run.where, result.spec.dapo.label, plain(result.spec), **about)
        told.done(result.seed, result.facts, folder.records(), [folder.log, folder.done, folder.rl / "README.md"])

    def params(self) -> dict[str, str]:
        """Return the base and the benchmarks."""
        asked = self.spec.plain_dapo
        return {"base": asked.base, "tasks": ", ".join(asked.validation.tasks)}

    def again(
        self, best: CompleteTrial, made: Any, seeds: Sequence[int], tasks: Sequence[str] | None, limit: int | None,
        run: SweepRun,
    ) -> Iterator[Again]:  # fmt: skip
        """Train the winner and plain DAPO with new seeds; they are validated on the sweep's problems."""
        if tasks or limit:
            asked = f"tasks={','.join(tasks)}" if tasks else f"limit={limit}"
            raise UserError(
                f"{asked} is refused: new trainings are validated as the sweep's were; score their checkpoints "
                "elsewhere with `rlvr-dir eval --pair FOLDER/seed-N`"
            )
        if made.reference is None or best is made.reference:
            raise UserError(f"sweep {self.spec.name!r}: the best point is plain DAPO itself; it has no lead to confirm")
        found = []
        for entry in (best, made.reference):
            point = entry.point or {"pair": entry.pair, "reference": {"method": "none"}}
            results = train_seeds(self.spec.training(point).replace(seeds=tuple(seeds)), self.store, self.say)
            for result in results:
                run.child(result)
            found.append(self.scores(self.entry(point, results, 0, {})))
        for one, other in zip(*found, strict=True):
            yield Again(one, other, "the same, on which it was chosen")

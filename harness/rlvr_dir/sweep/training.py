"""Train the points of a sweep: a point is trained once with each seed, and its score is the mean over its seeds.

Trainings are stored beside the sweeps, in a folder that is a function of their settings. So sweeps share them, and an
interrupted point continues from its checkpoint.
"""

import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from typing import Any

from rlvr_dir import stats
from rlvr_dir.config.search import LISTED
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import duration, markdown_table
from rlvr_dir.program import program
from rlvr_dir.report.sweep import CompleteTrial, TrainingSummary, against
from rlvr_dir.results import EvalResult
from rlvr_dir.results.load_results import read_training
from rlvr_dir.results.trainings import TrainingPlace
from rlvr_dir.sweep.entries import Entry
from rlvr_dir.sweep.lists import Cost
from rlvr_dir.sweep.outcome import BUSY, Confirmation, Places
from rlvr_dir.sweep.points import Point, listed_points
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.train.folder import SeedFolder, TrainingFolder
from rlvr_dir.train.run import TrainerError, ValidationScores
from rlvr_dir.train.spec import TrainSpec, check_machine, plain
from rlvr_dir.train.training import benchmarks, inputs

Complete = Callable[[Entry[TrainSpec], Sequence["SeedResult"]], None]
Fail = Callable[[Entry[TrainSpec], str], None]


_PAUSE = 1.0  # seconds before another attempt at a training that another process was running
RETRIES = 3  # attempts at a training whose machine was lost


@dataclass(frozen=True, eq=False)
class SeedResult:
    """Hold a finished seed of a training, as stored in its files."""

    spec: TrainSpec
    seed: int
    folder: SeedFolder
    outcome: dict[str, Any]

    @property
    def scores(self) -> ValidationScores:
        """Return the scores of the trained model, by benchmark."""
        return self.outcome["scores"]

    def log(self, run: SweepRun) -> None:
        """Log it to MLflow, as its own run under the sweep's."""
        from rlvr_dir.tracking import Training

        folder, options = self.folder, {"experiment": run.experiment, "parent": run.id, "tags": {"sweep": run.name}}
        training = Training(run.where, self.spec.dapo.label, plain(self.spec), **options)
        training.done(self.seed, self.outcome, folder.records(), [folder.log, folder.done, folder.rl / "README.md"])


def folder_of(spec: TrainSpec, store: Path) -> Path:
    """Return the folder of a training in a store: a readable name, and a digest of its settings except the seeds.

    Only settings that differ from a default are in the digest, so that a new setting does not move old trainings.
    """
    settings = spec.model_dump(mode="json", exclude_defaults=True, exclude={"seeds"})
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    return store / f"{spec.dapo.label.replace(' α', '-').replace(' ', '-')}-{digest}"


def seeds_of(spec: TrainSpec, store: Path) -> list[SeedResult] | None:
    """Return the results of all seeds of a training; None if one is not finished."""
    folder, results = TrainingFolder(folder_of(spec, store)), []
    for seed in spec.seeds:
        if (outcome := folder.seed(seed).outcome()) is None:
            return None
        results.append(SeedResult(spec, seed, folder.seed(seed), outcome))
    return results


def train_seeds(training: TrainSpec, store: Path, say: Callable[[str], None]) -> list[SeedResult]:
    """Train the rest of a training in the store, and return the results of its seeds."""
    from rlvr_dir.train.training import run

    run(training, folder_of(training, store), bases=store / "bases", say=say)
    return seeds_of(training, store) or []


def metrics(spec: TrainingSweep, results: Sequence[SeedResult]) -> dict[str, float]:
    """Return the metrics of a training by their names in sweeps: means over benchmarks, then over seeds."""
    fields = dict(zip(spec.metrics, ("avg", "pass", "truncated", "tokens"), strict=True))
    scores = [result.scores.values() for result in results]
    return {name: fmean(fmean(score[f] for score in of_seed) for of_seed in scores) for name, f in fields.items()}


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """Estimate the cost of a sweep of trainings. `seconds` per seed are measured on finished ones; None without any."""

    size: str
    rows: list[tuple[TrainSpec, int]]  # each training, and the number of finished seeds
    seconds: float | None
    store: Path

    @property
    def total(self) -> Cost:
        """Return the rollouts left to learn from, at most."""
        pending = [(spec, len(spec.seeds) - done) for spec, done in self.rows]
        return Cost(
            jobs=sum(seeds for _, seeds in pending),
            responses=sum(spec.dapo.steps * spec.dapo.responses * seeds for spec, seeds in pending),
            thresholds=0,
            tokens=sum(spec.dapo.steps * spec.dapo.step_tokens * seeds for spec, seeds in pending),
        )

    def text(self, *, rows: bool = True) -> str:
        """Return the estimate as text; without `rows` only the sums."""
        seeds = len(self.rows[0][0].seeds)
        lines = [f"{self.size}; with plain DAPO {len(self.rows)} trainings × {seeds} seed{'s' * (seeds > 1)}"]
        if rows:
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
    """Train one point after the other."""

    def __init__(self, spec: TrainingSweep, places: Places, say: Callable[[str], None]) -> None:
        self.spec, self.say, self.store = spec, say, places.trainings

    def check(self) -> None:
        """Reject benchmarks that are not available, and what this machine cannot train. Raises UserError."""
        plain_dapo = self.spec.plain_dapo
        benchmarks(plain_dapo, plain_dapo.validation.tasks)
        check_machine(plain_dapo)

    def estimate(self, *, gpus: object = None, memory: bool = False) -> TrainingEstimate:
        """Estimate the cost from the finished trainings. Load no weights, and write nothing.

        A search shows plain DAPO, and the file's own training as often as it may propose points.
        """
        spec = self.spec
        points = [spec.training(point) for point in listed_points(spec)]
        if spec.method not in LISTED:
            points = [spec.training({})] * (spec.run_cap or 0)
        reference = [] if any(training.same == spec.plain_dapo.same for training in points) else [spec.plain_dapo]
        rows, seconds = [], []
        for training in (*reference, *points):
            folder = TrainingFolder(folder_of(training, self.store))
            done = [outcome for seed in training.seeds if (outcome := folder.seed(seed).outcome())]
            rows.append((training, len(done)))
            seconds += [outcome["seconds"] for outcome in done]
        mean = sum(seconds) / len(seconds) if seconds else None
        return TrainingEstimate(spec.size(), rows, mean, self.store)

    def probe(self) -> None:
        """Do nothing: the seconds of a step are measured by the training itself."""

    def entries(self, points: Sequence[Point]) -> list[Entry[TrainSpec]]:
        """Return plain DAPO, unless a point equals it, and the points."""
        pair, plain_dapo = next(iter(self.spec.pairs)), self.spec.plain_dapo
        entries = [Entry(pair, point, self.spec.training(point), number) for number, point in enumerate(points)]
        among = any(entry.item.same == plain_dapo.same for entry in entries)
        return [*([] if among else [Entry(pair, None, plain_dapo, 0)]), *entries]

    def prepare(self, points: Sequence[Point]) -> None:
        """Raise UserError if a file's content has changed since points were trained."""
        for entry in self.entries(points):
            TrainingFolder(folder_of(entry.item, self.store)).check(inputs(self.spec.plain_dapo))

    def run(self, entries: Sequence[Entry[TrainSpec]], complete: Complete, fail: Fail) -> None:
        """Train one after the other, or `workers` at a time in their own processes, here or on a Ray cluster.

        Raises:
            UserError: This machine cannot train it, or Ray is unreachable or has too few GPUs.
            Busy: Another process trains the same.
        """
        workers = self.spec.workers
        if workers.count == 1 and workers.ray_address is None:
            for entry in entries:
                try:
                    complete(entry, train_seeds(entry.item, self.store, self.say))
                except TrainerError as error:
                    fail(entry, str(error))
            return
        with self._trainer() as train, ThreadPoolExecutor(workers.count) as pool:
            futures = {pool.submit(train, json.dumps(plain(entry.item))): entry for entry in entries}
            try:
                for future in as_completed(futures):
                    entry, reason = futures[future], future.result()
                    results = self.stored(entry)
                    if results is None:
                        fail(entry, reason)
                    else:
                        complete(entry, results)
            finally:
                pool.shutdown(cancel_futures=True)

    @contextmanager
    def _trainer(self) -> Iterator[Callable[[str], str]]:
        """Yield a function that trains one training, given as JSON, in its own process, and returns its last printed
        line."""
        workers, store = self.spec.workers, str(self.store.resolve())
        if workers.ray_address is None:
            slots = SimpleQueue[dict[str, str]]()  # the environments of workers, each with its own GPUs
            for number in range(workers.count):
                slots.put(gpus(self.spec, number))

            def train_here(training: str) -> str:
                own = slots.get()
                try:
                    return _train_apart(training, store, own)
                finally:
                    slots.put(own)

            yield train_here
            return
        from rlvr_dir.decode.ray.cluster import Cluster

        cluster = Cluster(workers.ray_address, workers.count)
        try:
            if workers.count * workers.gpus_each > cluster.gpus:
                raise UserError(
                    f"needs {workers.count} x {workers.gpus_each} GPUs, and the cluster has {cluster.gpus}",
                    argument="workers.gpus_each",
                    value=workers.gpus_each,
                )
            # A task whose machine is lost runs again elsewhere, from the last checkpoint in the shared folder.
            task = cluster.ray.remote(_train_on_node).options(
                num_cpus=1, num_gpus=workers.gpus_each, max_retries=RETRIES, scheduling_strategy="SPREAD"
            )

            def train_there(training: str) -> str:
                try:
                    return cluster.ray.get(task.remote(training, store))
                except cluster.ray.exceptions.RayError as error:
                    return f"Ray lost the training: {str(error).strip().splitlines()[0]}"

            yield train_there
        finally:
            cluster.close()

    def stored(self, entry: Entry[TrainSpec], *, current: bool = True) -> list[SeedResult] | None:
        """Return the results of the seeds of an entry; None unless all are trained."""
        return seeds_of(entry.item, self.store)

    def trial(self, entry: Entry[TrainSpec], results: Sequence[SeedResult]) -> CompleteTrial:
        """Return a finished training with its label: `low_prob α0.2`, and what else the point sets."""
        spec = results[0].spec
        in_label = ("train.method", "train.alpha", "train.top_p")
        more = [f"{n.partition('.')[2]} {v}" for n, v in (entry.point or {}).items() if n not in (*in_label, "pair")]
        details = {
            "dapo": spec.dapo.model_dump(mode="json", exclude={"seed"}),
            "folder": str(results[0].folder.path.parent),
        }
        label = ", ".join([spec.dapo.label, *more])
        means = metrics(self.spec, results)
        trial = CompleteTrial(entry.pair, entry.number, entry.point, label, tuple(results), means, details=details)
        return replace(trial, scores=[*trial.trained.runs.values()])

    def summary(self, entries: list[CompleteTrial], **counts: Any) -> TrainingSummary:
        """Return the summary, with every training compared with plain DAPO."""
        plain_dapo = self.spec.plain_dapo
        dapo, reference = plain_dapo.dapo, next((e for e in entries if e.results[0].spec.same == plain_dapo.same), None)

        def results() -> list[EvalResult]:
            places = [TrainingPlace(e.label, Path(e.details["folder"]), tuple(self.spec.seeds)) for e in entries]
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
        run: SweepRun, say: Callable[[str], None],
    ) -> Iterator[Confirmation]:  # fmt: skip
        """Train the best point and plain DAPO with new seeds, and validate them on the sweep's problems."""
        if tasks or limit:
            argument, value = ("tasks", ",".join(tasks)) if tasks else ("limit", limit)
            raise UserError(
                "cannot be changed, because new trainings are validated as the sweep's were",
                argument=argument,
                value=value,
                hint="Score their checkpoints elsewhere with `rlvr-dir eval --pair FOLDER/seed-N`.",
            )
        if summary.reference is None or best is summary.reference:
            raise UserError(
                "has plain DAPO itself as its best point, so there is no lead to confirm",
                argument="sweep",
                value=self.spec.name,
            )
        scores: list[Sequence[stats.Scores]] = []
        for entry in (best, summary.reference):
            training = entry.results[0].spec.replace(seeds=tuple(seeds))
            results = train_seeds(training, self.store, say)
            for result in results:
                run.child(result)
            scores.append(self.trial(Entry(entry.pair, entry.point, training, 0), results).scores)
        for winner, control in zip(*scores, strict=True):
            yield Confirmation(winner, control, "the same, on which it was chosen")

    def close(self) -> None:
        """Do nothing, because a training ends what it starts."""


def _train_on_node(training: str, store: str) -> str:
    """Train in a separate process on the machine that Ray selected; return the last line that it printed."""
    if not Path(store).is_dir():
        return (
            f"{store} does not exist on {socket.gethostname()}: all machines need the folder of trainings at the same "
            "path, on a shared file system"
        )
    return f"{socket.gethostname()}: {_train_apart(training, store, {})}"


def _train_apart(training: str, store: str, own: Mapping[str, str]) -> str:
    """Train in a separate process, with `own` added to its environment; return the last line that it printed.

    The process ends with the thread that started it, so the thread waits for it. If another process runs the same
    training, this waits for it, too.
    """
    worker = program("rlvr_dir.sweep.train_one", training, store, os.getpid())
    kwargs: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "check": False}
    while (done := subprocess.run(worker["args"], env=worker["env"] | own, **kwargs)).returncode == BUSY:
        time.sleep(_PAUSE)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the training ended with status {done.returncode}, and printed nothing"


def gpus(spec: TrainingSweep, number: int) -> dict[str, str]:
    """Return the environment that gives worker `number` its own GPUs, of those that this process may see.

    Raises:
        UserError: There are not enough.
    """
    count = spec.workers.gpus_each
    if not count:
        return {}
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible_gpus.split(",") if visible_gpus else [str(i) for i in range(count * spec.workers.count)]
    own = names[number * count : (number + 1) * count]
    if len(own) < count:
        raise UserError(
            f"needs {spec.workers.count} x {count} GPUs, and CUDA_VISIBLE_DEVICES names {len(names)}",
            argument="workers.gpus_each",
            value=count,
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}

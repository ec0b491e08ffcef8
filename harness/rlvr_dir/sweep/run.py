"""Run a sweep from its spec to its summary.

    from rlvr_dir.sweep.specs import load
    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

A sweep is a list over a store. Cached entries are read, and others are computed. Running the sweep again resumes it, at
whatever moment it was killed. Optuna's study is written from the results.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from rlvr_dir import stats
from rlvr_dir.config.search import LISTED, Search
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import Busy, UserError
from rlvr_dir.files import check_writable
from rlvr_dir.markdown import duration
from rlvr_dir.records.lock import Lock
from rlvr_dir.report.sweep import CompleteTrial, SweepSummary
from rlvr_dir.sweep.entries import Entry
from rlvr_dir.sweep.folder import Failure, SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import Point, key
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.sweep.study import Study
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.text import visible

if TYPE_CHECKING:
    from rlvr_dir.sweep.decoding import DecodingObjective
    from rlvr_dir.sweep.training import TrainingObjective

PAUSE = 0.3  # seconds before another attempt at a store that another process is writing
_RECENT = 6  # completions that are used to estimate the remaining time


class Sweep:
    """Run a sweep of decodings or of trainings, with its entries and results.

    `objective` runs entries and stores the results in its own store, so that running one again costs nothing. `trials`
    are the complete entries, and `failures` those that failed in this run, with the reason.
    """

    def __init__(
        self,
        spec: Any,
        places: Places,
        say: Callable[[str], None],
        objective: "DecodingObjective | TrainingObjective",
    ) -> None:
        self.spec, self.places, self.say, self.objective = spec, places, say, objective
        self.folder = SweepFolder.of(spec, places.out)
        self.study = Study(spec, self.folder)
        self.trials: dict[Entry[Any], CompleteTrial] = {}
        self.failures: dict[Entry[Any], str] = {}
        self.on_complete: Callable[[CompleteTrial], None] = lambda trial: None
        self._waited: set[str] = set()
        self._listed: list[Entry[Any]] = []
        self._n_points: int | None = None  # number of points in the current list

    # What there is to run

    def entries(self) -> list[Entry[Any]]:
        """Return all points and references that are known so far, in the order in which they run."""
        points = self.study.points
        if len(points) != self._n_points:
            self._listed, self._n_points = self.objective.entries(points), len(points)
        return self._listed

    def todo(self) -> list[Entry[Any]]:
        """Return the entries that are not complete and have not failed in this run."""
        return [entry for entry in self.entries() if entry not in self.trials and entry not in self.failures]

    def look(self, *, current: bool = False) -> None:
        """Read the complete entries of all that are known so far. Nothing is changed.

        With `current`, results by an earlier version of the benchmark, grader or criterion are not used.
        """
        for entry in self.entries():
            if entry in self.trials:
                continue
            if (results := self.objective.stored(entry, current=current)) is not None:
                if (reason := self._keep(entry, results)) and current:
                    self.fail(entry, reason)
            elif current and entry.point is not None and key(entry.point) in self.study.complete_before:
                self.study.complete_before.discard(key(entry.point))
                why = "its results are missing, or its benchmark, grader or criterion has changed"
                self.say(f"trial {entry.number} is repeated, because {why}")

    def run(self) -> None:
        """Complete all entries. Those that fail are named, and the others run nevertheless.

        Raises:
            UserError: Everything is rejected, so the points are not the cause.
        """
        for points in self.study.batches():
            self.objective.prepare(points)
            self._n_points = None  # thresholds may have been found
            self.look(current=True)
            self._run(self.todo())
            failed = {key(entry.point) for entry in self.failures if entry.point is not None}
            self.study.tell_batch(self.trials.values(), failed)

    def _run(self, entries: Sequence[Entry[Any]]) -> None:
        """Run entries together. If they are rejected, run each half of them, so that only the wrong ones fail."""
        while pending := [item for item in entries if item not in self.trials and item not in self.failures]:
            try:
                self.objective.run(pending, self.complete, self.fail)
                return
            except Busy as error:  # another process writes one of the records, or runs the same training
                if str(error) not in self._waited:
                    self._waited.add(str(error))
                    self.say(f"waiting: {error}")
                time.sleep(PAUSE)
            except UserError as error:
                pending = [entry for entry in pending if entry not in self.trials]
                if len(pending) == 1:
                    self.fail(pending[0], str(error))
                    if len(self.failures) > 1 and not self.trials:
                        raise
                    return
                self._run(pending[: len(pending) // 2])
                self._run(pending[len(pending) // 2 :])
                return

    # The outcome of an entry

    def complete(self, entry: Entry[Any], results: Sequence[Any]) -> None:
        """Store an entry that is complete, and call `on_complete`. Without the sweep's metric it has failed."""
        if reason := self._keep(entry, results):
            self.fail(entry, reason)
        else:
            self.on_complete(self.trials[entry])

    def _keep(self, entry: Entry[Any], results: Sequence[Any]) -> str:
        """Store a complete entry; if that is not possible, return why."""
        trial, name = self.objective.trial(entry, results), self.spec.metric.name
        if entry.point is not None and not isfinite(trial.metrics.get(name, float("nan"))):
            return f"metric={name!r} has no finite value for {trial.label}"
        self.trials[entry] = trial
        self.study.tell(trial)
        return ""

    def fail(self, entry: Entry[Any], reason: str) -> None:
        """Store that an entry failed, also for `sweep status`."""
        self.say(f"failed: {reason}")
        self.failures[entry] = reason[:300]
        failed = [
            Failure(number=entry.number, reference=entry.point is None, reason=reason)
            for entry, reason in sorted(self.failures.items(), key=lambda item: _place(item[0].point, item[0].number))
        ]
        self.folder.write_failures(failed)

    # Descriptions

    def best(self, pair: str | None = None) -> CompleteTrial | None:
        """Return the best complete point (of a pair), the first of equal ones; None if no point is complete."""
        points = [trial for trial in self.trials.values() if trial.point is not None and pair in (None, trial.pair)]
        sign, name = 1.0 if self.spec.metric.goal == "maximize" else -1.0, self.spec.metric.name
        return max(sorted(points, key=lambda t: t.number), key=lambda t: sign * t.metrics[name], default=None)

    def best_so_far(self) -> str:
        """Return a line that names the best point, with its 95 % interval; empty if no point is complete."""
        best = self.best()
        return f"best so far: {best.label} {_score(best.scores[0])}" if best else ""

    def progress_line(self, trial: CompleteTrial, seconds: float) -> str:
        """Return a line with what is complete, the best point so far, and the time left at `seconds` an entry."""
        over, pending = len(self.trials), len(self.todo())
        if self.spec.method not in LISTED:
            pending += max(0, (self.spec.run_cap or 0) - len(self.study.points))
        rest = f"about {duration(seconds * pending)} left" if pending else ""
        words = [f"{over}/{over + pending}", f"{trial.pair}: {trial.label}", *map(_score, trial.scores)]
        return "  |  ".join(filter(None, [*words, self.best_so_far(), rest]))

    @property
    def states(self) -> dict[str, int]:
        """Count the points that are complete, and those that failed."""
        states = {"complete": self.trials, "failed": self.failures}
        return {name: sum(entry.point is not None for entry in entries) for name, entries in states.items()}

    def summary(self) -> SweepSummary:
        """Return the summary of all complete entries."""
        places = {entry: entry.number for entry in self.entries()}
        trials = [replace(trial, number=places.get(entry, trial.number)) for entry, trial in self.trials.items()]
        trials.sort(key=lambda trial: _place(trial.point, trial.number))
        best = [(trial.pair, trial.number) for pair in self.spec.pairs if (trial := self.best(pair))]
        chosen = [trial for trial in trials if trial.point is not None and (trial.pair, trial.number) in best]
        return self.objective.summary(trials, best=chosen, states=self.states, failed=len(self.failures))


def _place(point: Point | None, number: int) -> tuple[bool, int]:
    """Return the sort key for tables, in which references come first."""
    return point is not None, number


def open_sweep(spec: Search, places: Places, say: Callable[[str], None] = print, *, progress: bool = False) -> Sweep:
    """Return a sweep, whose models are not loaded yet."""
    if isinstance(spec, TrainingSweep):
        from rlvr_dir.sweep.training import TrainingObjective

        return Sweep(spec, places, say, TrainingObjective(spec, places, say))
    from rlvr_dir.sweep.decoding import DecodingObjective

    assert isinstance(spec, SweepSpec)
    return Sweep(spec, places, say, DecodingObjective(spec, places, progress=progress))


def run_sweep(
    spec: Search, places: Places, *, say: Callable[[str], None] = print, progress: bool = True
) -> SweepSummary:
    """Run the rest of a sweep, write its summary, and return the summary.

    Raises:
        UserError: The stored sweep has other settings, another process runs it, its folders cannot be written to (then
            nothing was begun), or an engine rejects everything.
    """
    sweep = open_sweep(spec, places)
    sweep.objective.check()
    folder = sweep.folder
    folder.make()
    check_writable(folder.path, sweep.objective.store)
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        spec = folder.create_or_verify(spec, say)
        folder.failed.unlink(missing_ok=True)
        sweep = open_sweep(spec, places, say, progress=progress)
        sweep.study.open()
        run = SweepRun(spec, folder, places.tracking)
        began, times = time.monotonic(), [time.monotonic()]

        def complete(trial: CompleteTrial) -> None:
            times.append(time.monotonic())
            for result in trial.results:
                run.child(result)
            say(sweep.progress_line(trial, pace(times)))

        sweep.on_complete = complete
        try:
            sweep.run()
        except BaseException:
            run.attach(status="KILLED")
            raise
        finally:
            sweep.objective.close()
        summary = replace(sweep.summary(), seconds=time.monotonic() - began)
        folder.tidy(summary.entries)
        summary.write(folder.path)
        run.close(summary)
        return summary
    finally:
        lock.release()


def pace(times: Sequence[float]) -> float:
    """Return the seconds per entry, from the times of the start and of the completions so far.

    A cached entry is only scored, which is fast. If the last few entries were faster than all of them on average, the
    rest is expected to be as fast.
    """
    recent = times[-_RECENT - 1 :]
    return min((times[-1] - times[0]) / (len(times) - 1), (recent[-1] - recent[0]) / (len(recent) - 1))


# Reading


def status(folder: SweepFolder, spec: Search) -> str:
    """Return how many points are in which state, what failed in the last run, and the best so far. Nothing is
    changed."""
    sweep, failed = begun(folder, spec), folder.read_failures()
    states = {**sweep.states, "failed": sum(not failure.reference for failure in failed)}
    counts = ", ".join(f"{count} {name}" for name, count in states.items() if count) or "no trial yet"
    references = sum(entry.point is None for entry in sweep.trials)
    lines = [f"{spec.name}: {spec.size()}; {counts}; references: {references} complete"]
    for failure in failed:
        kind = "reference" if failure.reference else "trial"
        lines.append(f"failed: {kind} {failure.number}: {visible(failure.reason)}")
    return "\n".join([*lines, *filter(None, [sweep.best_so_far()])])


def best(folder: SweepFolder, spec: Search) -> str:
    """Return the verdicts of the summary in its current state."""
    return "\n".join(begun(folder, spec).summary().verdicts)


def begun(folder: SweepFolder, spec: Search) -> Sweep:
    """Return a sweep with its complete entries. Nothing is changed."""
    sweep = open_sweep(spec, Places.under(folder.path.parents[1], track=False))
    sweep.look()
    return sweep


def _score(scores: stats.Scores) -> str:
    return f"{scores.benchmark} {stats.Estimate(scores.avg, *scores.interval).text(1)}"

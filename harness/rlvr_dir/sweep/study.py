"""The study of a sweep: the list of its trials, in Optuna's storage.

A journal file by default, PostgreSQL for many machines, sqlite for one worker. A trial is complete, with its metrics,
or has failed, with the reason; the last one of a point counts. References are trials of a second study in the same
storage, `NAME references`: in the first they would count as a search's own trials, and as Optuna's best.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import Field

from rlvr_dir.config import yaml_mapping
from rlvr_dir.config.search import LISTED, Range, Search
from rlvr_dir.config.stored import Count, Name, Number, Plain, Stored, Text
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import disk_error
from rlvr_dir.records.lock import flocked
from rlvr_dir.sweep.folder import SweepFolder, check, dump
from rlvr_dir.sweep.points import Point, key, listed_points
from rlvr_dir.sweep.specs import load

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

# What Optuna raises of a journal that is none.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_LONGEST_ENTRY = 1 << 20  # bytes
_DOUBLES = 25  # points in a row that a search may propose again before it is said to be at its end
_STATES = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}


class Trial(Stored, frozen=True):
    """The last trial of a point, or of a reference; `number` is its place among those."""

    point: Plain
    state: Literal["complete", "failed"]
    number: Count = 0
    metrics: dict[str, Number] = Field(default_factory=dict)
    results: tuple[Name, ...] = ()  # of decodings: their files in `results/`
    seeds: Plain = Field(default_factory=dict)  # of a training: the metrics of each seed
    error: Text | None = None

    @property
    def pair(self) -> str:
        """The pair's name."""
        return self.point["pair"]

    @property
    def is_reference(self) -> bool:
        """Whether it is none of the points."""
        return "reference" in self.point


class Study:
    """The trials of a sweep, by the key of their point, as they were when they were last `read`.

    Its two studies are made when the first trial is written, or by `create`: whoever only reads changes nothing.
    """

    def __init__(self, spec: Search, folder: SweepFolder, *, worker: int = 0) -> None:
        self.spec, self._folder, self._worker = spec, folder, worker
        self._storage: Any = None
        self._studies: dict[str, optuna.Study] = {}
        self._names = {False: spec.name, True: f"{spec.name} references"}  # by whether a point is a reference
        self._listed = {key(point): number for number, point in enumerate(listed_points(spec))}
        self._running: dict[str, optuna.Trial] = {}
        self._trials: dict[str, Trial] | None = None
        self._read: set[tuple[str, int]] = set()
        self._at_end = False

    # The list of trials

    def create(self, *, extend: bool = False) -> None:
        """Make what is missing of it, and check that it is of this sweep.

        Raises:
            UserError: the storage cannot be opened, or has another sweep of this name.
            DamagedError: it cannot be read.
        """
        with self._checked():
            for name in self._names.values():
                self._studies[name] = optuna.create_study(
                    study_name=name,
                    storage=self._opened(),
                    direction=self.spec.metric.goal,
                    pruner=optuna.pruners.NopPruner(),
                    load_if_exists=True,
                )
            study = self._studies[self.spec.name]
            stored = study.user_attrs.get("sweep")
            if stored is not None:
                old = load(yaml_mapping(stored, "the sweep in its storage"))
                check(old, self.spec, "its storage", extend=extend)
            if stored != dump(self.spec):
                study.set_user_attr("sweep", dump(self.spec))
                study.set_metric_names([self.spec.metric.name])
            # A resumed search, and every worker's, draws nothing that was drawn before.
            study.sampler = _sampler(self.spec, len(study.get_trials(deepcopy=False)) + 1000 * self._worker)
        self.read()

    def read(self) -> None:
        """Read what others have written since. What is no trial of this sweep is named once, and hides no other: its
        point counts as not yet done.

        Raises:
            DamagedError: the storage cannot be read.
        """
        with self._checked():
            if not self._studies and (self.spec.storage != "journal" or self._folder.journal.is_file()):
                for name in {*optuna.get_all_study_names(self._opened())} & {*self._names.values()}:
                    self._studies[name] = optuna.load_study(study_name=name, storage=self._opened())
            self._trials = self._trials or {}
            for name, study in self._studies.items():
                for stored in study.get_trials(deepcopy=False):
                    if stored.state.is_finished() and (name, stored.number) not in self._read:
                        self._read.add((name, stored.number))
                        self._take(self._trials, name, stored)

    def _take(self, trials: dict[str, Trial], study: str, stored: FrozenTrial) -> None:
        complete, outcome = stored.state == TrialState.COMPLETE, stored.user_attrs.get("outcome") or {}
        if not (complete or "error" in outcome):  # proposed twice, or again because its process was killed
            return
        where, point = f"trial {stored.number} of study {study!r}", stored.user_attrs.get("point") or {}
        number = self._listed.get(key(point), stored.number)
        state = "complete" if complete else "failed"
        try:
            trial = Trial.from_plain({"number": number, **outcome, "point": point, "state": state}, where)
            if (pair := point.get("pair")) not in self.spec.pairs:
                raise DamagedError(f"{where}, its point: pair={pair!r} is none of the sweep's pairs")
            if not trial.is_reference and self._listed and key(point) not in self._listed:
                raise DamagedError(f"{where}: {key(point)} is none of the sweep's points")
            if complete and not has_metric(self.spec, trial.point, trial.metrics):
                raise DamagedError(f"{where} is complete and has no metric {self.spec.metric.name!r}")
        except DamagedError as error:
            print(f"warning: left out, its point is done again: {error}", file=sys.stderr)
        else:
            trials[key(point)] = trial

    @property
    def _by_point(self) -> dict[str, Trial]:
        if self._trials is None:
            self.read()
        return self._trials or {}

    def get(self, point: Point) -> Trial | None:
        """Return the trial of a point; None where it is not done."""
        return self._by_point.get(key(point))

    def __iter__(self) -> Iterator[Trial]:
        return iter(sorted(self._by_point.values(), key=lambda trial: (not trial.is_reference, trial.number)))

    def complete(self, *, references: bool | None = None) -> list[Trial]:
        """Return the complete trials, references first; only those, or only the others."""
        trials = [trial for trial in self if trial.state == "complete"]
        return [trial for trial in trials if references in (None, trial.is_reference)]

    def failed(self) -> list[Trial]:
        """Return the trials of what failed and was not completed since."""
        return [trial for trial in self if trial.state == "failed"]

    def states(self) -> dict[str, int]:
        """Count the points by state."""
        states = [trial.state for trial in self if not trial.is_reference]
        return {state: states.count(state) for state in ("complete", "failed")}

    def best(self, pair: str | None = None) -> Trial | None:
        """Return the best complete point (of a pair), the first of equal ones; None where there is none."""
        trials = [trial for trial in self.complete(references=False) if pair in (None, trial.pair)]
        sign = 1.0 if self.spec.metric.goal == "maximize" else -1.0
        return max(trials, key=lambda trial: sign * trial.metrics[self.spec.metric.name], default=None)

    def tell(self, point: Point, *, number: int | None = None, error: str | None = None, **outcome: Any) -> None:
        """Write a trial: complete with its `metrics`, `results` and `seeds`, or failed with its `error`.

        `number` is the place of a reference.

        Raises:
            UserError: the disk refuses.
        """
        state, metrics = "failed" if error else "complete", dict(outcome.get("metrics", {}))
        outcome |= {"error": error} if error else {}
        outcome |= {} if number is None else {"number": number}
        # A reference that is drawn otherwise may have fewer samples than the metric needs: its Avg stands for it.
        value = None if error else metrics.get(self.spec.metric.name, next(iter(metrics.values()), 0.0))
        study = self._study(references="reference" in point)
        try:
            if (trial := self._running.pop(key(point), None)) is not None:
                trial.set_user_attr("outcome", outcome)
                study.tell(trial, value, state=_STATES[state])
            else:
                kinds = self._distributions(point)
                attributes = {"point": dict(point), "outcome": outcome}
                params = {name: point[name] for name in kinds}
                kwargs: dict[str, Any] = {"params": params, "distributions": kinds, "user_attrs": attributes}
                study.add_trial(create_trial(state=_STATES[state], value=value, **kwargs))
        except OSError as failure:
            raise disk_error(failure, self._folder.journal, "every response that was stored is safe") from None
        self.read()

    # What a search proposes

    def resume(self) -> None:
        """Have points that a killed process of a search was at proposed again, first of all."""
        study = self._study()
        for trial in study.get_trials(deepcopy=False):
            if trial.state == TrialState.RUNNING:
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                point = trial.user_attrs.get("point")
                if point is not None and self.get(point) is None:  # nobody else has done it
                    study.enqueue_trial(trial.params, user_attrs={"point": point})

    def proposed(self) -> list[Point]:
        """Return the points that a search has proposed so far."""
        study = self._studies.get(self.spec.name)
        trials: Sequence[FrozenTrial] = study.get_trials(deepcopy=False) if study else ()
        points = [trial.user_attrs["point"] for trial in trials if "point" in trial.user_attrs]
        return list({key(point): point for point in points}.values())

    def propose(self, most: int) -> list[Point]:
        """Return up to so many new points of a search; none where it has proposed all it may, or all there are."""
        points: list[Point] = []
        doubles, spec, study = 0, self.spec, self._study()
        while spec.method not in LISTED and len(points) < most and not self._at_end:
            waits = any(trial.state == TrialState.WAITING for trial in study.get_trials(deepcopy=False))
            proposed = {key(point) for point in self.proposed()}
            if not waits and len(proposed) >= (spec.run_cap or 0):
                break
            trial = study.ask(self._distributions())
            point: Point = {"pair": next(iter(spec.pairs)), **trial.params}
            if not waits and key(point) in proposed:  # nothing to learn
                study.tell(trial, state=TrialState.FAIL)
                doubles += 1
                self._at_end = doubles == _DOUBLES
                continue
            trial.set_user_attr("point", point)
            self._running[key(point)] = trial
            points.append(point)
        return points

    def _distributions(self, point: Point | None = None) -> dict[str, BaseDistribution]:
        """Return Optuna's idea of a search's parameters, or of a listed point's; of a reference there are none.

        Of a listed point numbers are ranges, so that a grid can be extended. Categories cannot grow: of names they are
        those that any sweep may have.
        """
        kinds: dict[str, BaseDistribution] = {}
        for name, parameter in self.spec.varied().items() if "reference" not in (point or {}) else ():
            values = parameter.listed
            if isinstance(parameter, Range):
                kinds[name] = FloatDistribution(parameter.min, parameter.max, log=parameter.log)
            elif self.spec.method not in LISTED:
                kinds[name] = CategoricalDistribution(values)
            elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                kinds[name] = FloatDistribution(min(map(float, values)), max(map(float, values)))
            elif point is not None and point[name] in (choices := self.spec.choices(name)):
                kinds[name] = CategoricalDistribution(choices)
        return kinds

    # The storage

    def _study(self, *, references: bool = False) -> optuna.Study:
        """Return one of its studies, which it makes where they are missing."""
        if not self._studies:
            self.create()
        return self._studies[self._names[references]]

    def _opened(self) -> Any:
        if self._storage is None:
            self._storage = _open(self.spec.storage, self._folder.journal)
        return self._storage

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Say in a sentence what Optuna raises of a storage that it did not write."""
        try:
            yield
        except UserError:
            raise
        except _UNREADABLE as error:
            where = self._folder.journal if self.spec.storage == "journal" else "the sweep's storage"
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise DamagedError(
                f"{where} is damaged, or was not written by Optuna ({reason}); move it away and run the sweep again: "
                "no rollout is lost, none is decoded twice"
            ) from None


def has_metric(spec: Search, point: Point, metrics: dict[str, float]) -> bool:
    """Tell whether metrics have a finite value of the sweep's own; what is drawn otherwise may have fewer samples."""
    return "sampling" in point or isfinite(metrics.get(spec.metric.name, float("nan")))


def _sampler(spec: Search, salt: int) -> optuna.samplers.BaseSampler:
    """Make the search, whose draws differ with `salt`."""
    if spec.method in LISTED:
        return optuna.samplers.RandomSampler()  # never asked
    startup = min(10, max(2, (spec.run_cap or 0) // 3))
    return optuna.samplers.TPESampler(seed=spec.seed + salt, n_startup_trials=startup)


class _JournalLock(JournalFileOpenLock):
    """Locks a journal for a writer, and cuts off what a full disk or a power cut has left of an entry before.

    Optuna's own locks outlive a killed process, for half a minute.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal, self._fd = journal, -1

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._fd = flocked(self._journal.with_suffix(".lock"))
        with self._journal.open("rb+") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _LONGEST_ENTRY)
            file.seek(start)
            end = file.read()
            if not end.endswith(b"\n") and b"\n" in end:
                file.truncate(start + end.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Let the next one write."""
        os.close(self._fd)


def _open(storage: str, journal: Path) -> Any:
    """Open the storage that a sweep names; environment variables in it are filled in: it need not hold a password.

    Raises:
        UserError: the database cannot be reached, or its driver is not installed.
    """
    url = os.path.expandvars(storage)
    if url == "journal":
        return JournalStorage(JournalFileBackend(str(journal), _JournalLock(journal)))
    if url.startswith("$"):
        raise UserError(f"storage={storage!r}: that environment variable is not set")
    if url.startswith("postgresql://"):  # SQLAlchemy's default driver is the old one
        url = "postgresql+psycopg://" + url.removeprefix("postgresql://")
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except ImportError as error:
        raise UserError(
            f"storage: its driver is not installed ({error.name or 'psycopg'}); install rlvr-dir[postgres]"
        ) from None
    except Exception as error:  # SQLAlchemy's and each driver's own
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"storage cannot be opened ({type(error).__name__}: {reason})") from None

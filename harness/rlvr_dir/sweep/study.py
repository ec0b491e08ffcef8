"""Write Optuna's study of a sweep from the results: for users to look at, and as the memory of a search.

The study of a grid is written anew by every run. A search is a function of its study. The sampler is created again, and
all batches are requested from it again with their results, so the points of a batch that a killed process was decoding
are proposed again. A trial of a search stores the number and the size of its batch. A batch that was only partly
written when the process was killed is proposed and reported to its end.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from rlvr_dir.config.search import LISTED, Range, Search
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import disk_error, write_file
from rlvr_dir.report.sweep import CompleteTrial
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.points import Point, key, listed_points

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

# Optuna's errors for a journal that it did not write.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_IDENTITY = (
    "parameters",
    "method",
    "metric",
    "seed",
    "decode",
    "train",
)  # a search with other settings begins a new study
_DOUBLES = 25  # a search ends after this many repeated proposals in a row


class Study:
    """Manage the points of a sweep, and Optuna's trials of them.

    It is read-only until `open` is called.
    """

    def __init__(self, spec: Search, folder: SweepFolder) -> None:
        self.spec, self._folder = spec, folder
        self._listed = listed_points(spec)
        self._study: optuna.Study | None = None
        self._writes = False
        self.complete_before: set[str] = set()  # keys of the points that were complete when the study was opened
        self._batch: tuple[int, list[Point]] = 0, []  # proposed, but not reported yet

    def open(self) -> None:
        """Create the study. That of a search is continued, unless the search's settings have changed.

        Raises:
            DamagedError: The journal cannot be read.
        """
        _cut_torn_end(self._folder.journal)
        storage, name = _storage(self._folder.journal), self.spec.name
        with self._checked():
            kwargs: dict[str, Any] = {"study_name": name, "storage": storage, "direction": self.spec.metric.goal}
            study = optuna.create_study(**kwargs, load_if_exists=True)
            stored = [trial for trial in study.get_trials(deepcopy=False) if "point" in trial.user_attrs]
            complete = (trial.user_attrs["point"] for trial in stored if trial.state == TrialState.COMPLETE)
            self.complete_before = set(map(key, complete))
            identity = {name: value for name, value in self.spec.plain().items() if name in _IDENTITY}
            if self.spec.method in LISTED or study.user_attrs.get("sweep", identity) != identity:
                for old in optuna.get_all_study_names(storage):
                    optuna.delete_study(study_name=old, storage=storage)
                study = optuna.create_study(**kwargs)
            study.set_user_attr("sweep", identity)
            study.set_metric_names([self.spec.metric.name])
            self._study, self._writes = study, True

    @property
    def points(self) -> list[Point]:
        """Return the points that are known so far, because they are listed or were proposed."""
        proposed = [] if self.spec.method in LISTED else [trial.user_attrs["point"] for trial in self._trials()]
        return list({key(point): point for point in (*self._listed, *proposed, *self._batch[1])}.values())

    def batches(self) -> Iterator[list[Point]]:
        """Yield the points that run together: first all known ones, then the proposals of a search, batch by batch.

        After each batch of a search, call `tell_batch`.
        """
        if points := self.points:
            yield points
        if self.spec.method in LISTED:
            return
        search = _Replay(self.spec, self._distributions())
        while True:
            trials = self._trials()
            of_batch = [trial for trial in trials if trial.user_attrs.get("batch") == search.batch]
            before = of_batch[0].number if of_batch else len(trials)
            search.learn(trial for trial in trials if "batch" not in trial.user_attrs and trial.number < before)
            size = of_batch[0].user_attrs["size"] if of_batch else self.spec.at_once or 1
            points = search.ask(size)
            if len(of_batch) < size:
                if not points:
                    return
                self._batch = search.batch, points
                yield points
                of_batch = [trial for trial in self._trials() if trial.user_attrs.get("batch") == search.batch]
            search.learn(of_batch)
            search.next_batch()

    def tell(self, trial: CompleteTrial) -> None:
        """Write a complete point of a grid. Points of a search are written when their batch is complete."""
        if self._writes and self.spec.method in LISTED and trial.point is not None:
            self._add(trial.point, trial, {})

    def tell_batch(self, complete: Iterable[CompleteTrial], failed: Collection[str]) -> None:
        """Report the results of a search's proposed points to Optuna, in the order in which they were proposed.

        `failed` has the keys of points. A point that failed in an earlier run and is complete now is written, too.
        """
        if self.spec.method in LISTED:
            return
        number, proposed = self._batch
        states = {(key(trial.user_attrs["point"]), trial.state) for trial in self._trials()}
        trial_of = {key(trial.point): trial for trial in complete if trial.point is not None}
        own = {key(point) for point in proposed}
        for point in self.points:
            name = key(point)
            if name in trial_of and (name, TrialState.COMPLETE) not in states:
                self._add(point, trial_of[name], {"batch": number, "size": len(own)} if name in own else {})
            elif name in failed and name in own and (name, TrialState.FAIL) not in states:
                self._add(point, None, {"batch": number, "size": len(own)})
        self._batch = 0, []

    def _add(self, point: Point, trial: CompleteTrial | None, attributes: Mapping[str, int]) -> None:
        assert self._study is not None
        kinds = self._distributions()
        values: dict[str, Any] = {"state": TrialState.FAIL}
        if trial is not None:
            values = {"state": TrialState.COMPLETE, "value": trial.metrics[self.spec.metric.name]}
        described = {"label": trial.label, "metrics": trial.metrics} if trial else {}
        values |= {"params": {name: point[name] for name in kinds}, "distributions": kinds}
        try:
            self._study.add_trial(create_trial(user_attrs={"point": dict(point), **described, **attributes}, **values))
        except OSError as failure:
            raise disk_error(failure, self._folder.journal, "every response that was stored is safe") from None

    def _distributions(self) -> dict[str, BaseDistribution]:
        """Return the parameters as Optuna knows them."""
        kinds: dict[str, BaseDistribution] = {}
        for name, parameter in self.spec.varied().items():
            values = parameter.listed
            if isinstance(parameter, Range):
                kinds[name] = FloatDistribution(parameter.min, parameter.max, log=parameter.log)
            elif self.spec.method in LISTED and all(type(value) in (int, float) for value in values):
                kinds[name] = FloatDistribution(min(map(float, values)), max(map(float, values)))
            else:
                kinds[name] = CategoricalDistribution(values)
        return kinds

    def _trials(self) -> list[FrozenTrial]:
        """Return the trials that were written, in that order."""
        with self._checked():
            if self._study is None and self._folder.journal.is_file():
                storage = _storage(self._folder.journal)
                if self.spec.name in optuna.get_all_study_names(storage):
                    self._study = optuna.load_study(study_name=self.spec.name, storage=storage)
            trials = self._study.get_trials(deepcopy=False) if self._study else []
            return [trial for trial in trials if trial.state.is_finished() and "point" in trial.user_attrs]

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Raise one DamagedError for any error of Optuna's about a journal that it did not write."""
        try:
            yield
        except UserError:
            raise
        except _UNREADABLE as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise DamagedError(
                f"is damaged, or was not written by Optuna ({reason})",
                argument="journal",
                value=self._folder.journal,
                hint="Move it away and run the sweep again: every response is kept, and no response is decoded twice.",
            ) from None


class _Replay:
    """Propose points batch by batch. The same results lead to the same proposals."""

    def __init__(self, spec: Search, distributions: Mapping[str, BaseDistribution]) -> None:
        startup = min(10, max(2, (spec.run_cap or 0) // 3))
        sampler = optuna.samplers.TPESampler(seed=spec.seed, n_startup_trials=startup)
        self._study = optuna.create_study(direction=spec.metric.goal, sampler=sampler)
        self._kinds, self._pair, self._most = dict(distributions), next(iter(spec.pairs)), spec.run_cap or 0
        self._proposed: set[str] = set()
        self._learned: set[int] = set()
        self._open_trials: dict[str, optuna.Trial] = {}
        self.batch = 0

    def ask(self, count: int) -> list[Point]:
        """Return new points: `count`, or fewer if the search is exhausted or has reached its limit."""
        points, doubles = list[Point](), 0
        while len(points) < count and len(self._proposed) < self._most and doubles < _DOUBLES:
            trial = self._study.ask(self._kinds)
            point: Point = {"pair": self._pair, **trial.params}
            if key(point) in self._proposed:  # nothing can be learned from it
                self._study.tell(trial, state=TrialState.FAIL)
                doubles += 1
                continue
            doubles = 0
            self._open_trials[key(point)] = trial
            self._proposed.add(key(point))
            points.append(point)
        return points

    def learn(self, trials: Iterable[FrozenTrial]) -> None:
        """Report the results of points to the sampler, once each, including those proposed by another version of
        Optuna."""
        for stored in trials:
            if stored.number in self._learned:
                continue
            self._learned.add(stored.number)
            name = key(stored.user_attrs["point"])
            if (trial := self._open_trials.pop(name, None)) is not None:
                self._study.tell(trial, stored.value, state=stored.state)
            else:
                self._proposed.add(name)
                self._study.add_trial(stored)

    def next_batch(self) -> None:
        """Begin another batch. Points that were requested but never tried may be proposed again."""
        for name, trial in self._open_trials.items():
            self._study.tell(trial, state=TrialState.FAIL)
            self._proposed.discard(name)
        self._open_trials = {}
        self.batch += 1


class _NoLock:
    """Do not lock anything, because the process that writes a study has locked the sweep."""

    def acquire(self) -> bool:
        """Return at once."""
        return True

    def release(self) -> None:
        """Return at once."""


def _cut_torn_end(journal: Path) -> None:
    """Cut off the rest of an entry after a full disk or a power failure, because Optuna would continue its line."""
    if journal.is_file() and not (text := journal.read_bytes()).endswith(b"\n"):
        write_file(journal, text[: text.rfind(b"\n") + 1])


def _storage(journal: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(journal), _NoLock()))  # pyright: ignore[reportArgumentType]

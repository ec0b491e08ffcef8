"""The trials of a sweep: which points there are, who works on which, what came out.

Optuna stores them and, in a search, proposes points. There are two studies: the points, and the references (base, RL,
gamma = 0 controls), which no sampler may learn from and no "best" may come out of.

There is one way to claim a trial and one to resume, whatever the sweep tries and however many work on it. Whoever
claims a trial writes its owner beside it, under the lock `claim`. A running trial whose owner has ended is retired as
FAIL, and its point enqueued again: so every point is complete exactly once, whoever was killed when.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import PurePosixPath
from typing import Annotated, Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import AfterValidator, Field

from harness.errors import DamagedError
from harness.records.lock import locked
from harness.spec import Decoding, Sampling, yaml_mapping
from harness.spec.search import LISTED, Parameter, Search
from harness.spec.stored import Count, Name, Number, Plain, Stored, Text, check_stored
from harness.spec.sweep import SweepSpec
from harness.sweep.folder import SweepFolder, check, dump
from harness.sweep.owner import Owner, gone
from harness.sweep.points import Point, key, names
from harness.sweep.specs import load
from harness.sweep.storage import open_storage, readable


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"results: {name!r} is refused; accepted: the name of a file inside the folder")
    return name


FileName = Annotated[Name, Field(pattern=r"^[^/\x00]+$")]
FileInside = Annotated[Name, AfterValidator(_inside)]  # of a training `NAME/seed-0/done.json`


class PointFile(Stored, frozen=True):
    """What every point, and every reference, has."""

    pair: Text


class DecodingFile(PointFile, frozen=True):
    """What it has in a sweep of decodings."""

    reference: Decoding | None = None
    sampling: Sampling | None = None


class TrainingFile(PointFile, frozen=True):
    """What it has in a sweep of trainings: the settings that a reference changes."""

    reference: Plain | None = None


class OwnerFile(Stored, frozen=True):
    """Who runs a trial; earlier code wrote other facts."""

    host: Text | None = None
    pid: Count | None = None
    lock: FileName | None = None


class TrialFile(Stored, frozen=True):
    """What is written beside a trial."""

    point: Plain | None = None
    owner: OwnerFile | None = None
    results: tuple[FileInside, ...] | None = None
    metrics: dict[str, Number] | None = None
    error: Text | None = None


OPEN = (TrialState.WAITING, TrialState.RUNNING)
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_DOUBLES = 25  # points in a row that a search may propose again before it is said to be at its end


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A trial that this process has claimed."""

    trial: Trial
    point: Point

    @property
    def is_reference(self) -> bool:
        """Tell whether it belongs to the references."""
        return "reference" in self.point


class Trials:
    """The two studies of a sweep, made where they are missing."""

    def __init__(self, spec: Search, folder: SweepFolder, *, extend: bool = False, worker: int = 0) -> None:
        self.spec, self.folder = spec, folder
        self.failures: Counter[str] = Counter()  # by point, in this run of the command
        self._owner: Owner | None = None
        self._place = folder.journal if spec.storage == "journal" else "the sweep's storage"
        with readable(self._place):
            self._open(extend, worker)

    def _open(self, extend: bool, worker: int) -> None:
        """Open both studies and check what they hold."""
        spec, storage = self.spec, open_storage(self.spec.storage, self.folder.journal)
        goals: list[Any] = [metric.goal for metric in spec.metric]
        self.points = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            directions=goals,
            pruner=_pruner(spec),
            load_if_exists=True,
        )
        self.points.sampler = _sampler(spec, len(self.all()) + 1000 * worker)
        self._agree(extend)
        if not self.points.metric_names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self.points.set_metric_names([metric.name for metric in spec.metric])
        self.references = optuna.create_study(
            study_name=f"{spec.name}-references",
            storage=storage,
            direction=goals[0],
            sampler=optuna.samplers.RandomSampler(),
            pruner=optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        for trial in self.everything():
            self._check(trial)

    def _check(self, trial: FrozenTrial) -> None:
        """Refuse a trial that this sweep cannot have written.

        Raises:
            DamagedError: naming what of it is of another type, or missing.
        """
        where = f"{self._place}, trial {trial.number}"
        kept = check_stored(trial.user_attrs, TrialFile, where)
        if kept.point is None:
            return
        form = DecodingFile if isinstance(self.spec, SweepSpec) else TrainingFile
        if (pair := check_stored(kept.point, form, f"{where}, its point").pair) not in self.spec.pairs:
            raise DamagedError(f"{where}, its point: pair={pair!r} is none of the sweep's pairs")
        if trial.state == TrialState.COMPLETE and "sampling" not in kept.point:  # those may have fewer samples
            asked = [*(metric.name for metric in self.spec.metric), *self.spec.constraints]
            if lacking := [name for name in asked if name not in (kept.metrics or {})]:
                raise DamagedError(f"{where} is complete and has no metric {lacking[0]!r}")
            if kept.results is None or not all(map(isfinite, trial.values)):
                raise DamagedError(f"{where} is complete and has no results")

    def _agree(self, extend: bool) -> None:
        """Refuse a database that holds another sweep of this name, begun from another folder."""
        stored = self.points.user_attrs.get("sweep")
        if stored is not None:
            asked = load(yaml_mapping(stored, "the sweep in its storage"))
            check(asked, self.spec, "the study in its storage", extend=extend)
        if stored != dump(self.spec):
            self.points.set_user_attr("sweep", dump(self.spec))
            self.points.set_user_attr("exhausted", False)

    # What there is

    def all(self, study: optuna.Study | None = None) -> list[FrozenTrial]:
        """Return all trials of a study (default: the points) as they are now."""
        return (study or self.points).get_trials(deepcopy=False)

    def everything(self) -> list[FrozenTrial]:
        """Return all trials of both studies, references first."""
        return [*self.all(self.references), *self.all()]

    def complete(self, study: optuna.Study | None = None) -> list[FrozenTrial]:
        """Return the complete trials, one a point, in the order of the points' numbers."""
        found: dict[str, FrozenTrial] = {}
        for trial in self.all(study):
            if trial.state == TrialState.COMPLETE and "point" in trial.user_attrs:
                found.setdefault(key(trial.user_attrs["point"]), trial)
        return list(found.values())

    def states(self) -> dict[str, int]:
        """Count the trials of the points by state; points, not attempts, are `interrupted` or `failed`.

        A point that was tried again since is neither.
        """
        trials, lost = self.all(), self._last_of_lost(self.all())
        by = {state.name.lower(): sum(trial.state == state for trial in trials) for state in TrialState}
        del by["fail"]
        failed = sum(failure(trial) is not None for trial in lost)
        return {**by, "interrupted": len(lost) - failed, "failed": failed}

    def ended(self) -> int:
        """Count the trials that are complete or pruned, references included."""
        return sum(trial.state in ENDED for trial in self.everything())

    def left(self) -> int:
        """Count the trials that wait, run, or will be proposed, references included."""
        open_ = sum(trial.state in OPEN for trial in self.everything())
        return open_ + (max(0, (self.spec.run_cap or 0) - len(self._taken())) if self._proposes() else 0)

    def _proposes(self) -> bool:
        """Tell whether this is a search that may still have new points."""
        return self.spec.method not in LISTED and not self.points.user_attrs.get("exhausted")

    def lost(self) -> list[Point]:
        """Return the points whose trials have all failed; with `ensure`, they are tried again."""
        return [trial.user_attrs["point"] for trial in self._last_of_lost(self.everything())]

    def failures_left(self) -> list[FrozenTrial]:
        """Return the last trial of each point, references included, that failed and was not tried again since."""
        return [trial for trial in self._last_of_lost(self.everything()) if failure(trial) is not None]

    def _last_of_lost(self, trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """Return the last trial of each point whose trials have all failed."""
        alive: dict[str, bool] = {}
        last: dict[str, FrozenTrial] = {}
        for trial in trials:
            if (point := trial.user_attrs.get("point")) is not None:
                last[key(point)] = trial
                alive[key(point)] = alive.get(key(point), False) or trial.state in (*OPEN, *ENDED)
        return [trial for name, trial in last.items() if not alive[name]]

    def feasible(self, trial: FrozenTrial) -> bool:
        """Tell whether a complete trial is within all constraints."""
        metrics = trial.user_attrs["metrics"]
        return all(
            (bounds.max is None or metrics[name] <= bounds.max) and (bounds.min is None or metrics[name] >= bounds.min)
            for name, bounds in self.spec.constraints.items()
        )

    def best(self, pair: str | None = None) -> list[FrozenTrial]:
        """Return the best complete point (of a pair) within the constraints; of several metrics the Pareto set."""
        trials = [trial for trial in self.complete() if self.feasible(trial)]
        trials = [trial for trial in trials if pair in (None, trial.user_attrs["point"]["pair"])]
        signs = [1.0 if metric.goal == "maximize" else -1.0 for metric in self.spec.metric]
        values = [[s * v for s, v in zip(signs, trial.values, strict=True)] for trial in trials]
        if len(signs) == 1:
            return [max(trials, key=lambda trial: signs[0] * trial.values[0])] if trials else []
        return [
            trial
            for trial, mine in zip(trials, values, strict=True)
            if not any(all(o >= m for o, m in zip(other, mine, strict=True)) and other != mine for other in values)
        ]

    # Claim and resume

    def ensure(self, points: Iterable[Point]) -> int:
        """Enqueue every point that is not waiting, running or done; the number enqueued.

        One that failed more than `retries` times in this run of the command is left alone.
        """
        by: dict[str, list[FrozenTrial]] = {}
        for trial in self.everything():
            if "point" in trial.user_attrs:
                by.setdefault(key(trial.user_attrs["point"]), []).append(trial)
        count = 0
        for name, point in {key(point): point for point in points}.items():
            before = by.get(name, [])
            if any(trial.state in (*OPEN, *ENDED) for trial in before) or self.failures[name] > self.spec.retries:
                continue
            about = {"point": point, "attempt": len(before) + 1}
            if before:
                about["retry_of"] = before[-1].number
            params = {each: point[each] for each in names(self.spec) if each in point} | _pair_param(self.spec, point)
            self._study(point).enqueue_trial(params, user_attrs=about)
            count += 1
        return count

    def ask(self, *, references_only: bool = False) -> Asked | None:
        """Claim the next trial: a reference, else a waiting point, else one that the search proposes.

        None if there is none now.
        """
        with locked(self.folder.claim):
            for study in (self.references,) if references_only else (self.references, self.points):
                if any(trial.state == TrialState.WAITING for trial in self.all(study)):
                    return self._claim(study)
            if references_only or not self._proposes():
                return None
            for _ in range(_DOUBLES):
                taken = self._taken()
                if len(taken) >= (self.spec.run_cap or 0):
                    return None
                asked = self._claim(self.points)
                if key(asked.point) not in {key(t.user_attrs["point"]) for t in taken if "point" in t.user_attrs}:
                    return asked
                self.points.tell(asked.trial, state=TrialState.FAIL)  # it is known already: nothing to learn
            self.points.set_user_attr("exhausted", True)
        return None

    def _claim(self, study: optuna.Study) -> Asked:
        if self._owner is None:
            self._owner = Owner(self.folder.workers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about fixed values beside the grid's ends
            trial = study.ask()
            trial.set_user_attr("owner", self._owner.facts)
            point = trial.user_attrs.get("point")
            if study is self.points:
                suggested = {name: _suggest(trial, name, p, self.spec, point) for name, p in names(self.spec).items()}
                if len(self.spec.pairs) > 1:
                    trial.suggest_categorical("pair", list(self.spec.pairs))
                if point is None:
                    point = {"pair": next(iter(self.spec.pairs)), **suggested}
                    trial.set_user_attr("point", point)
                    trial.set_user_attr("attempt", 1)
        return Asked(trial, point or {})

    def _taken(self) -> list[FrozenTrial]:
        """Return the points that count against `run_cap`."""
        return [trial for trial in self.all() if trial.state in (*OPEN, *ENDED)]

    def _study(self, point: Point) -> optuna.Study:
        return self.references if "reference" in point else self.points

    def retire(self) -> list[Point]:
        """Fail the running trials whose owner has ended; their points, which `ensure` enqueues again.

        Nobody claims at the same time, so a running trial without an owner was left by a process that ended there.
        """
        retired = []
        with locked(self.folder.claim):
            for study in (self.references, self.points):
                for trial in self.all(study):
                    owner = trial.user_attrs.get("owner")
                    if trial.state == TrialState.RUNNING and gone(owner, self.folder.workers):
                        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                        retired += [trial.user_attrs["point"]] if "point" in trial.user_attrs else []
        return retired

    def release(self) -> None:
        """Give up the claims of this process: what it has not finished can be retired."""
        if self._owner is not None:
            self._owner.release()
            self._owner = None

    # What came out

    def finish(self, asked: Asked, files: Sequence[str], metrics: dict[str, float], **about: Any) -> None:
        """Complete a trial: write down its result files, its metrics and what else is known, and tell the sampler."""
        trial = asked.trial
        for name, value in about.items():
            trial.set_user_attr(name, value)
        trial.set_user_attr("results", list(files))
        trial.set_user_attr("metrics", metrics)
        for name, bounds in self.spec.constraints.items():
            if name not in metrics:  # of a reference that is drawn otherwise, with fewer samples
                continue
            if bounds.max is not None:
                trial.set_constraint(f"{name} <= {bounds.max:g}", metrics[name] - bounds.max)
            if bounds.min is not None:
                trial.set_constraint(f"{name} >= {bounds.min:g}", bounds.min - metrics[name])
        if asked.is_reference:
            # Nobody chooses among references; one with fewer samples has no such metric.
            self.references.tell(trial, metrics.get(self.spec.metric[0].name, 0.0))
        else:
            self.points.tell(trial, [metrics[metric.name] for metric in self.spec.metric])

    def prune(self, asked: Asked, **after: Any) -> None:
        """End a trial early, and write down after what; it has no results and enters no table."""
        asked.trial.set_user_attr("pruned_after", after)
        self.points.tell(asked.trial, state=TrialState.PRUNED)

    def fail(self, asked: Asked, reason: str, *, counted: bool) -> None:
        """Fail a trial, unless it is over; `counted` against its point's retries."""
        study = self._study(asked.point)
        if any(t.number == asked.trial.number and t.state.is_finished() for t in self.all(study)):
            return
        asked.trial.set_user_attr("error", reason[:300])
        study.tell(asked.trial, state=TrialState.FAIL)
        if counted:
            self.failures[key(asked.point)] += 1

    @contextmanager
    def failing(self, batch: Iterable[Asked], *, counted: bool) -> Iterator[None]:
        """Fail those of a batch that are not over when an error passes through."""
        try:
            yield
        except BaseException as error:
            for asked in batch:
                self.fail(asked, f"{type(error).__name__}: {error}", counted=counted)
            raise


def failure(trial: FrozenTrial) -> str | None:
    """Return why a trial failed; None where it did not, or was interrupted: by Ctrl-C, or by what left no word."""
    why = trial.user_attrs.get("error")
    return None if why is None or why.startswith("KeyboardInterrupt:") else why


def _sampler(spec: Search, salt: int) -> optuna.samplers.BaseSampler:
    """Make the search; `salt` keeps a resumed one, and every worker's, from drawing what was drawn before."""
    if spec.method in LISTED:
        return optuna.samplers.RandomSampler()  # never asked: all points are enqueued
    kind = optuna.samplers.TPESampler if spec.method == "tpe" else optuna.samplers.GPSampler
    return kind(seed=spec.seed + salt, n_startup_trials=min(10, max(2, (spec.run_cap or 0) // 3)))


def _pruner(spec: Search) -> optuna.pruners.BasePruner:
    """Make the pruner of a sweep of decodings; trainings are compared seed by seed, which Optuna's cannot."""
    if not isinstance(spec, SweepSpec) or spec.pruner is None:
        return optuna.pruners.NopPruner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.pruners.WilcoxonPruner(p_threshold=spec.pruner.p, n_startup_steps=spec.pruner.startup)


def _suggest(trial: Trial, name: str, parameter: Parameter, spec: Search, point: Point | None) -> Any:
    """Tell Optuna of a parameter; for an enqueued point it gives the point's value.

    Listed numbers are a range to Optuna, so that a grid can be extended and its dashboard has number axes. Optuna's
    categories cannot grow: names that are new since a grid was begun are in its points, and not told. A search must
    only propose what is listed.
    """
    values = parameter.listed
    if values is None:
        low, high = parameter.range
        return trial.suggest_float(name, low, high, log=parameter.log)
    if spec.method not in LISTED:
        return trial.suggest_categorical(name, list(values))
    if any(isinstance(value, str) for value in values):
        told = (each.distributions.get(name) for each in trial.study.get_trials(deepcopy=False))
        first = next((one for one in told if isinstance(one, CategoricalDistribution)), None)
        known = first.choices if first else tuple(dict.fromkeys([*spec.choices.get(name, ()), *values]))
        return trial.suggest_categorical(name, known) if point and point[name] in known else None
    numbers = [float(value) for value in values]
    return trial.suggest_float(name, min(numbers), max(numbers))


def _pair_param(spec: Search, point: Point) -> dict[str, Any]:
    return {"pair": point["pair"]} if len(spec.pairs) > 1 and "reference" not in point else {}

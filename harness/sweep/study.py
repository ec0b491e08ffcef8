"""The book of trials: which points there are, who works on which, what came out. Optuna holds it; these are our rules.

Two studies: the sweep's points, and its references (base, RL, gamma = 0 controls), which no sampler may learn from and
no "best" may come out of. A trial is claimed with its owner written beside it; one whose owner is dead is retired as
FAIL and its point enqueued again, so every point is complete exactly once, whoever was killed when.
"""

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from harness.records.lock import locked
from harness.spec.search import LISTED, Parameter, Search
from harness.spec.sweep import Wilcoxon
from harness.sweep.folder import Folder, check, dump
from harness.sweep.kinds import load
from harness.sweep.owner import dead, me
from harness.sweep.points import Point, key, names
from harness.sweep.storage import open_storage

OPEN = (TrialState.WAITING, TrialState.RUNNING)
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_YOUNG = 2.0  # seconds within which a trial may have been claimed without its owner being written yet
_PATIENCE = 15.0  # seconds for the workers of a killed parent to notice
_DOUBLES = 25  # points in a row that a search may propose again before it is said to be at its end


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A trial that this process has claimed."""

    trial: Trial
    point: Point

    @property
    def is_reference(self) -> bool:
        """Whether it belongs to the references."""
        return "reference" in self.point


class Book:
    """The two studies of a sweep, made where they are missing."""

    def __init__(self, spec: Search, folder: Folder, *, extend: bool = False, worker: int = 0) -> None:
        self.spec, self.folder = spec, folder
        storage = open_storage(spec.storage, folder.journal)
        goals = [metric.goal for metric in spec.metric]
        self.points = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            directions=goals,
            pruner=_pruner(spec),
            load_if_exists=True,
        )
        self.points.sampler = _sampler(spec, len(self.trials()) + 1000 * worker)
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
        self.failures: Counter[str] = Counter()  # by point, in this run of the command

    def _agree(self, extend: bool) -> None:
        """A database may hold another sweep of this name, begun from another folder."""
        stored = self.points.user_attrs.get("sweep")
        if stored is not None:
            import yaml

            check(load(yaml.safe_load(stored)), self.spec, "the study in its storage", extend=extend)
        if stored != dump(self.spec):
            self.points.set_user_attr("sweep", dump(self.spec))

    def study(self, point: Point) -> optuna.Study:
        """The study that a point belongs to."""
        return self.references if "reference" in point else self.points

    def trials(self, study: optuna.Study | None = None) -> list[FrozenTrial]:
        """All trials of a study (default: the points) as they are now."""
        return (study or self.points).get_trials(deepcopy=False)

    def complete(self, study: optuna.Study | None = None) -> list[FrozenTrial]:
        """The complete trials, one a point, in the order of the points' numbers."""
        found: dict[str, FrozenTrial] = {}
        for trial in self.trials(study):
            if trial.state == TrialState.COMPLETE and "point" in trial.user_attrs:
                found.setdefault(key(trial.user_attrs["point"]), trial)
        return list(found.values())

    def ensure(self, points: Iterable[Point]) -> int:
        """Enqueues every point that is not waiting, running or done; the number enqueued.

        One that failed more than `retries` times in this run of the command is left alone.
        """
        by: dict[str, list[FrozenTrial]] = {}
        for study in (self.points, self.references):
            for trial in self.trials(study):
                if "point" in trial.user_attrs:
                    by.setdefault(key(trial.user_attrs["point"]), []).append(trial)
        wanted = {key(point): point for point in points}
        count = 0
        for name, point in wanted.items():
            before = by.get(name, [])
            if any(trial.state in (*OPEN, *ENDED) for trial in before) or self.failures[name] > self.spec.retries:
                continue
            about = {"point": point, "attempt": len(before) + 1}
            if before:
                about["retry_of"] = before[-1].number
            params = {each: point[each] for each in names(self.spec) if each in point} | _pair_param(self.spec, point)
            self.study(point).enqueue_trial(params, user_attrs=about)
            count += 1
        return count

    def lost(self) -> list[Point]:
        """Points whose trials have all failed; with `ensure`, they are tried again."""
        state: dict[str, tuple[Point, bool]] = {}
        for study in (self.points, self.references):
            for trial in self.trials(study):
                if "point" in trial.user_attrs:
                    point = trial.user_attrs["point"]
                    alive = state.get(key(point), (point, False))[1]
                    state[key(point)] = point, alive or trial.state in (*OPEN, *ENDED)
        return [point for point, alive in state.values() if not alive]

    def reclaim(self, pid: int | None = None) -> list[Point]:
        """Retires running trials whose owner is dead; their points. `pid`: only those of that process of this host.

        Whoever calls this holds the sweep's lock. Trials too young to bear an owner, and those of processes that are
        just being ended, are waited for.
        """
        deadline = time.monotonic() + _PATIENCE
        retired: list[Point] = []
        while True:
            doubtful = False
            for study in (self.points, self.references):
                for trial in self.trials(study):
                    if trial.state != TrialState.RUNNING:
                        continue
                    owner = trial.user_attrs.get("owner")
                    if pid is not None and (owner is None or owner["pid"] != pid):
                        continue
                    if owner is None and time.time() - trial.datetime_start.timestamp() < _YOUNG:
                        doubtful = True
                    elif dead(owner, self.folder.workers):
                        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                        retired += [trial.user_attrs["point"]] if "point" in trial.user_attrs else []
                    else:
                        doubtful = True
            if not doubtful or pid is not None or time.monotonic() > deadline:
                return retired
            time.sleep(0.2)

    def ask(self, *, references_only: bool = False) -> Asked | None:
        """Claims the next trial: a reference, else a waiting point, else one that the search proposes; None if there is
        none now."""
        with locked(self.folder.claim):
            for study in (self.references,) if references_only else (self.references, self.points):
                if any(trial.state == TrialState.WAITING for trial in self.trials(study)):
                    return self._claim(study)
            if references_only or self.spec.method in LISTED:
                return None
            for _ in range(_DOUBLES):
                taken = [t for t in self.trials() if t.state in (*OPEN, *ENDED)]
                if len(taken) >= self.spec.run_cap:
                    return None
                asked = self._claim(self.points)
                if key(asked.point) not in {key(t.user_attrs["point"]) for t in taken if "point" in t.user_attrs}:
                    return asked
                self.points.tell(asked.trial, state=TrialState.FAIL)  # it is known already: nothing to learn
        return None

    def _claim(self, study: optuna.Study) -> Asked:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about fixed values beside the grid's ends
            trial = study.ask()
            trial.set_user_attr("owner", me())
            point = trial.user_attrs.get("point")
            if study is self.points:
                suggested = {name: _suggest(trial, name, p, self.spec) for name, p in names(self.spec).items()}
                if len(self.spec.pairs) > 1:
                    trial.suggest_categorical("pair", list(self.spec.pairs))
                if point is None:
                    point = {"pair": next(iter(self.spec.pairs)), **suggested}
                    trial.set_user_attr("point", point)
                    trial.set_user_attr("attempt", 1)
        return Asked(trial, point)

    def finish(self, asked: Asked, files: Sequence[str], metrics: dict[str, float], **about: Any) -> None:
        """A trial is complete: its result files, its metrics and what else is known of it are written down, the sampler
        is told."""
        trial = asked.trial
        for name, value in about.items():
            trial.set_user_attr(name, value)
        trial.set_user_attr("results", list(files))
        trial.set_user_attr("metrics", metrics)
        for name, bounds in self.spec.constraints.items():
            if bounds.max is not None:
                trial.set_constraint(f"{name} <= {bounds.max:g}", metrics[name] - bounds.max)
            if bounds.min is not None:
                trial.set_constraint(f"{name} >= {bounds.min:g}", bounds.min - metrics[name])
        if asked.is_reference:
            self.references.tell(trial, metrics[self.spec.metric[0].name])
        else:
            self.points.tell(trial, [metrics[metric.name] for metric in self.spec.metric])

    def prune(self, asked: Asked, **after: Any) -> None:
        """A trial is ended early, and after what; it has no results and enters no table."""
        asked.trial.set_user_attr("pruned_after", after)
        self.points.tell(asked.trial, state=TrialState.PRUNED)

    def give_up(self, asked: Asked, reason: str, *, counted: bool) -> None:
        """A trial could not be completed, unless it is; `counted` against its point's retries."""
        study = self.study(asked.point)
        if any(t.number == asked.trial.number and t.state.is_finished() for t in self.trials(study)):
            return
        asked.trial.set_user_attr("error", reason[:300])
        study.tell(asked.trial, state=TrialState.FAIL)
        if counted:
            self.failures[key(asked.point)] += 1

    def feasible(self, trial: FrozenTrial) -> bool:
        """Whether a complete trial is within all constraints."""
        metrics = trial.user_attrs["metrics"]
        return all(
            (bounds.max is None or metrics[name] <= bounds.max) and (bounds.min is None or metrics[name] >= bounds.min)
            for name, bounds in self.spec.constraints.items()
        )

    def best(self, pair: str | None = None) -> list[FrozenTrial]:
        """The best complete point (of a pair) within the constraints; of several metrics the Pareto set."""
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


def _sampler(spec: Search, salt: int) -> optuna.samplers.BaseSampler:
    """The search; `salt` keeps a resumed one, and every worker's, from drawing what was drawn before."""
    if spec.method in LISTED:
        return optuna.samplers.RandomSampler()  # never asked: all points are enqueued
    kind = optuna.samplers.TPESampler if spec.method == "tpe" else optuna.samplers.GPSampler
    return kind(seed=spec.seed + salt, n_startup_trials=min(10, max(2, spec.run_cap // 3)))


def _pruner(spec: Search) -> optuna.pruners.BasePruner:
    if not isinstance(spec.pruner, Wilcoxon):
        return optuna.pruners.NopPruner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.pruners.WilcoxonPruner(p_threshold=spec.pruner.p, n_startup_steps=spec.pruner.startup)


def _suggest(trial: Trial, name: str, parameter: Parameter, spec: Search) -> Any:
    """Tells Optuna of a parameter; for an enqueued point it gives the point's value.

    Listed numbers are a range to Optuna and listed names all that the parameter knows, so that a grid can be extended
    (Optuna's categories cannot) and its dashboard has number axes. A search must only propose what is listed.
    """
    values = parameter.listed
    if values is None:
        return trial.suggest_float(name, parameter.min, parameter.max, log=parameter.log)
    if spec.method in LISTED:
        if name not in spec.choices:
            return trial.suggest_float(name, min(values), max(values))
        return trial.suggest_categorical(name, list(spec.choices[name]))
    return trial.suggest_categorical(name, list(values))


def _pair_param(spec: Search, point: Point) -> dict[str, Any]:
    return {"pair": point["pair"]} if len(spec.pairs) > 1 and "reference" not in point else {}

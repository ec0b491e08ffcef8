"""Optuna's part: it proposes the points of a search, and its storage is where the trials of any sweep are looked at.

A journal file by default, PostgreSQL for many machines, sqlite for one worker. What is done of a sweep is not read from
here, but from its folder.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from harness.errors import DamagedError, UserError
from harness.spec import yaml_mapping
from harness.spec.search import LISTED, Range, Search
from harness.sweep.folder import SweepFolder, check, dump
from harness.sweep.points import Point, key
from harness.sweep.specs import load
from harness.sweep.trials import Trial

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

# What Optuna raises of a journal that is none.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_DOUBLES = 25  # points in a row that a search may propose again before it is said to be at its end
_STATES = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}


class Study:
    """The study of a sweep, made where it is missing; references are no part of it, for no sampler may learn of them.

    Raises:
        UserError: the storage cannot be opened, or has another sweep of this name.
        DamagedError: it cannot be read.
    """

    def __init__(self, spec: Search, folder: SweepFolder, *, extend: bool = False, worker: int = 0) -> None:
        self._spec, self._asked, self._at_end = spec, dict[str, optuna.Trial](), False
        where = folder.journal if spec.storage == "journal" else "the sweep's storage"
        try:
            self._study = optuna.create_study(
                study_name=spec.name,
                storage=_open(spec.storage, folder.journal),
                direction=spec.metric.goal,
                pruner=optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
            self._agree(extend)
            self._study.sampler = _sampler(spec, len(self._trials()) + 1000 * worker)
        except UserError:
            raise
        except _UNREADABLE as e:
            reason = f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
            raise DamagedError(
                f"{where} is damaged, or was not written by Optuna ({reason}); move it away and run the sweep again: "
                "no rollout is lost, none is decoded twice"
            ) from None

    def _agree(self, extend: bool) -> None:
        stored = self._study.user_attrs.get("sweep")
        if stored is not None:
            check(load(yaml_mapping(stored, "the sweep in its storage")), self._spec, "its storage", extend=extend)
        if stored != dump(self._spec):
            self._study.set_user_attr("sweep", dump(self._spec))
            self._study.set_metric_names([self._spec.metric.name])

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def resume(self) -> None:
        """Have points that a killed process of a search was at proposed again, first of all."""
        for trial in self._trials():
            if trial.state == TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                if "point" in trial.user_attrs:
                    self._study.enqueue_trial(trial.params, user_attrs={"point": trial.user_attrs["point"]})

    def proposed(self) -> list[Point]:
        """Return the points that a search has proposed so far."""
        points = [trial.user_attrs["point"] for trial in self._trials() if "point" in trial.user_attrs]
        return list({key(point): point for point in points}.values())

    def propose(self, most: int) -> list[Point]:
        """Return up to so many new points of a search; none where it has proposed all it may, or all there are."""
        found: list[Point] = []
        doubles, spec = 0, self._spec
        while spec.method not in LISTED and len(found) < most and not self._at_end:
            waits = any(trial.state == TrialState.WAITING for trial in self._trials())
            known = {key(point) for point in self.proposed()}
            if not waits and len(known) >= (spec.run_cap or 0):
                break
            trial = self._study.ask()
            point: Point = {"pair": next(iter(spec.pairs))}
            for name, parameter in spec.varied().items():
                if isinstance(parameter, Range):
                    point[name] = trial.suggest_float(name, parameter.min, parameter.max, log=parameter.log)
                else:
                    point[name] = trial.suggest_categorical(name, list(parameter.listed))
            if len(spec.pairs) > 1:
                point["pair"] = trial.suggest_categorical("pair", list(spec.pairs))
            if not waits and key(point) in known:  # nothing to learn
                self._study.tell(trial, state=TrialState.FAIL)
                doubles += 1
                self._at_end = doubles == _DOUBLES
                continue
            trial.set_user_attr("point", point)
            self._asked[key(point)] = trial
            found.append(point)
        return found

    def number(self, point: Point) -> int | None:
        """Return the number of a point that was proposed here."""
        asked = self._asked.get(key(point))
        return None if asked is None else asked.number

    def tell(self, trial: Trial) -> None:
        """Tell the sampler what came out, or, of a listed point, whoever looks at the storage."""
        point = trial.point
        value = trial.metrics[self._spec.metric.name] if trial.state == "complete" else None
        if (asked := self._asked.pop(key(point), None)) is not None:
            self._study.tell(asked, value, state=_STATES[trial.state])
        elif self._spec.method in LISTED and not self._shows(point):
            kinds = self._distributions(point)
            self._study.add_trial(
                create_trial(
                    state=_STATES[trial.state],
                    value=value,
                    params={name: point[name] for name in kinds},
                    distributions=kinds,
                    user_attrs={"point": dict(point), "metrics": dict(trial.metrics)},
                )
            )

    def _shows(self, point: Mapping[str, Any]) -> bool:
        """Tell whether a listed point is there already; that it has failed is no end of it."""
        over = [trial for trial in self._trials() if trial.state == TrialState.COMPLETE]
        return any(trial.user_attrs.get("point") == point for trial in over)

    def _distributions(self, point: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return Optuna's idea of a listed point's parameters: numbers as ranges, so that a grid can be extended.

        Its categories cannot grow: of names those that any sweep may have.
        """
        found: dict[str, BaseDistribution] = {}
        for name, parameter in self._spec.varied().items():
            values = parameter.listed
            if isinstance(parameter, Range):
                found[name] = FloatDistribution(parameter.min, parameter.max, log=parameter.log)
            elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                found[name] = FloatDistribution(min(map(float, values)), max(map(float, values)))
            elif point[name] in (choices := self._spec.choices(name)):
                found[name] = CategoricalDistribution(choices)
        return found


def _sampler(spec: Search, salt: int) -> optuna.samplers.BaseSampler:
    """Make the search; `salt` keeps a resumed one, and every worker's, from drawing what was drawn before."""
    if spec.method in LISTED:
        return optuna.samplers.RandomSampler()  # never asked
    startup = min(10, max(2, (spec.run_cap or 0) // 3))
    return optuna.samplers.TPESampler(seed=spec.seed + salt, n_startup_trials=startup)


def _open(storage: str, journal: Path) -> Any:
    """Open the storage that a sweep names; environment variables in it are filled in: it need not hold a password.

    Raises:
        UserError: the database cannot be reached, or its driver is not installed.
    """
    url = os.path.expandvars(storage)
    if url == "journal":
        return JournalStorage(JournalFileBackend(str(journal)))
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

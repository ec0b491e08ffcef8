"""A sweep of trainings: settings of DAPO to be tried, each with several seeds, beside plain DAPO.

    spec = parse(TrainingSweep, read_yaml("sweep.yaml"))

`train` is a file of `rlvr-dir train` without its seeds; parameters are keys of its `dapo`, as `train.alpha`.
"""

import types
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, Field

from harness.errors import UserError, unknown
from harness.spec.base import Spec, shown
from harness.spec.evaluation import is_benchmark
from harness.spec.search import (
    LISTED,
    Parameter,
    Search,
    check_search,
    covering_points,
    parameter_of,
    read_pruner,
)
from harness.sweep.points import Point, listed_points
from harness.train.defaults import complete
from harness.train.settings import DapoSettings
from harness.train.spec import TrainSpec

REWEIGHTING = ("method", "alpha", "pi_source", "ppl_scope")  # what plain DAPO has none of
SHARED = ("truncated_share", "mean_tokens")
PARAMETERS = tuple(f"train.{name}" for name in DapoSettings.model_fields if name not in ("seed", "grader"))


class Median(Spec, frozen=True):
    """Ends a point early whose validation is worse than the median of the finished points', at the same seed and step.

    `startup` points are finished before the first is ended; a seed's validations before step `after` end none.
    """

    startup: int = Field(default=4, ge=1)
    after: int = Field(default=0, ge=0)


def _read_train(value: Any) -> dict[str, Any]:
    """Read what all points have in common: a file of `rlvr-dir train` without its seeds."""
    if not isinstance(value, Mapping):
        raise UserError(f"train={value!r} is refused; accepted: what a file of `rlvr-dir train` says")
    for name in ("seed", "seeds"):
        if name in value:
            raise UserError(
                f"train.{name}={value[name]!r} is refused: all points have the same; accepted: seeds: [0, 1]"
            )
    return dict(value)


class TrainingSweep(Search, frozen=True):
    """A whole sweep of trainings.

    Plain DAPO with everything else as `train` says it is always trained, with the same seeds, as the reference.
    """

    accepted: ClassVar[tuple[str, ...]] = PARAMETERS

    kind: Literal["train"] = "train"
    train: Annotated[dict[str, Any], BeforeValidator(_read_train)] = Field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    pruner: Annotated[Median | None, BeforeValidator(lambda value: read_pruner(value, "median", Median))] = None

    @cached_property
    def plain_dapo(self) -> TrainSpec:
        """The reference. A `clip_high` that `train` names is kept."""
        given = {name: value for name, value in self._dapo.items() if name not in REWEIGHTING}
        return self._complete({**given, "method": "none"})

    def training(self, point: Point) -> TrainSpec:
        """Return what is trained at a point, or as a reference.

        Raises:
            UserError: the point contradicts itself.
        """
        if "reference" in point:
            return self.plain_dapo
        return self._complete({**self._dapo, **{n.removeprefix("train."): point[n] for n in PARAMETERS if n in point}})

    @property
    def _dapo(self) -> dict[str, Any]:
        given = self.train.get("dapo") or {}
        if not isinstance(given, Mapping):
            accepted = ", ".join(DapoSettings.model_fields)
            raise UserError(f"train.dapo={shown(given)} is refused; accepted: a mapping of {accepted}")
        return dict(given)

    def _complete(self, dapo: dict[str, Any]) -> TrainSpec:
        return complete({**self.train, "dapo": dapo, "seeds": list(self.seeds)})

    @property
    def pairs(self) -> Mapping[str, None]:
        """The base that all trainings start from."""
        return {self.plain_dapo.base.rstrip("/").split("/")[-1]: None}

    @property
    def choices(self) -> Mapping[str, tuple[Any, ...]]:
        """The parameters that are names or switches, with all of these."""
        every = {name: _choices(name) for name in PARAMETERS}
        return {name: values for name, values in every.items() if values}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics there are, Avg@k of the validation first: means over benchmarks, then over seeds."""
        samples = self.plain_dapo.validation.sampling.samples
        return (f"avg_at_{samples}", f"pass_at_{max(1, samples // 2)}", *SHARED)

    def plain(self) -> dict[str, Any]:
        """Return the sweep as plain values with its defaults filled in; `parse` restores it."""
        return {**super().plain(), "pruner": {"median": self.pruner.model_dump()} if self.pruner else "none"}

    def check(self) -> None:
        """Refuse what one field alone cannot tell.

        Raises:
            UserError: naming the first thing that does not fit.
        """
        self._complete(self._dapo)  # its own mistakes first, under its own names
        check_search(self)
        for name in self.parameters:
            if (key := name.removeprefix("train.")) in self._dapo:
                raise UserError(f"{name} is both fixed (train.dapo.{key}) and varied (parameters); give one of them")
        if not self.plain_dapo.validation.tasks:
            raise UserError("train.validation.tasks is missing: a point is judged by its score on benchmarks")
        for what in (*(metric.name for metric in self.metric), *self.constraints):
            if what not in self.metrics and all(map(is_benchmark, self.plain_dapo.validation.tasks)):
                raise unknown("metric", what, self.metrics)
        if self.pruner is not None and len(self.metric) > 1:
            raise UserError("pruner: it compares one metric; several metrics give a Pareto set without it")
        if self.pruner is not None and self.plain_dapo.backend != "trl":
            raise UserError(f"pruner: backend={self.plain_dapo.backend!r} is not scored on the way; accepted: none")
        if self.pruner is not None and not self.plain_dapo.validation.every:
            raise UserError("pruner: median needs validations on the way; give train.validation.every in steps")
        every = listed_points(self) if self.method in LISTED else covering_points(self)
        trained = [self.training(point).same for point in every]
        for number, one in enumerate(trained):
            if self.method == "grid" and one in trained[:number]:
                raise UserError(f"parameters: two points are the same training, {one.dapo.label}")

    @classmethod
    def parameter(cls, name: str, value: Any) -> Parameter:
        """Read one entry of `parameters`: numbers, or choices out of a field's own.

        Raises:
            UserError: it is refused.
        """
        where, kind = f"parameters.{name}", _annotation(name)
        parameter = parameter_of(where, value, numeric=kind is float)
        if parameter.ratio is not None:
            raise UserError(f"{where}.ratio is refused; accepted: values, or min and max")
        if parameter.listed is None and kind is not float:
            raise UserError(f"{where} has a range; accepted: values")
        accepted = _choices(name)
        for each in parameter.listed or ():
            if accepted and each not in accepted:
                raise unknown(where, each, accepted)
        return parameter


def _annotation(name: str) -> Any:
    """Return the type of a field of `DapoSettings`, without its None."""
    kind = DapoSettings.model_fields[name.removeprefix("train.")].annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    return kind


def _choices(name: str) -> tuple[Any, ...]:
    kind = _annotation(name)
    if kind is bool:
        return (False, True)
    return get_args(kind) if get_origin(kind) is Literal else ()

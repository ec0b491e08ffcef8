"""A sweep of trainings: settings of DAPO to be tried, each with several seeds, beside plain DAPO.

    spec = load_sweep(yaml.safe_load(text))

`train` is a file of `rlvr-dir train` without its seeds; parameters are keys of its `dapo`, as `train.alpha`.
"""

import types
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import Field

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse
from harness.spec.search import (
    LISTED,
    Metric,
    Parameter,
    Search,
    check_search,
    corners,
    fields_of,
    known_keys,
    parameter_of,
    part,
)
from harness.sweep.points import Point, listed_points
from harness.train.defaults import complete
from harness.train.settings import DapoSettings
from harness.train.spec import TrainSpec

REWEIGHTING = ("method", "alpha", "pi_source", "ppl_scope")  # what plain DAPO has none of
SHARED = ("truncated_share", "mean_tokens")
PARAMETERS = tuple(f"train.{name}" for name in DapoSettings.model_fields if name not in ("seed", "grader"))


class Median(Spec):
    """Ends a point early whose validation is below the median of the finished points', at the same seed and step.

    `startup` points are finished before the first is ended; a seed's validations before step `after` end none.
    """

    startup: int = Field(default=4, ge=1)
    after: int = Field(default=0, ge=0)


class TrainingSweep(Search):
    """A whole sweep of trainings. `load_sweep` makes it.

    Plain DAPO with everything else as `train` says it is always trained, with the same seeds, as the reference.
    """

    kind: Literal["train"] = "train"
    train: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    pruner: Median | None = None

    @cached_property
    def plain_dapo(self) -> TrainSpec:
        """The reference. A `clip_high` that `train` names is kept."""
        given = {name: value for name, value in self._dapo.items() if name not in REWEIGHTING}
        return self._complete({**given, "method": "none"})

    def training(self, point: Point) -> TrainSpec:
        """What is trained at a point, or as a reference.

        Raises:
            UserError: the point contradicts itself.
        """
        if "reference" in point:
            return self.plain_dapo
        return self._complete({**self._dapo, **{n.removeprefix("train."): point[n] for n in PARAMETERS if n in point}})

    @property
    def _dapo(self) -> dict[str, Any]:
        return dict(self.train.get("dapo") or {})

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
        """The sweep as plain values, everything said, that `load_sweep` reads back."""
        return {**super().plain(), "pruner": {"median": self.pruner.model_dump()} if self.pruner else "none"}


def load_sweep(data: Mapping[str, Any]) -> TrainingSweep:
    """A sweep of trainings from its YAML.

    Raises:
        UserError: an unknown key (the sentence has the nearest one), a value that is refused, or parts that do not fit
            together.
    """
    fields = fields_of(data, TrainingSweep, ("name", "parameters"))
    train = fields.get("train") or {}
    if not isinstance(train, Mapping):
        raise UserError(f"train={train!r} is refused; accepted: what a file of `rlvr-dir train` says")
    for name in ("seed", "seeds"):
        if name in train:
            raise UserError(
                f"train.{name}={train[name]!r} is refused: all points have the same; accepted: seeds: [0, 1]"
            )
    fields["train"] = dict(train)
    known_keys("parameters", fields["parameters"], PARAMETERS)
    fields["parameters"] = {name: _parameter(name, value) for name, value in fields["parameters"].items()}
    fields["pruner"] = _pruner(fields.get("pruner"))
    spec = parse(TrainingSweep, fields)
    complete({**spec.train, "seeds": list(spec.seeds)})  # its own mistakes first, under its own names
    if not spec.metric:
        spec = spec.model_copy(update={"metric": (Metric(name=spec.metrics[0]),)})
    _check(spec)
    return spec


def _check(spec: TrainingSweep) -> None:
    check_search(spec)
    for name in spec.parameters:
        if (key := name.removeprefix("train.")) in spec._dapo:
            raise UserError(f"{name} is both fixed (train.dapo.{key}) and varied (parameters); give one of them")
    if not spec.plain_dapo.validation.tasks:
        raise UserError("train.validation.tasks is missing: a point is judged by Avg@k on benchmarks")
    for what in (*(metric.name for metric in spec.metric), *spec.constraints):
        if what not in spec.metrics:
            raise unknown("metric", what, spec.metrics)
    if spec.pruner is not None and spec.metric != (Metric(name=spec.metrics[0]),):
        raise UserError(f"pruner: it compares {spec.metrics[0]} alone; metric is another, or several")
    if spec.pruner is not None and spec.plain_dapo.backend != "trl":
        raise UserError(f"pruner: backend={spec.plain_dapo.backend!r} is not scored on the way; accepted: none")
    if spec.pruner is not None and not spec.plain_dapo.validation.every:
        raise UserError("pruner: median needs validations on the way; give train.validation.every in steps")
    every = listed_points(spec) if spec.method in LISTED else corners(spec)
    trained = [spec.training(point).same for point in every]
    for number, one in enumerate(trained):
        if spec.method == "grid" and one in trained[:number]:
            raise UserError(f"parameters: two points are the same training, {one.dapo.label}")


def _parameter(name: str, value: Any) -> Parameter:
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


def _pruner(value: Any) -> Median | None:
    if value in (None, "none"):
        return None
    if value == "median":
        return Median()
    if not isinstance(value, Mapping):
        raise unknown("pruner", value, ("none", "median"))
    known_keys("pruner", value, ("median",))
    return part(Median, value["median"] or {}, "pruner.median")


def _annotation(name: str) -> Any:
    """The type of a field of `DapoSettings`, without its None."""
    kind = DapoSettings.model_fields[name.removeprefix("train.")].annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    return kind


def _choices(name: str) -> tuple[Any, ...]:
    kind = _annotation(name)
    if kind is bool:
        return (False, True)
    return get_args(kind) if get_origin(kind) is Literal else ()

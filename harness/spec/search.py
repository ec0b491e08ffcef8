"""What every sweep says, whatever it tries: which values, chosen how, what counts as better, who works on it.

`harness.spec.sweep` has sweeps of decodings, `harness.sweep.training` sweeps of trainings.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse, shown

SearchMethod = Literal["grid", "random", "qmc", "tpe", "gp"]
LISTED = ("grid", "random", "qmc")  # methods whose points are all known before anything runs
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Parameter(Spec, frozen=True):
    """What one parameter may be: some `values`, or anything from `min` to `max` (`log`: evenly in its logarithm).

    `ratio` is for `decode.tau`: thresholds for these replacement ratios are found from the base generation.
    """

    values: tuple[bool | int | float | str, ...] | None = None
    min: float | None = None
    max: float | None = None
    log: bool = False
    ratio: tuple[float, ...] | None = None

    @property
    def listed(self) -> tuple[bool | int | float | str, ...] | None:
        """The values or ratios; None for a range."""
        return self.values if self.values is not None else self.ratio

    @property
    def range(self) -> tuple[float, float]:
        """Return the least and the greatest value of a range."""
        if self.min is None or self.max is None:
            raise ValueError("this parameter is a list of values")
        return self.min, self.max


class Metric(Spec, frozen=True):
    """What is to become large or small; of several benchmarks the unweighted mean. Shares and scores are fractions."""

    name: str
    goal: Literal["maximize", "minimize"] = "maximize"


class Bounds(Spec, frozen=True):
    """Within which a metric has to stay for a point to be eligible as best."""

    min: float | None = None
    max: float | None = None


class Workers(Spec, frozen=True):
    """How many work at the same time; `gpus_each` gives every one its own GPUs."""

    count: int = Field(default=1, ge=1)
    gpus_each: int = Field(default=0, ge=0)


class Search(Spec, frozen=True):
    """The part of a sweep that says which points there are and which of them is best.

    A kind of sweep adds what its points are made of, `accepted` and `numeric`, and `pairs`, `choices`, `metrics`.
    """

    called: ClassVar[str] = "sweep"
    accepted: ClassVar[tuple[str, ...]] = ()  # names of parameters
    grows: ClassVar[tuple[str, ...]] = ()  # further lists that may be extended

    name: str
    parameters: dict[str, Parameter]
    method: SearchMethod = "grid"
    metric: tuple[Metric, ...] = ()
    constraints: dict[str, Bounds] = Field(default_factory=dict)
    run_cap: int | None = Field(default=None, ge=1)
    batch: int = Field(default=8, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**32)
    workers: Workers = Field(default_factory=Workers)
    storage: str = "journal"
    retries: int = Field(default=3, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        """Take a key without a value for one that is not there."""
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, Mapping) else data

    @field_validator("metric", mode="before")
    @classmethod
    def _read_metrics(cls, given: Any) -> Any:
        each = given if isinstance(given, list | tuple) else [given]
        return [{"name": metric} if isinstance(metric, str) else metric for metric in each]

    @field_validator("parameters", mode="before")
    @classmethod
    def _read_parameters(cls, given: Any) -> dict[str, Parameter]:
        if not isinstance(given, Mapping) or not given:
            raise UserError("the sweep has no parameters")
        for name in given:
            if name not in cls.accepted:
                raise unknown("key of parameters", name, cls.accepted)
        return {name: cls.parameter(name, value) for name, value in given.items()}

    @model_validator(mode="after")
    def _check(self) -> "Search":
        if not self.metric:
            object.__setattr__(self, "metric", (Metric(name=self.metrics[0]),))
        self.check()
        return self

    @classmethod
    def parameter(cls, name: str, value: Any) -> Parameter:
        """Read one entry of `parameters`.

        Raises:
            UserError: it is refused.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Refuse what one field alone cannot tell.

        Raises:
            UserError: naming the first thing that does not fit.
        """
        check_search(self)

    @property
    def pairs(self) -> Mapping[str, Any]:
        """Return what points are tried on, by name."""
        raise NotImplementedError

    @property
    def choices(self) -> Mapping[str, tuple[Any, ...]]:
        """Return the parameters that are no numbers, with all that they can be."""
        raise NotImplementedError

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics there are, the usual one first."""
        raise NotImplementedError

    def size(self) -> str:
        """Say how many points there are, as a product: `5 tau x 3 gamma = 15 points`."""
        factors = [(len(self.pairs), "pairs")] if len(self.pairs) > 1 else []
        factors += [
            (len(p.listed), name.partition(".")[2] + (" by ratio" if p.ratio else ""))
            for name, p in self.parameters.items()
            if p.listed is not None
        ]
        total = prod(count for count, _ in factors)
        product = " x ".join(f"{count} {name}" for count, name in factors)
        if self.method != "grid":
            return f"{self.run_cap} points by {self.method}"
        capped = f", the first {self.run_cap} of them" if self.run_cap and self.run_cap < total else ""
        return f"{product} = {total} points{capped}"

    def plain(self) -> dict[str, Any]:
        """Return the sweep as plain values with its defaults filled in; `parse` restores it."""
        data = self.model_dump(mode="json")
        data["parameters"] = {
            name: {key: value for key, value in parameter.items() if value is not None and value is not False}
            for name, parameter in data["parameters"].items()
        }
        return data


def check_search(spec: Search) -> None:
    """Refuse what one field alone cannot tell.

    Raises:
        UserError: naming the first thing that does not fit.
    """
    if not _NAME.fullmatch(spec.name):
        raise UserError(f"name={spec.name!r} is refused: it names a folder; accepted: letters, digits, '.', '_', '-'")
    for name, bounds in spec.constraints.items():
        if bounds.min is None and bounds.max is None:
            raise UserError(f"constraints.{name} has neither min nor max")
    for name, parameter in spec.parameters.items():
        if parameter.listed is None and spec.method == "grid":
            raise UserError(f"parameters.{name} has a range, and method=grid needs values; or use method=random")
    if spec.method != "grid" and spec.run_cap is None:
        raise UserError(f"run_cap is missing: method={spec.method} needs the number of points to try")
    scheme = spec.storage.partition(":")[0]
    if scheme not in ("journal", "postgresql", "sqlite") and not spec.storage.startswith("$"):
        raise unknown("storage", spec.storage, ("journal", "postgresql://...", "sqlite:///..."))
    if scheme == "sqlite" and spec.workers.count > 1:
        raise UserError(
            f"storage=sqlite is refused with {spec.workers.count} workers: it cannot lock rows, so two workers take "
            "one point; accepted: journal (one machine), postgresql://... (many)"
        )


def covering_points(spec: Search, alias: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return points with every value of every parameter at least once, the others at their first.

    `alias` renames parameters.
    """
    every = {
        name: [((alias or {}).get(name, name), value) for value in p.listed or (p.min, p.max)]
        for name, p in spec.parameters.items()
    }
    first = dict(values[0] for values in every.values())
    return [{**first, key: value} for values in every.values() for key, value in values]


def parameter_of(where: str, value: Any, *, numeric: bool) -> Parameter:
    """Read one entry of `parameters`, its numbers as numbers.

    Raises:
        UserError: it is neither values nor a range nor ratios, or more than one of them.
    """
    if not isinstance(value, Mapping):
        raise UserError(f"{where}={value!r} is refused; accepted: values: [...] or min: and max:")
    given = dict(value)
    for key in ("values", "ratio"):
        if key in given:
            each = given[key] if isinstance(given[key], list | tuple) else [given[key]]
            given[key] = tuple(number(where, v) if numeric else v for v in each)
    for key in ("min", "max"):
        if given.get(key) is not None:
            given[key] = number(where, given[key])
    parameter = parse(Parameter, given, where=f"{where}.")
    ways = [parameter.values is not None, parameter.ratio is not None]
    ways.append(parameter.min is not None or parameter.max is not None)
    if sum(ways) != 1:
        raise UserError(f"{where} needs one of: values, min and max" + (", ratio" if "ratio" in given else ""))
    if parameter.listed is not None:
        if not parameter.listed or len(set(parameter.listed)) < len(parameter.listed):
            raise UserError(f"{where} is empty or names a value twice")
        return parameter
    if not numeric:
        return parameter
    if parameter.min is None or parameter.max is None or parameter.min >= parameter.max:
        raise UserError(f"{where} needs min below max")
    if parameter.log and parameter.min <= 0:
        raise UserError(f"{where}.log needs min above 0")
    return parameter


def number(where: str, value: Any) -> float:
    """Read a number, also one that YAML reads as text (1e-3).

    Raises:
        UserError: it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {shown(value)} is not a number") from None


P = TypeVar("P", bound=Spec)


def read_pruner(value: Any, name: str, spec: type[P]) -> P | None:
    """Read `pruner`: `none`, the `name` of this kind's pruner, or a mapping from that name to its settings.

    Raises:
        UserError: another name, or settings that are refused.
    """
    if value in (None, "none") or isinstance(value, spec):
        return None if isinstance(value, str) else value
    if value == name:
        return spec()
    if not isinstance(value, Mapping):
        raise unknown("pruner", value, ("none", name))
    for key in value:
        if key != name:
            raise unknown("key of pruner", key, (name,))
    return parse(spec, value.get(name) or {}, where=f"pruner.{name}.")

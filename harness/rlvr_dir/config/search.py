"""Describe what all kinds of sweeps have: the values to try, how they are chosen, what is best, and who does the work.

`rlvr_dir.config.sweep` has sweeps of decodings, `rlvr_dir.sweep.specs` sweeps of trainings.
"""

import re
import types
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rlvr_dir.config.base import Spec, parse
from rlvr_dir.errors import UserError, mention, unknown

SearchMethod = Literal["grid", "random", "tpe"]
LISTED = ("grid", "random")  # methods whose points are all known before anything runs
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or len(set(values)) < len(values):
        raise PydanticCustomError("distinct", "it is empty or names a value twice")
    return values


class Parameter(Spec, frozen=True):
    """List the possible values of a parameter: `Values` or `Numbers` one by one, a `Range`, or thresholds by a
    `Ratio`."""

    @property
    def listed(self) -> tuple[Any, ...]:
        """Return the values or ratios; empty for a range."""
        return ()


class Values(Parameter, frozen=True):
    """List names, switches or whole numbers."""

    values: Annotated[tuple[bool | int | float | str, ...], BeforeValidator(_as_list), AfterValidator(_distinct)]

    @property
    def listed(self) -> tuple[Any, ...]:
        """Return the values."""
        return self.values


class Numbers(Values, frozen=True):
    """List numbers. YAML reads some of them as text (1e-3)."""

    values: Annotated[tuple[float, ...], BeforeValidator(_as_list), AfterValidator(_distinct)]


class Range(Parameter, frozen=True):
    """Allow any number from `min` to `max`; with `log` its logarithm is uniform."""

    min: float
    max: float
    log: bool = False

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if self.min >= self.max or (self.log and self.min <= 0):
            raise PydanticCustomError("range", "it needs min below max, and with log min above 0")
        return self


class Ratio(Parameter, frozen=True):
    """List replacement ratios, fractions between 0 and 1. Their thresholds are found from base's generation.

    They are then found again on the text that replacing leads to, unless `refine` is false, which halves the decoding.
    """

    ratio: Annotated[
        tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...], BeforeValidator(_as_list), AfterValidator(_distinct)
    ]
    refine: bool = True

    @property
    def listed(self) -> tuple[float, ...]:
        """Return the ratios."""
        return self.ratio


class Objective(Spec, frozen=True):
    """Choose what to maximise or minimise. For several benchmarks it is the unweighted mean. Shares and scores are
    fractions."""

    name: str = Field(description="avg_at_N, pass_at_K, replacement_ratio, ...")
    goal: Literal["maximize", "minimize"] = Field(default="maximize", description="Or minimize.")


class Search(Spec, frozen=True):
    """Describe the points of a sweep, and which of them is best.

    A kind of sweep adds what its points are made of: `parameter_fields`, `pairs`, `seeds`, `metrics`, `run_params`.
    """

    called: ClassVar[str] = "sweep"
    by_ratio: ClassVar[str] = ""  # the parameter that may be a `Ratio`

    kind: str = ""
    name: str = Field(description="Names the sweep's folder.")
    parameters: dict[str, Values | Numbers | Range | Ratio] = Field(
        description="What is varied: {values: [...]}, {min:, max:, log:}, of τ also {ratio: [...]}."
    )
    method: SearchMethod = Field(default="grid", description="grid, random or tpe; all but grid need run_cap.")
    metric: Objective = Field(  # pyright: ignore[reportAssignmentType]  (the default is filled in once `metrics` are known)
        default=None, description="A name, default avg_at_N, or {name:, goal: minimize}."
    )
    run_cap: int | None = Field(default=None, ge=1, description="Maximum number of points.")
    batch: int = Field(default=8, ge=1, description="For a search: how many points to decode together.")
    seed: int = Field(default=0, ge=0, lt=2**32, description="Seed of the search, not of the sampling.")

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        """Treat a key without a value as a missing key."""
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, Mapping) else data

    @field_validator("metric", mode="before")
    @classmethod
    def _read_metric(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("parameters", mode="before")
    @classmethod
    def _read_parameters(cls, parameters: Any) -> dict[str, Parameter]:
        if not isinstance(parameters, Mapping) or not parameters:
            raise UserError(
                "must name what the sweep varies",
                argument="parameters",
                value=parameters,
                accepted="a mapping, such as {decode.tau: {values: [-0.3, -0.1]}}",
            )
        fields = cls.parameter_fields()
        for name in parameters:
            if name not in fields:
                raise unknown("parameters", name, fields)
        return {name: _parameter(name, value, fields[name], name == cls.by_ratio) for name, value in parameters.items()}

    @model_validator(mode="after")
    def _check(self) -> "Search":
        if self.metric is None:
            object.__setattr__(self, "metric", Objective(name=self.metrics[0]))
        self.check()
        return self

    @classmethod
    def parameter_fields(cls) -> Mapping[str, FieldInfo]:
        """Return the fields that can be varied, by the name of the parameter."""
        raise NotImplementedError

    @property
    def pairs(self) -> Mapping[str, Any]:
        """Return the pairs on which points are tried, by name."""
        raise NotImplementedError

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics, the default one first."""
        raise NotImplementedError

    @property
    def at_once(self) -> int | None:
        """Return how many points run together; None: all of them."""
        return None if self.method in LISTED else self.batch

    @property
    def run_params(self) -> dict[str, str]:
        """Return the settings to show with the sweep's run in MLflow."""
        raise NotImplementedError

    def check(self) -> None:
        """Check what a single field cannot.

        Raises:
            UserError: Fields do not fit together; the error names the first.
        """
        if not _NAME.fullmatch(self.name):
            raise UserError(
                "cannot be the name of a folder",
                argument="name",
                value=self.name,
                accepted="letters, digits, '.', '_' and '-'",
            )
        for name, parameter in self.parameters.items():
            if isinstance(parameter, Range) and self.method == "grid":
                raise UserError(
                    "has a range, and a grid needs values",
                    argument=f"parameters.{name}",
                    value=parameter.model_dump(),
                    accepted="{values: [...]}",
                    hint="Or set method: random, or tpe.",
                )
        if self.method != "grid" and self.run_cap is None:
            raise UserError(
                f"{mention('method', self.method)} needs run_cap, the number of points to try", argument="run_cap"
            )

    def size(self) -> str:
        """Describe the number of points as a product: `5 values of tau × 3 values of gamma = 15 points`."""
        pairs = len(self.pairs)
        if self.method != "grid":
            return f"{self.run_cap} points by {self.method}" + (f" on each of {pairs} pairs" if pairs > 1 else "")
        factors = [(pairs, "pairs")] if pairs > 1 else []
        for name, parameter in self.parameters.items():
            kind = "shares for" if isinstance(parameter, Ratio) else "values of"
            factors.append((len(parameter.listed), f"{kind} {name.partition('.')[2]}"))
        total = prod(count for count, _ in factors)
        product = " × ".join(f"{count} {name}" for count, name in factors)
        few = self.run_cap is not None and self.run_cap * pairs < total
        capped = f", the first {self.run_cap} of {'each pair' if pairs > 1 else 'them'}" if few else ""
        return f"{product} = {total} points{capped}"

    def plain(self) -> dict[str, Any]:
        """Return the sweep as plain values with its defaults filled in; `parse` restores it."""
        return self.model_dump(mode="json")

    def covering_points(self) -> list[dict[str, Any]]:
        """Return points that contain every value of every parameter at least once, the others at their first."""
        values_of = {
            name: (parameter.min, parameter.max) if isinstance(parameter, Range) else parameter.listed
            for name, parameter in self.varied().items()
        }
        first = {name: values[0] for name, values in values_of.items()}
        return [{**first, name: value} for name, values in values_of.items() for value in values]

    def varied(self) -> dict[str, Parameter]:
        """Return the parameters by their names in points: `decode.tau.ratio` for a threshold by its ratio."""
        return {f"{name}.ratio" if isinstance(p, Ratio) else name: p for name, p in self.parameters.items()}


def kind_of(field: FieldInfo) -> Any:
    """Return the type of a field, without its None."""
    kind = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return kind


def _parameter(name: str, value: Any, field: FieldInfo, by_ratio: bool) -> Parameter:
    """Read one entry of `parameters`: values of a field, or for a number also a range.

    Raises:
        UserError: The entry is neither, or more than one of them.
    """
    where, numeric = f"parameters.{name}", kind_of(field) is float
    if isinstance(value, Parameter):
        return value
    if not isinstance(value, Mapping):
        accepted = "{values: [...]}" + " or {min: …, max: …}" * numeric
        raise UserError("is not a mapping", argument=where, value=value, accepted=accepted)
    kinds: dict[str, type[Parameter]] = {"values": Numbers if numeric else Values}
    if numeric:
        kinds |= {"min": Range, "max": Range, "log": Range}
    if by_ratio:
        kinds |= {"ratio": Ratio, "refine": Ratio}
    for key in value:
        if key not in kinds:
            raise unknown(where, key, kinds)
    requested = {kinds[key] for key in value}
    if len(requested) != 1:
        ways = ["values", *(["min and max"] if numeric else []), *(["ratio"] if by_ratio else [])]
        raise UserError("needs exactly one kind of values", argument=where, value=dict(value), accepted=", ".join(ways))
    return parse(requested.pop(), value, where=f"{where}.")

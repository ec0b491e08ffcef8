"""A sweep: ways of decoding to be tried on benchmarks, how they are chosen, and what counts as better.

    spec = load_sweep(yaml.safe_load(text))

Everything is checked here, before any model loads. `sweeps/*.yaml` are examples, `docs/sweep.md` explains each key.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Literal, get_args

from pydantic import Field

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse
from harness.spec.decoding import CRITERIA, MODES, Decoding, Sampling
from harness.spec.engine import EngineSpec
from harness.spec.pair import PRESETS, Pair

Method = Literal["grid", "random", "qmc", "tpe", "gp"]
METHODS: tuple[str, ...] = get_args(Method)
LISTED = ("grid", "random", "qmc")  # methods whose points are all known before anything is decoded
PARAMETERS = tuple(f"decode.{name}" for name in Decoding.model_fields)
NUMBERS = ("decode.tau", "decode.gamma")
CHOICES: dict[str, tuple[str, ...]] = {
    "decode.mode": MODES,
    "decode.primary": ("base", "rl"),
    "decode.criterion": CRITERIA,
}
TAU, RATIO = "decode.tau", "decode.tau.ratio"  # a threshold, or the replacement ratio it is to reach
TINY = "tiny"
SHARES = ("replacement_ratio", "changed_ratio", "truncated_share", "no_box_share")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PASS = re.compile(r"pass_at_([0-9]+)")


class Parameter(Spec):
    """What one parameter may be: some `values`, or anything from `min` to `max` (`log`: evenly in its logarithm).

    `ratio` is for `decode.tau`: thresholds for these replacement ratios are found from the base generation.
    """

    values: tuple[float | str, ...] | None = None
    min: float | None = None
    max: float | None = None
    log: bool = False
    ratio: tuple[float, ...] | None = None

    @property
    def listed(self) -> tuple[float | str, ...] | None:
        """The values or ratios; None for a range."""
        return self.values if self.values is not None else self.ratio


class Metric(Spec):
    """What is to become large or small; of several benchmarks the unweighted mean. Shares and scores are fractions."""

    name: str
    goal: Literal["maximize", "minimize"] = "maximize"


class Bounds(Spec):
    """Within which a metric has to stay for a point to be eligible as best."""

    min: float | None = None
    max: float | None = None


class Wilcoxon(Spec):
    """Ends a trial early that is worse than the best so far, by a signed-rank test over problems, `chunk` by `chunk`.

    `startup` problems are decoded before the first test; `p` is the level.
    """

    p: float = Field(default=0.1, gt=0.0, lt=1.0)
    chunk: int = Field(default=6, ge=1)
    startup: int = Field(default=5, ge=2)


class Workers(Spec):
    """How many engines decode at the same time; `gpus_each` gives every one its own GPUs."""

    count: int = Field(default=1, ge=1)
    gpus_each: int = Field(default=0, ge=0)


class SweepSpec(Spec):
    """A whole sweep. `load_sweep` makes it; pairs are names (`tiny`, a preset) or checkpoints.

    Base and RL are always decoded as references, and so is the gamma = 0 control of every extrapolation; `references`
    are more of them.
    """

    name: str
    pair: tuple[str | Pair, ...] = (TINY,)
    tasks: tuple[str, ...]
    limit: int | None = Field(default=None, ge=1)
    sampling: Sampling = Sampling()
    decode: dict[str, Any] = Field(default_factory=dict)
    references: tuple[Decoding, ...] = ()
    parameters: dict[str, Parameter]
    method: Method = "grid"
    metric: tuple[Metric, ...] = ()
    constraints: dict[str, Bounds] = Field(default_factory=dict)
    pruner: Wilcoxon | None = None
    run_cap: int | None = Field(default=None, ge=1)
    batch: int = Field(default=8, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**32)
    workers: Workers = Workers()
    storage: str = "journal"
    retries: int = Field(default=3, ge=0)
    engine: EngineSpec = EngineSpec()
    grader: str = "robust"
    golds: str = "published"
    data_dir: str | None = None

    @property
    def pairs(self) -> dict[str, Pair | None]:
        """The pairs by name; None is the tiny pair, which the caller has."""
        return {pair_name(p): _preset(p) if isinstance(p, str) else p for p in self.pair}

    @property
    def extrapolates(self) -> bool:
        """Whether a point's mode is `extrapolate` where nothing says otherwise: a gamma is named."""
        return "decode.gamma" in self.parameters or bool(self.decode.get("gamma"))

    @property
    def matched(self) -> bool:
        """Whether thresholds are asked for by the replacement ratio they reach."""
        return TAU in self.parameters and self.parameters[TAU].ratio is not None

    def decoding(self, point: Mapping[str, Any], tau: float | None = None) -> Decoding:
        """The decoding of a point; `tau` where the point names a ratio. gamma = 0 is plain replacement.

        Raises:
            UserError: the point contradicts itself.
        """
        fields = {"mode": "extrapolate" if self.extrapolates else "replace", **self.decode}
        fields |= {name.removeprefix("decode."): point[name] for name in PARAMETERS if name in point}
        if tau is not None:
            fields["tau"] = tau
        if fields["mode"] == "extrapolate" and not fields.get("gamma"):
            fields |= {"mode": "replace", "gamma": 0.0}
        return parse(Decoding, fields, where="decode.")

    def size(self) -> str:
        """How many points there are, as a product: `5 tau x 3 gamma = 15 points`."""
        factors = [(len(self.pair), "pairs")] if len(self.pair) > 1 else []
        factors += [
            (len(p.listed), name.removeprefix("decode.") + (" by ratio" if p.ratio else ""))
            for name, p in self.parameters.items()
            if p.listed is not None
        ]
        total = prod(count for count, _ in factors)
        product = " x ".join(f"{count} {name}" for count, name in factors)
        if self.method != "grid":
            return f"{self.run_cap} points by {self.method}"
        capped = f", the first {self.run_cap} of them" if self.run_cap and self.run_cap < total else ""
        return f"{product} = {total} points{capped}"


def pair_name(pair: str | Pair) -> str:
    """A short name for a pair: its preset's, or the last part of its RL checkpoint."""
    return pair if isinstance(pair, str) else pair.rl.rstrip("/").split("/")[-1]


def load_sweep(data: Mapping[str, Any]) -> SweepSpec:
    """A sweep from its YAML.

    Raises:
        UserError: an unknown key (the sentence has the nearest one), a value that is refused, or parts that do not fit
            together.
    """
    if not isinstance(data, Mapping):
        raise UserError("the sweep is not a mapping of keys to values")
    _keys("sweep", data, SweepSpec.model_fields)
    fields: dict[str, Any] = {name: value for name, value in data.items() if value is not None}
    for name in ("name", "tasks", "parameters"):
        if not fields.get(name):
            raise UserError(f"the sweep has no {name}")
    pairs = fields.get("pair", TINY)
    fields["pair"] = tuple(_pair(each) for each in (pairs if isinstance(pairs, list | tuple) else [pairs]))
    fields["tasks"] = [fields["tasks"]] if isinstance(fields["tasks"], str) else fields["tasks"]
    for name, part in (("sampling", Sampling), ("engine", EngineSpec), ("workers", Workers)):
        if name in fields:
            fields[name] = _part(part, fields[name], name)
    fields["decode"] = dict(fields.get("decode") or {})
    _keys("decode", fields["decode"], Decoding.model_fields)
    fields["references"] = tuple(_reference(each) for each in fields.get("references") or ())
    fields["references"] = tuple(d for d in fields["references"] if d.gated)
    _keys("parameters", fields["parameters"], PARAMETERS)
    fields["parameters"] = {name: _parameter(name, value) for name, value in fields["parameters"].items()}
    metrics = fields.get("metric") or []
    metrics = metrics if isinstance(metrics, list | tuple) else [metrics]
    fields["metric"] = tuple(_part(Metric, {"name": m} if isinstance(m, str) else m, "metric") for m in metrics)
    fields["constraints"] = {
        name: _part(Bounds, value, f"constraints.{name}") for name, value in (fields.get("constraints") or {}).items()
    }
    fields["pruner"] = _pruner(fields.get("pruner"))
    spec = parse(SweepSpec, fields)
    if not spec.metric:
        spec = spec.model_copy(update={"metric": (Metric(name=f"avg_at_{spec.sampling.samples}"),)})
    _check(spec)
    return spec


def plain(spec: SweepSpec) -> dict[str, Any]:
    """The sweep as plain values, everything said, that `load_sweep` reads back."""
    data = spec.model_dump(mode="json")
    data["parameters"] = {
        name: {key: value for key, value in parameter.items() if value not in (None, False)}
        for name, parameter in data["parameters"].items()
    }
    data["pruner"] = {"wilcoxon": data["pruner"]} if data["pruner"] else "none"
    return data


def metric_names(samples: int) -> tuple[str, ...]:
    """The metrics there are with so many samples a problem (Pass@k also for every other k up to it)."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i <= samples]
    return (
        f"avg_at_{samples}",
        *(f"pass_at_{k}" for k in dict.fromkeys([*powers, samples])),
        f"maj_at_{samples}",
        *SHARES,
        "mean_tokens",
    )


def _check(spec: SweepSpec) -> None:
    """What one field alone cannot tell.

    Raises:
        UserError: naming the first thing that does not fit.
    """
    if not _NAME.fullmatch(spec.name):
        raise UserError(f"name={spec.name!r} is refused: it names a folder; accepted: letters, digits, '.', '_', '-'")
    names = [pair_name(pair) for pair in spec.pair]
    if len(set(names)) < len(names):
        raise UserError(f"pair: {', '.join(names)} has one name twice")
    for what in (*(m.name for m in spec.metric), *spec.constraints):
        _metric(what, spec.sampling.samples)
    for name, bounds in spec.constraints.items():
        if bounds.min is None and bounds.max is None:
            raise UserError(f"constraints.{name} has neither min nor max")
        if name in SHARES and (bounds.max or 0) > 1:
            raise UserError(f"constraints.{name}.max={bounds.max} is refused: shares are fractions, 0 to 1")
    for name, parameter in spec.parameters.items():
        key = name.removeprefix("decode.")
        if key in spec.decode:
            raise UserError(f"decode.{key} is both fixed (decode) and varied (parameters); give one of them")
        if parameter.listed is None and spec.method == "grid":
            raise UserError(f"parameters.{name} has a range, and method=grid needs values; or use method=random")
    if spec.method != "grid" and spec.run_cap is None:
        raise UserError(f"run_cap is missing: method={spec.method} needs the number of points to try")
    if spec.pruner is not None and len(spec.metric) > 1:
        raise UserError("pruner: pruning needs one metric; several metrics give a Pareto set without it")
    if spec.pruner is not None and spec.metric[0].name != f"avg_at_{spec.sampling.samples}":
        raise UserError(f"pruner: it tests avg_at_{spec.sampling.samples} by problem; metric={spec.metric[0].name!r}")
    if len(spec.pair) > 1 and spec.method not in LISTED:
        raise UserError(f"method={spec.method} searches one pair; accepted with several: {', '.join(LISTED)}")
    scheme = spec.storage.partition(":")[0]
    if scheme not in ("journal", "postgresql", "sqlite") and not spec.storage.startswith("$"):
        raise unknown("storage", spec.storage, ("journal", "postgresql://...", "sqlite:///..."))
    if scheme == "sqlite" and spec.workers.count > 1:
        raise UserError(
            f"storage=sqlite is refused with {spec.workers.count} workers: it cannot lock rows, so two workers take "
            "one point; accepted: journal (one machine), postgresql://... (many)"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a threshold of the unusual sign is said once it is decoded
        for point in _corners(spec):
            spec.decoding(point, 0.0 if RATIO in point else None)


def _corners(spec: SweepSpec) -> Iterable[dict[str, Any]]:
    """Points with every value of every parameter at least once, the others at their first."""

    def ends(name: str, parameter: Parameter) -> list[tuple[str, Any]]:
        key = RATIO if parameter.ratio is not None else name
        return [(key, value) for value in parameter.listed or (parameter.min, parameter.max)]

    every = {name: ends(name, parameter) for name, parameter in spec.parameters.items()}
    first = dict(values[0] for values in every.values())
    return [{**first, key: value} for values in every.values() for key, value in values]


def _metric(name: str, samples: int) -> None:
    match = _PASS.fullmatch(name)
    if match and 1 <= int(match[1]) <= samples:
        return
    if name not in metric_names(samples):
        raise unknown("metric", name, metric_names(samples))


def _parameter(name: str, value: Any) -> Parameter:
    """One entry of `parameters`, its numbers as numbers and its choices known."""
    where = f"parameters.{name}"
    if not isinstance(value, Mapping):
        raise UserError(f"{where}={value!r} is refused; accepted: values: [...] or min: and max:")
    given = dict(value)
    _keys(where, given, Parameter.model_fields)
    for key in ("values", "ratio"):
        if key in given:
            each = given[key] if isinstance(given[key], list | tuple) else [given[key]]
            given[key] = tuple(_number(where, v) if name in NUMBERS else v for v in each)
    for key in ("min", "max"):
        if given.get(key) is not None:
            given[key] = _number(where, given[key])
    parameter = parse(Parameter, given, where=f"{where}.")
    ways = [parameter.values is not None, parameter.ratio is not None]
    ways.append(parameter.min is not None or parameter.max is not None)
    if sum(ways) != 1:
        raise UserError(f"{where} needs one of: values, min and max" + (", ratio" if name == TAU else ""))
    if parameter.ratio is not None and name != TAU:
        raise UserError(f"{where}.ratio is refused; accepted for {TAU} only")
    if parameter.listed is not None:
        if not parameter.listed or len(set(parameter.listed)) < len(parameter.listed):
            raise UserError(f"{where} is empty or names a value twice")
        for each in parameter.listed:
            if name in CHOICES and each not in CHOICES[name]:
                raise unknown(where, each, CHOICES[name])
        if parameter.ratio is not None and not all(0 < r < 1 for r in parameter.ratio):
            raise UserError(f"{where}.ratio={list(parameter.ratio)} is refused; accepted: fractions between 0 and 1")
        return parameter
    if name not in NUMBERS:
        raise UserError(f"{where} has a range; accepted: values out of {', '.join(CHOICES[name])}")
    if parameter.min is None or parameter.max is None or parameter.min >= parameter.max:
        raise UserError(f"{where} needs min below max")
    if parameter.log and parameter.min <= 0:
        raise UserError(f"{where}.log needs min above 0")
    return parameter


def _number(where: str, value: Any) -> float:
    try:
        return float(value)  # YAML reads 1e-3 as text
    except (TypeError, ValueError):
        raise UserError(f"{where}: {value!r} is not a number") from None


def _pair(value: Any) -> str | Pair:
    if isinstance(value, Mapping):
        return _part(Pair, value, "pair")
    if value != TINY and value not in PRESETS:
        raise unknown("pair", value, (*PRESETS, TINY))
    return str(value)


def _preset(name: str) -> Pair | None:
    return None if name == TINY else Pair.preset(name)


def _reference(value: Any) -> Decoding:
    return _part(Decoding, {"mode": value} if isinstance(value, str) else value, "references")


def _pruner(value: Any) -> Wilcoxon | None:
    if value in (None, "none"):
        return None
    if value == "wilcoxon":
        return Wilcoxon()
    if not isinstance(value, Mapping):
        raise unknown("pruner", value, ("none", "wilcoxon"))
    _keys("pruner", value, ("wilcoxon",))
    return _part(Wilcoxon, value["wilcoxon"] or {}, "pruner.wilcoxon")


def _part(spec: type[Any], value: Any, where: str) -> Any:
    if isinstance(value, spec):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"{where}={value!r} is refused; accepted: a mapping of {', '.join(spec.model_fields)}")
    _keys(where, value, spec.model_fields)
    return parse(spec, value, where=f"{where}.")


def _keys(where: str, given: Mapping[str, Any], accepted: Iterable[str]) -> None:
    accepted = list(accepted)
    for key in given:
        if key not in accepted:
            raise unknown(f"key of {where}", key, accepted)

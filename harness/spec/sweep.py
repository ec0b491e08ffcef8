"""A sweep of decodings: ways of decoding to be tried on benchmarks, how they are chosen, and what counts as better.

    spec = load_sweep(yaml.safe_load(text))

Everything is checked here, before any model loads. `sweeps/*.yaml` are examples, `docs/sweep.md` explains each key.
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse
from harness.spec.decoding import CRITERIA, MODES, Decoding, Sampling
from harness.spec.engine import EngineSpec
from harness.spec.pair import PRESETS, Pair
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
_PASS = re.compile(r"pass_at_([0-9]+)")


class Wilcoxon(Spec):
    """Ends a trial early that is worse than the best so far, by a signed-rank test over problems, `chunk` by `chunk`.

    `startup` problems are decoded before the first test; `p` is the level.
    """

    p: float = Field(default=0.1, gt=0.0, lt=1.0)
    chunk: int = Field(default=6, ge=1)
    startup: int = Field(default=5, ge=2)


class SweepSpec(Search):
    """A whole sweep. `load_sweep` makes it; pairs are names (`tiny`, a preset) or checkpoints.

    Base and RL are always decoded as references, and so is the gamma = 0 control of every extrapolation; `references`
    are more of them.
    """

    grows: ClassVar[tuple[str, ...]] = ("references",)

    kind: Literal["decode"] = "decode"
    pair: tuple[str | Pair, ...] = (TINY,)
    tasks: tuple[str, ...]
    limit: int | None = Field(default=None, ge=1)
    sampling: Sampling = Sampling()
    decode: dict[str, Any] = Field(default_factory=dict)
    references: tuple[Decoding, ...] = ()
    pruner: Wilcoxon | None = None
    engine: EngineSpec = EngineSpec()
    grader: str = "robust"
    golds: str = "published"
    data_dir: str | None = None

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The parameters that are names, with all of these."""
        return CHOICES

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics there are, Avg@N first."""
        return metric_names(self.sampling.samples)

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

    def plain(self) -> dict[str, Any]:
        """The sweep as plain values, everything said, that `load_sweep` reads back."""
        return {**super().plain(), "pruner": {"wilcoxon": self.pruner.model_dump()} if self.pruner else "none"}


def pair_name(pair: str | Pair) -> str:
    """A short name for a pair: its preset's, or the last part of its RL checkpoint."""
    return pair if isinstance(pair, str) else pair.rl.rstrip("/").split("/")[-1]


def load_sweep(data: Mapping[str, Any]) -> SweepSpec:
    """A sweep from its YAML.

    Raises:
        UserError: an unknown key (the sentence has the nearest one), a value that is refused, or parts that do not fit
            together.
    """
    fields = fields_of(data, SweepSpec, ("name", "tasks", "parameters"))
    pairs = fields.get("pair", TINY)
    fields["pair"] = tuple(_pair(each) for each in (pairs if isinstance(pairs, list | tuple) else [pairs]))
    fields["tasks"] = [fields["tasks"]] if isinstance(fields["tasks"], str) else fields["tasks"]
    for name, each in (("sampling", Sampling), ("engine", EngineSpec)):
        if name in fields:
            fields[name] = part(each, fields[name], name)
    fields["decode"] = dict(fields.get("decode") or {})
    known_keys("decode", fields["decode"], Decoding.model_fields)
    fields["references"] = tuple(_reference(each) for each in fields.get("references") or ())
    fields["references"] = tuple(d for d in fields["references"] if d.mode not in ("base", "rl"))
    known_keys("parameters", fields["parameters"], PARAMETERS)
    fields["parameters"] = {name: _parameter(name, value) for name, value in fields["parameters"].items()}
    fields["pruner"] = _pruner(fields.get("pruner"))
    spec = parse(SweepSpec, fields)
    if not spec.metric:
        spec = spec.model_copy(update={"metric": (Metric(name=spec.metrics[0]),)})
    _check(spec)
    return spec


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
    """What is to be said of decodings alone.

    Raises:
        UserError: naming the first thing that does not fit.
    """
    check_search(spec)
    names = [pair_name(pair) for pair in spec.pair]
    if len(set(names)) < len(names):
        raise UserError(f"pair: {', '.join(names)} has one name twice")
    for what in (*(m.name for m in spec.metric), *spec.constraints):
        _metric(what, spec.sampling.samples)
    for name, bounds in spec.constraints.items():
        if name in SHARES and (bounds.max or 0) > 1:
            raise UserError(f"constraints.{name}.max={bounds.max} is refused: shares are fractions, 0 to 1")
    for name in spec.parameters:
        key = name.removeprefix("decode.")
        if key in spec.decode:
            raise UserError(f"decode.{key} is both fixed (decode) and varied (parameters); give one of them")
    if spec.pruner is not None and len(spec.metric) > 1:
        raise UserError("pruner: pruning needs one metric; several metrics give a Pareto set without it")
    if spec.pruner is not None and spec.metric[0].name != f"avg_at_{spec.sampling.samples}":
        raise UserError(f"pruner: it tests avg_at_{spec.sampling.samples} by problem; metric={spec.metric[0].name!r}")
    if len(spec.pair) > 1 and spec.method not in LISTED:
        raise UserError(f"method={spec.method} searches one pair; accepted with several: {', '.join(LISTED)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a threshold of the unusual sign is said once it is decoded
        for point in corners(spec, {TAU: RATIO} if spec.matched else {}):
            spec.decoding(point, 0.0 if RATIO in point else None)


def _metric(name: str, samples: int) -> None:
    match = _PASS.fullmatch(name)
    if match and 1 <= int(match[1]) <= samples:
        return
    if name not in metric_names(samples):
        raise unknown("metric", name, metric_names(samples))


def _parameter(name: str, value: Any) -> Parameter:
    """One entry of `parameters`, its choices known."""
    where = f"parameters.{name}"
    parameter = parameter_of(where, value, numeric=name in NUMBERS)
    if parameter.ratio is not None and name != TAU:
        raise UserError(f"{where}.ratio is refused; accepted for {TAU} only")
    if parameter.listed is None and name not in NUMBERS:
        raise UserError(f"{where} has a range; accepted: values out of {', '.join(CHOICES[name])}")
    for each in parameter.listed or ():
        if name in CHOICES and each not in CHOICES[name]:
            raise unknown(where, each, CHOICES[name])
    if parameter.ratio is not None and not all(0 < r < 1 for r in parameter.ratio):
        raise UserError(f"{where}.ratio={list(parameter.ratio)} is refused; accepted: fractions between 0 and 1")
    return parameter


def _pair(value: Any) -> str | Pair:
    if isinstance(value, Mapping):
        return part(Pair, value, "pair")
    if value != TINY and value not in PRESETS:
        raise unknown("pair", value, (*PRESETS, TINY))
    return str(value)


def _preset(name: str) -> Pair | None:
    return None if name == TINY else Pair.preset(name)


def _reference(value: Any) -> Decoding:
    return part(Decoding, {"mode": value} if isinstance(value, str) else value, "references")


def _pruner(value: Any) -> Wilcoxon | None:
    if value in (None, "none"):
        return None
    if value == "wilcoxon":
        return Wilcoxon()
    if not isinstance(value, Mapping):
        raise unknown("pruner", value, ("none", "wilcoxon"))
    known_keys("pruner", value, ("wilcoxon",))
    return part(Wilcoxon, value["wilcoxon"] or {}, "pruner.wilcoxon")

"""Describe a sweep of decodings: which are tried on which benchmarks, how they are chosen, and what is best.

    spec = parse(SweepSpec, read_yaml("sweeps/tiny_tau_gamma.yaml"))

Everything is checked here, before any model loads. `sweeps/*.yaml` are examples, and `docs/sweep.md` explains each key.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_serializer, model_validator
from pydantic.fields import FieldInfo

from rlvr_dir.config.base import Spec, parse
from rlvr_dir.config.checkpoints import checkpoints_of
from rlvr_dir.config.decoding import Decoding, check_together, parse_decoding
from rlvr_dir.config.engine import EngineSpec
from rlvr_dir.config.evaluation import (
    EvalSpec,
    ProblemPart,
    read_decodings,
    read_names,
)
from rlvr_dir.config.pair import TINY, NamedPair, Pair, find_pair, model_name, preset
from rlvr_dir.config.presentation import Presentation
from rlvr_dir.config.sampling import Sampling, merge_sampling
from rlvr_dir.config.search import LISTED, Ratio, Search
from rlvr_dir.errors import UserError, unknown

TAU, RATIO = "decode.tau", "decode.tau.ratio"  # a threshold, or the replacement ratio that it should reach
Control = Literal["replace", "reject", "veto"]
_PASS = re.compile(r"pass_at_([0-9]+)")


def _read_pairs(value: Any) -> dict[str, Any]:
    """Read one pair or several, by the names that points and tables use.

    Raises:
        UserError: A pair is not valid, or two have the same name.
    """
    if isinstance(value, Mapping) and isinstance(value.get("rl"), list | tuple):  # checkpoints of one training
        shared = {key: value[key] for key in value if key != "rl"}
        named = checkpoints_of([str(name) for name in value["rl"]], shared)
    else:
        named = [_read_pair(pair) for pair in (value if isinstance(value, list | tuple) else [value])]
    names = [name for name, _ in named]
    if len(set(names)) < len(names):
        raise UserError("names a pair twice", argument="pair", value=names, hint="Write NAME=FOLDER to name one.")
    return dict(named)


def _read_pair(value: Any) -> tuple[str, Any]:
    """Read a name, a folder (which names the pair), `NAME=PLACE`, or a pair's fields and its `name`."""
    if value == TINY or preset(value) is not None:
        return value, preset(value) or value
    name, place = "", value
    if isinstance(value, Mapping):
        name, place = str(value.get("name") or ""), {key: value[key] for key in value if key != "name"}
    elif isinstance(value, str) and "=" in value and not Path(value).expanduser().is_dir():
        name, _, place = value.partition("=")
    pair = find_pair(place)
    if isinstance(pair, str):
        raise UserError(f"would rename {pair!r}, which has a name", argument="pair", value=value, accepted=pair)
    named = Path(place).expanduser().resolve() / "rl" if isinstance(place, str) and not name else Path(pair.rl)
    return name or model_name(str(named)), pair


def _write_pairs(pairs: Mapping[str, Pair | str]) -> list[Any]:
    """Return pairs in the form that `_read_pairs` reads: by name alone if that is sufficient."""
    return [
        name if pair in (name, preset(name)) or isinstance(pair, str) else {"name": name, **pair.model_dump()}
        for name, pair in pairs.items()
    ]


def _read_references(value: Any) -> tuple[Decoding, ...]:
    """Read further references. Base and RL are always references."""
    if not isinstance(value or (), list | tuple):
        raise UserError("is not a list", argument="references", value=value, accepted="a list of decodings")
    decodings = [
        parse_decoding(text) if isinstance(text, str) else parse(Decoding, text, where="references.")
        for text in value or ()
    ]
    return tuple(decoding for decoding in decodings if decoding.mode not in ("base", "rl"))


def _read_controls(value: Any) -> Any:
    """Read which controls to decode: all, none, or those of some modes."""
    return (value,) if isinstance(value, str) else value


def _read_decode(value: Any) -> dict[str, Any]:
    """Read the settings that all points share."""
    if not isinstance(value or {}, Mapping):
        accepted = f"a mapping of {', '.join(Decoding.options())}"
        raise UserError("is not a mapping", argument="decode", value=value, accepted=accepted)
    for key in value or {}:
        if key not in Decoding.options():
            raise unknown("decode", key, Decoding.options())
    return dict(value or {})


class OtherSampling(Spec, frozen=True):
    """Sample some decodings with other settings than the sweep's `sampling`.

    One kind of truncation replaces another. Greedy decoding (temperature 0) has one sample.
    """

    decodings: Annotated[tuple[Decoding, ...], BeforeValidator(read_decodings)] = (Decoding(mode="rl"),)
    changes: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the decodings, and the sampling settings that can be changed."""
        drawn = {name: info for name, info in Sampling.options().items() if name not in ("max_tokens", "seed")}
        return {"decodings": cls.model_fields["decodings"], **drawn}

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        changes = {name: data[name] for name in data if name in cls.options() and name != "decodings"}
        rest = {name: value for name, value in data.items() if name not in changes}
        return {**rest, "changes": {name: value for name, value in changes.items() if value is not None}}

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        return {"decodings": [decoding.model_dump() for decoding in self.decodings], **self.changes}

    def applied_to(self, sampling: Sampling) -> Sampling:
        """Return the sampling settings in a sweep with this `sampling`.

        Raises:
            UserError: A value is not valid.
        """
        return parse(Sampling, merge_sampling(sampling.model_dump(), self.changes), where="samplings.")


class ConfirmationSplit(Spec, frozen=True):
    """Keep problems for the confirmation: the sweep uses only a share `split` of each benchmark's problems."""

    split: float = Field(gt=0.0, lt=1.0)


class SweepSpec(Presentation, Search, frozen=True):
    """Describe a whole sweep. Pairs are names (`tiny`, a preset) or checkpoints.

    Base and RL are always decoded as references. So are the `controls` of every point, after it: reject and veto of a
    replacement, the gamma = 0 of an extrapolation. `references` adds more, and `samplings` adds decodings with other
    sampling settings. `equal_forwards` adds the score of one model with as many forward passes to the summary.
    """

    called: ClassVar[str] = Search.called
    by_ratio: ClassVar[str] = TAU

    kind: Literal["decode"] = Field(default="decode", description="decode, or train: a sweep of trainings.")
    pair: Annotated[dict[str, NamedPair], BeforeValidator(_read_pairs), PlainSerializer(_write_pairs)] = Field(
        default_factory=lambda: {TINY: TINY},
        description="A name, a folder, NAME=FOLDER, {base:, rl:}, or a list of these.",
    )
    tasks: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        description="Benchmarks, by name or PATH.jsonl."
    )
    limit: int | None = Field(default=None, ge=1, description="Only the first problems, for a quick look.")
    confirm: ConfirmationSplit | None = Field(
        default=None,
        description="{split: 0.5}: half of the problems are used to select, the others are for `sweep confirm`.",
    )
    sampling: Sampling = Field(default_factory=Sampling, description="How tokens are drawn.")
    decode: Annotated[dict[str, Any], BeforeValidator(_read_decode)] = Field(
        default_factory=dict, description="What all points share."
    )
    references: Annotated[tuple[Decoding, ...], BeforeValidator(_read_references)] = Field(
        default=(), description="Further decodings; base and rl are always there."
    )
    controls: Annotated[bool | tuple[Control, ...], BeforeValidator(_read_controls)] = Field(
        default=True, description="Controls of each point: true, false, or a list of replace, reject, veto."
    )
    samplings: tuple[OtherSampling, ...] = Field(
        default=(), description="References with other sampling settings: [{temperature: 0.6, decodings: [rl]}]."
    )
    equal_forwards: bool = Field(default=False, description="Add the score of one model with as many forward passes.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="As the options of `rlvr-dir eval`.")
    data_dir: str | None = Field(default=None, description="Folder of <task>.jsonl files.")

    @classmethod
    def parameter_fields(cls) -> Mapping[str, FieldInfo]:
        """Return the fields of a decoding that can be varied, including the parameters of an imported criterion."""
        return {f"decode.{name}": info for name, info in Decoding.options().items()}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics, Avg@N first."""
        return metric_names(self.sampling.samples)

    @property
    def pairs(self) -> dict[str, Pair | str]:
        """Return the pairs by name. `rlvr_dir.checkpoints.resolve` finds the one called `tiny`."""
        return dict(self.pair)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds on which points are compared."""
        return (self.sampling.seed,)

    @property
    def run_params(self) -> dict[str, str]:
        """Return the pairs and the benchmarks."""
        return {"pair": ", ".join(self.pairs), "tasks": ", ".join(self.tasks)}

    @property
    def extrapolates(self) -> bool:
        """Return whether a point's default mode is `extrapolate`, because a gamma is given."""
        return "decode.gamma" in self.parameters or bool(self.decode.get("gamma"))

    @property
    def matched(self) -> bool:
        """Return whether thresholds are given by the replacement ratios that they should reach."""
        return isinstance(self.parameters.get(TAU), Ratio)

    @property
    def refined(self) -> bool:
        """Return whether such thresholds are refined on the text that replacing leads to."""
        tau = self.parameters.get(TAU)
        return isinstance(tau, Ratio) and tau.refine

    def decoding(self, point: Mapping[str, Any], tau: float | None = None) -> Decoding:
        """Return the decoding of a point. `tau` is given if the point contains a ratio. gamma = 0 is plain replacement.

        Raises:
            UserError: The point contradicts itself.
        """
        fields = {"mode": "extrapolate" if self.extrapolates else "replace", **self.decode}
        fields |= {name.removeprefix("decode."): point[name] for name in self.parameters if name in point}
        if tau is not None:
            fields["tau"] = tau
        if fields["mode"] == "extrapolate":
            fields.setdefault("gamma", 0.0)
        return parse(Decoding, fields, where="decode.")

    @property
    def other_samplings(self) -> list[tuple[Decoding, Sampling]]:
        """Return the decodings of `samplings`, each with its sampling settings, without repetition.

        Raises:
            UserError: A value is not valid.
        """
        settings = [(d, other.applied_to(self.sampling)) for other in self.samplings for d in other.decodings]
        return [(decoding, sampling) for decoding, sampling in dict.fromkeys(settings) if sampling != self.sampling]

    @property
    def part(self) -> ProblemPart:
        """Return the problems among which the sweep chooses."""
        return ProblemPart(split=self.confirm.split) if self.confirm else ProblemPart()

    def evaluation(self, pair: str, decodings: Sequence[Decoding], **changes: Any) -> EvalSpec:
        """Return the evaluation of some decodings of the pair with this name, with some fields changed."""
        names = (
            "tasks",
            "sampling",
            "limit",
            "engine",
            "data_dir",
            *Presentation.model_fields,
        )
        fields = {name: getattr(self, name) for name in names} | {"part": self.part}
        fields = {"pair": self.pairs[pair], "decodings": tuple(decodings), **fields, **changes}
        fields["sampling"] = Sampling(**fields["sampling"].model_dump())  # all of it, so that no task changes it
        return parse(EvalSpec, fields)

    def check(self) -> None:
        """Check what a single field cannot.

        Raises:
            UserError: Fields do not fit together; the error names the first.
        """
        if not self.tasks:
            raise UserError("must name at least one benchmark", argument="tasks", value=self.tasks)
        super().check()
        for decoding, sampling in self.other_samplings:
            check_together(decoding, sampling)
        check_metric(self.metric.name, self.metrics, self.sampling.samples)
        for name in self.parameters:
            key = name.removeprefix("decode.")
            if key in self.decode:
                raise UserError(
                    "is both fixed (decode) and varied (parameters)",
                    argument=name,
                    value=self.decode[key],
                    hint="Remove one of them.",
                )
        if self.matched and ("decode.window" in self.parameters or self.decode.get("window")):
            raise UserError(
                f"cannot be combined with a ratio of {TAU}, which is a share of all tokens",
                argument="decode.window",
                value=self.decode.get("window"),
                hint=f"Give values of {TAU}.",
            )
        if self.matched and "decode.primary" in self.parameters:
            raise UserError(
                f"cannot be varied with a ratio of {TAU}, because a threshold is found on the text of one of them",
                argument="decode.primary",
                value=self.parameters["decode.primary"].listed,
                hint="Fix it under decode, in a sweep for each.",
            )
        if len(self.pair) > 1 and self.method not in LISTED:
            accepted = f"with several pairs: {', '.join(LISTED)}"
            raise UserError("searches one pair only", argument="method", value=self.method, accepted=accepted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unusual sign of a threshold is reported when it is decoded
            for point in self.covering_points():
                check_together(self.decoding(point, 0.0 if RATIO in point else None), self.sampling)


def metric_names(samples: int) -> tuple[str, ...]:
    """Return the metrics for this number of samples per problem (Pass@k also for every other k up to it)."""
    from rlvr_dir.stats.metrics import METRICS  # imports numpy, which help texts do not need

    names = [name.replace("@", "_at_") for metric in METRICS for name in metric.names(samples)]
    return tuple(dict.fromkeys([names[0], "pass_at_1", *names[1:], f"pass_at_{samples}"]))


def check_metric(name: str, metrics: Sequence[str], samples: int) -> None:
    """Reject an unknown metric. If Pass@1 is known, so is every other k up to `samples`.

    Raises:
        UserError: The metric is unknown; the error suggests the nearest one.
    """
    match = _PASS.fullmatch(name) if "pass_at_1" in metrics else None
    if name not in metrics and not (match and 1 <= int(match[1]) <= samples):
        raise unknown("metric", name, metrics)


def in_percent(name: str) -> bool:
    """Return whether a metric is a fraction, which is shown in percent."""
    from rlvr_dir.stats.metrics import METRICS

    return all(metric.unit == 100 for metric in METRICS if metric.name == name)

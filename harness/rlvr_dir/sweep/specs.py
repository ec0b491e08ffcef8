"""What a sweep's file is read into, by the `kind` that it names; and a sweep of trainings, beside that of decodings.

    spec = load(read_yaml("sweep.yaml"))

Of a sweep of trainings `train` is a file of `rlvr-dir train` without its seeds; parameters are keys of its `dapo`, as
`train.alpha`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from rlvr_dir.config.base import Spec, parse
from rlvr_dir.config.search import LISTED, Search
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.sweep.points import Point, listed_points
from rlvr_dir.train.defaults import complete
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.spec import TrainSpec

REWEIGHTING = ("method", "alpha", "pi_source", "ppl_scope")  # what plain DAPO has none of
SHARED = ("truncated_share", "mean_tokens")


def _read_train(value: Any) -> dict[str, Any]:
    """Read what all points have in common: a file of `rlvr-dir train` without its seeds."""
    if not isinstance(value, Mapping):
        raise UserError(
            "is not a mapping", argument="train", value=value, accepted="the keys of a file of `rlvr-dir train`"
        )
    for name in ("seed", "seeds"):
        if name in value:
            raise UserError(
                "must be given for the whole sweep",
                argument=f"train.{name}",
                value=value[name],
                accepted="seeds: [0, 1], beside train",
            )
    return dict(value)


class Workers(Spec, frozen=True):
    """How many trainings run at the same time, with how many GPUs each, and on which machines."""

    count: int = Field(default=1, ge=1, description="Trainings that run at the same time.")
    gpus_each: int = Field(default=0, ge=0, description="GPUs of each.")
    ray_address: str | None = Field(
        default=None, description="HOST:PORT of a Ray cluster, or auto: trainings run on all its machines."
    )


class TrainingSweep(Search, frozen=True):
    """A whole sweep of trainings.

    Plain DAPO with everything else as `train` says it is always trained, with the same seeds, as the reference.
    """

    kind: Literal["train"] = Field(default="train", description="train.")
    train: Annotated[dict[str, Any], BeforeValidator(_read_train)] = Field(
        default_factory=dict, description="A training's file, without seeds."
    )
    seeds: tuple[int, ...] = Field(default=(0,), description="A point is the mean over these.")
    workers: Workers = Field(default_factory=Workers)

    @classmethod
    def parameter_fields(cls) -> Mapping[str, FieldInfo]:
        """Return DAPO's settings but for what a sweep has itself."""
        fields = DapoSettings.model_fields
        return {f"train.{name}": info for name, info in fields.items() if name not in ("seed", "grader")}

    @cached_property
    def plain_dapo(self) -> TrainSpec:
        """The reference. A `clip_high` that `train` names is kept."""
        dapo = {name: value for name, value in self._dapo.items() if name not in REWEIGHTING}
        return self._complete({**dapo, "method": "none"})

    def training(self, point: Point) -> TrainSpec:
        """Return what is trained at a point, or as a reference.

        Raises:
            UserError: the point contradicts itself.
        """
        if "reference" in point:
            return self.plain_dapo
        varied = {name.removeprefix("train."): point[name] for name in self.parameters if name in point}
        return self._complete({**self._dapo, **varied})

    @property
    def _dapo(self) -> dict[str, Any]:
        dapo = self.train.get("dapo") or {}
        if not isinstance(dapo, Mapping):
            accepted = ", ".join(DapoSettings.model_fields)
            raise UserError("is not a mapping", argument="train.dapo", value=dapo, accepted=f"a mapping of {accepted}")
        return dict(dapo)

    def _complete(self, dapo: dict[str, Any]) -> TrainSpec:
        return complete({**self.train, "dapo": dapo, "seeds": list(self.seeds)})

    @property
    def pairs(self) -> Mapping[str, None]:
        """The base that all trainings start from."""
        return {self.plain_dapo.base.rstrip("/").split("/")[-1]: None}

    @property
    def at_once(self) -> int:
        """One point is trained after the other."""
        return 1

    @property
    def run_params(self) -> dict[str, str]:
        """The base and the benchmarks."""
        return {"base": self.plain_dapo.base, "tasks": ", ".join(self.plain_dapo.validation.tasks)}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics there are, Avg@k of the validation first: means over benchmarks, then over seeds."""
        samples = self.plain_dapo.validation.sampling.samples
        return (f"avg_at_{samples}", f"pass_at_{max(1, samples // 2)}", *SHARED)

    def check(self) -> None:
        """Refuse what one field alone cannot tell.

        Raises:
            UserError: naming the first thing that does not fit.
        """
        self._complete(self._dapo)  # its own mistakes first, under its own names
        super().check()
        for name in self.parameters:
            if (key := name.removeprefix("train.")) in self._dapo:
                raise UserError(
                    f"is both fixed (train.dapo.{key}) and varied (parameters)",
                    argument=name,
                    value=self._dapo[key],
                    hint="Remove one of them.",
                )
        if not self.plain_dapo.validation.tasks:
            raise UserError(
                "must name a benchmark, because points are compared by their scores",
                argument="train.validation.tasks",
                value=(),
            )
        if self.metric.name not in self.metrics:
            raise unknown("metric", self.metric.name, self.metrics)
        points = listed_points(self) if self.method in LISTED else self.covering_points()
        trained = [self.training(point).same for point in points]
        for number, training in enumerate(trained):
            if self.method == "grid" and training in trained[:number]:
                raise UserError(
                    f"give the training {training.dapo.label} twice",
                    argument="parameters",
                    value=[*self.parameters],
                    hint="Remove one of the values.",
                )


KINDS: dict[str, type[Search]] = {"decode": SweepSpec, "train": TrainingSweep}


def load(data: Mapping[str, Any]) -> Search:
    """Make a sweep of either kind from its YAML.

    Raises:
        UserError: there is no such kind, or what `parse` refuses.
    """
    if not isinstance(data, Mapping):
        raise UserError("is not a mapping of keys to values", argument="sweep", value=data)
    if str(kind := data.get("kind", "decode")) not in KINDS:
        raise unknown("kind", kind, KINDS)
    return parse(KINDS[str(kind)], data)

"""Read a sweep's file by its `kind`, and describe a sweep of trainings.

    spec = load(read_yaml("sweep.yaml"))

In a sweep of trainings `train` is a file of `rlvr-dir train` without its seeds. Parameters are keys of its `dapo`, such
as `train.alpha`.
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

REWEIGHTING = ("method", "alpha", "pi_source", "ppl_scope")  # settings that plain DAPO does not have
SHARED = ("truncated_share", "mean_tokens")


def _read_train(value: Any) -> dict[str, Any]:
    """Read the settings that all points share: a file of `rlvr-dir train` without its seeds."""
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
    """Set how many trainings run at the same time, with how many GPUs each, and on which machines."""

    count: int = Field(default=1, ge=1, description="Trainings that run at the same time.")
    gpus_each: int = Field(default=0, ge=0, description="GPUs of each.")
    ray_address: str | None = Field(
        default=None, description="HOST:PORT of a Ray cluster, or auto: trainings run on all its machines."
    )


class TrainingSweep(Search, frozen=True):
    """Describe a whole sweep of trainings.

    Plain DAPO with the other settings of `train` is always trained, with the same seeds, as the reference.
    """

    kind: Literal["train"] = Field(default="train", description="train.")
    train: Annotated[dict[str, Any], BeforeValidator(_read_train)] = Field(
        default_factory=dict, description="The keys of a training's file, without seeds."
    )
    seeds: tuple[int, ...] = Field(default=(0,), description="Seeds of each training; a point is the mean over them.")
    workers: Workers = Field(default_factory=Workers)

    @classmethod
    def parameter_fields(cls) -> Mapping[str, FieldInfo]:
        """Return DAPO's settings, except those that a sweep has itself."""
        fields = DapoSettings.model_fields
        return {f"train.{name}": info for name, info in fields.items() if name not in ("seed", "grader")}

    @cached_property
    def plain_dapo(self) -> TrainSpec:
        """Return the reference. A `clip_high` in `train` is kept."""
        dapo = {name: value for name, value in self._dapo.items() if name not in REWEIGHTING}
        return self._complete({**dapo, "method": "none"})

    def training(self, point: Point) -> TrainSpec:
        """Return the training of a point, or of a reference.

        Raises:
            UserError: The point contradicts itself.
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
        """Return the base that all trainings start from."""
        return {self.plain_dapo.base.rstrip("/").split("/")[-1]: None}

    @property
    def at_once(self) -> int:
        """Return 1, because points are trained one after the other."""
        return 1

    @property
    def run_params(self) -> dict[str, str]:
        """Return the base and the benchmarks."""
        return {"base": self.plain_dapo.base, "tasks": ", ".join(self.plain_dapo.validation.tasks)}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics, Avg@k of the validation first: means over benchmarks, then over seeds."""
        samples = self.plain_dapo.validation.sampling.samples
        return (f"avg_at_{samples}", f"pass_at_{max(1, samples // 2)}", *SHARED)

    def check(self) -> None:
        """Check what a single field cannot.

        Raises:
            UserError: Fields do not fit together; the error names the first.
        """
        self._complete(self._dapo)  # check its own keys first, by their own names
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
        UserError: The kind is unknown, or `parse` does not accept the data.
    """
    if not isinstance(data, Mapping):
        raise UserError("is not a mapping of keys to values", argument="sweep", value=data)
    if str(kind := data.get("kind", "decode")) not in KINDS:
        raise unknown("kind", kind, KINDS)
    return parse(KINDS[str(kind)], data)

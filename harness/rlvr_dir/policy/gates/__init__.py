"""Define the gates of Algorithm 1: a criterion and its threshold choose which proposed tokens are flagged.

Each criterion is one class in a file of gates/, or in a module of your own (`criterion=margin:Margin`):

    class Margin(Threshold):
        name, label = "margin", "margin of RL's two most likely tokens"
        places: int = 1                      # a parameter: an option, a key of YAML, a part of the hash

        def value(self, step):               # (rows,) numbers; tokens are flagged where they are beyond tau
            ...

Options, keys, hashes, labels, help, traces and the decision itself are derived from the class. No other code names a
criterion. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlvr_dir.errors import UserError, unknown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from torch import Tensor

    from rlvr_dir.policy.statistics import StepView

Side = Literal["below", "above"]
Sign = Literal["negative", "positive"]  # of delta log p of the proposed token


class GateError(UserError):
    """Report that a user-defined criterion cannot be loaded or computed."""


class Gate(BaseModel, frozen=True):
    """Define a criterion with its parameters, which are its fields. Rows with equal gates are evaluated together."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    name: ClassVar[str] = ""  # the name that selects it
    label: ClassVar[str] = ""  # the name of its value in tables and figures
    statistic: ClassVar[str] = ""  # the statistic of the position that is its value, if it is one
    paper: ClassVar[bool] = False  # whether it is one of the paper's
    landmark: ClassVar[bool] = False  # whether figures that are split show it in every part
    written: ClassVar[str] = ""  # of a user-defined class: package.module:CLASS, as files and hashes name it
    redraws: ClassVar[bool] = False  # whether `redraw` replaces the target as the distribution for flagged tokens

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Name a user-defined class by its import path."""
        if not cls.__module__.startswith("rlvr_dir.policy."):
            cls.written = f"{cls.__module__}:{cls.__qualname__}"
            cls.name = cls.__dict__.get("name") or cls.__name__.lower()
            cls.label = cls.__dict__.get("label") or cls.name

    @classmethod
    def source(cls) -> str:
        """Return the digest of a user-defined class's file, which is part of hashes; empty for our own classes."""
        file = sys.modules[cls.__module__].__file__ if cls.written else None
        return sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""

    def value(self, step: StepView) -> Tensor:
        """Return (rows,) numbers to compare with the threshold. NaN means that there is no value, and the response
        fails."""
        return step.stat(self.statistic)

    def redraw(self, step: StepView) -> Tensor:
        """Return (rows, vocab) weights of at most 1 to resample from instead of the target distribution."""
        return step.law("target")

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return the threshold, and True if tokens are flagged below it, False if above."""
        return 0.0, False

    @property
    def everywhere(self) -> bool:
        """Return whether every position is flagged."""
        return self.threshold == (-inf, False)

    def without_threshold(self) -> Gate:
        """Return the gate with a fixed threshold, which is equal for rows that can be evaluated together."""
        return self

    def plain(self) -> dict[str, Any]:
        """Return the gate as plain values for files and hashes: its `criterion` and its parameters."""
        source = {"source": self.source()} if self.written else {}
        fields = {name: value for name, value in self.model_dump().items() if name != "sign" or value is not None}
        return {"criterion": self.written or self.name, **source, **fields}

    def ask(self, step: StepView, rows: int) -> Tensor:
        """Return `value` of this many rows.

        Raises:
            GateError: The criterion fails, or does not return one number per row.
        """
        try:
            value = self.value(step)
            if value.shape != (rows,):
                raise ValueError(f"its value has shape {tuple(value.shape)} instead of ({rows},), one number per row")
        except Exception as error:
            if not self.written:
                raise
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            where = line_of(error, type(self).__module__.rpartition(".")[2])
            raise GateError(f": {kind}{error}{where}", argument="criterion", value=self.written) from error
        return value

    @property
    def own(self) -> dict[str, Any]:
        """Return the parameters that only this criterion has, in the order of their declaration."""
        return {name: value for name, value in self.model_dump().items() if name not in Threshold.model_fields}

    @property
    def words(self) -> str:
        """Return its name with its own parameters, its side if it is not the usual one, and its sign: `NAME/32 above
        positive`.

        `split` reads this text.
        """
        return " ".join(["/".join([self.name, *map(str, self.own.values())]), *self._sides])

    @property
    def caption(self) -> str:
        """Return the name of its value in tables and figures: `LABEL (span 32) below`."""
        own = ", ".join(f"{name} {value}" for name, value in self.own.items())
        return " ".join([self.label, *([f"({own})"] if own else []), *self._sides])

    @property
    def _sides(self) -> list[str]:
        return [side for name in ("side", "sign") if (side := getattr(self, name, None))]


class Threshold(Gate, frozen=True):
    """Flag tokens whose value is beyond `tau`. A value equal to `tau` is never flagged."""

    below: ClassVar[bool] = False  # the usual side
    least: ClassVar[float | None] = None  # the least possible value, in nats

    tau: float = Field(description="Threshold: delta_logp and random flag tokens below it, others above it.")
    side: Side | None = Field(
        default=None, description="Flag tokens below or above tau, if that is not the criterion's usual side."
    )

    sign: Sign | None = Field(default=None, description="Flag only tokens whose Δ log p is negative, or positive.")

    @model_validator(mode="after")
    def _drop_default_side(self) -> Threshold:
        """Replace the criterion's usual side by None, so that two equivalent ways of writing a gate are equal."""
        if self.side == ("below" if self.below else "above"):
            object.__setattr__(self, "side", None)
        return self

    @property
    def holds_below(self) -> bool:
        """Return whether tokens are flagged below tau, not above it."""
        return self.side == "below" if self.side else self.below

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return tau, and whether tokens are flagged below it."""
        return self.tau, self.holds_below

    def without_threshold(self) -> Threshold:
        """Return the gate with the same threshold for all gates of its kind. Its sign stays."""
        return self.model_copy(update={"tau": 0.0, "side": None})

    def doubt(self) -> str | None:
        """Return a warning if this threshold is probably a mistake, else None."""
        if self.least is not None and self.tau < self.least:
            share = "no token is ever" if self.holds_below else "every token is"
            return f"tau={self.tau} is negative: {self.name} is never below {self.least:g}, so {share} flagged"
        return None


def sign_of(gate: Gate | None) -> int:
    """Return the sign of delta log p that a gate requires, -1 or 1; 0 if it requires none."""
    return {"negative": -1, "positive": 1}.get(getattr(gate, "sign", None) or "", 0)


OWN: dict[str, type[Gate]] = {}  # user-defined classes that `policy.own` imported, by import path


def line_of(error: BaseException, module: str) -> str:
    """Return the last line of a module's file in an error's traceback; an empty text if there is none."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if Path(at.filename).stem == module]
    return f" ({module}.py, line {lines[-1]})" if lines else ""


@cache
def gates() -> dict[str, type[Gate]]:
    """Return the criteria by name, in the order of the files and of the classes in them."""
    modules = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    classes = [member for module in modules for member in vars(module).values() if isinstance(member, type)]
    return {gate.name: gate for gate in classes if issubclass(gate, Gate) and gate.name}


def parameters() -> dict[str, FieldInfo]:
    """Return the parameters of all criteria, by name."""
    return {name: info for gate in (*gates().values(), *OWN.values()) for name, info in gate.model_fields.items()}


def split(criterion: str) -> dict[str, Any]:
    """Read a criterion as labels have it, its own parameters, side and sign behind it: `NAME/32 below negative`.

    Returns:
        `criterion`, its name, and what was named with it.
    """
    words, *sides = criterion.split(" ")
    named = {"sign" if side in get_args(Sign) else "side": side for side in sides}
    if ":" in words:  # user-defined
        return {"criterion": words, **named}
    name, *values = words.split("/")
    if (gate_class := gates().get(name)) is None:
        return {"criterion": criterion}
    own = [field for field in gate_class.model_fields if field not in Threshold.model_fields]
    if len(values) > len(own):
        return {"criterion": criterion}
    return {"criterion": name, **dict(zip(own, values, strict=False)), **named}


def gate_of(fields: Mapping[str, Any]) -> Gate:
    """Make a gate from its `criterion` and its parameters.

    Raises:
        ValueError: The criterion is unknown, or does not accept a parameter or its value.
    """
    criterion = fields.get("criterion")
    if not isinstance(criterion, str) or (gate_class := gates().get(criterion)) is None:
        raise unknown("criterion", criterion, gates())
    return gate_class.model_validate({name: value for name, value in fields.items() if name != "criterion"})

"""Gates: the criteria f of Algorithm 1, which say where a proposed token is redrawn. A criterion is one class here.

    class Margin(Threshold):                 # a file of gates/, or anybody's own: criterion=margin:Margin
        name, label = "margin", "margin of RL's two most likely tokens"
        places: int = 1                      # a parameter: an option, a key of YAML, a part of the hash

        def value(self, step):               # (rows,) numbers; it holds where they are beyond tau
            ...

Options, keys, hashes, labels, help, traces and the decision itself are made from the class; nothing else in the house
names one. Nothing here imports torch.
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
    """A user-defined criterion cannot be loaded or computed."""


class Gate(BaseModel, frozen=True):
    """A criterion with its parameters, which are its fields. Rows whose gates are equal are asked together."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    name: ClassVar[str] = ""  # under which it is asked for
    label: ClassVar[str] = ""  # what tables and figures call its value
    statistic: ClassVar[str] = ""  # what its value is, where that is a statistic of the position as it is
    paper: ClassVar[bool] = False  # whether it is one of the paper's
    landmark: ClassVar[bool] = False  # whether figures that are parted show it in every part
    written: ClassVar[str] = ""  # of somebody's own: as files and hashes have it, package.module:CLASS
    redraws: ClassVar[bool] = False  # whether `redraw` says what its rows are redrawn from, in place of the target

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Name a class of somebody's own by its place."""
        if not cls.__module__.startswith("rlvr_dir.policy."):
            cls.written = f"{cls.__module__}:{cls.__qualname__}"
            cls.name = cls.__dict__.get("name") or cls.__name__.lower()
            cls.label = cls.__dict__.get("label") or cls.name

    @classmethod
    def source(cls) -> str:
        """Return the digest of the file of a class of somebody's own, which is part of hashes; empty of ours."""
        file = sys.modules[cls.__module__].__file__ if cls.written else None
        return sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""

    def value(self, step: StepView) -> Tensor:
        """Return (rows,) numbers to compare with the threshold; NaN: it cannot know, and the response is refused."""
        return step.stat(self.statistic)

    def redraw(self, step: StepView) -> Tensor:
        """Return (rows, vocab) weights to redraw from, at most 1: the target's law."""
        return step.law("target")

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return beyond which value it holds, and whether below it, not above."""
        return 0.0, False

    @property
    def everywhere(self) -> bool:
        """Whether it holds at every position."""
        return self.threshold == (-inf, False)

    def without_threshold(self) -> Gate:
        """Return what rows have in common that are asked together: the gate, whatever its threshold."""
        return self

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for files and hashes: its `criterion` and its parameters."""
        source = {"source": self.source()} if self.written else {}
        fields = {name: value for name, value in self.model_dump().items() if name != "sign" or value is not None}
        return {"criterion": self.written or self.name, **source, **fields}

    def ask(self, step: StepView, rows: int) -> Tensor:
        """Return `value` of so many rows, or say in a sentence what is wrong with it.

        Raises:
            GateError: it fails, or gives no number a row.
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
        """Return the parameters that it alone has, in the order in which they are declared."""
        return {name: value for name, value in self.model_dump().items() if name not in Threshold.model_fields}

    @property
    def words(self) -> str:
        """Name it with its own parameters, its side where that is not its own, and its sign: `NAME/32 above positive`.

        `split` reads it.
        """
        return " ".join(["/".join([self.name, *map(str, self.own.values())]), *self._sides])

    @property
    def caption(self) -> str:
        """Name its value as tables and figures do: `LABEL (span 32) below`."""
        own = ", ".join(f"{name} {value}" for name, value in self.own.items())
        return " ".join([self.label, *([f"({own})"] if own else []), *self._sides])

    @property
    def _sides(self) -> list[str]:
        return [side for name in ("side", "sign") if (side := getattr(self, name, None))]


class Threshold(Gate, frozen=True):
    """A criterion that holds where its value is beyond `tau`; equality never does."""

    below: ClassVar[bool] = False  # its own side
    least: ClassVar[float | None] = None  # what its value is never below, in nats

    tau: float = Field(description="Threshold: delta_logp and random below it, others above.")
    side: Side | None = Field(
        default=None, description="Redraw below or above tau, where that is not the criterion's own side."
    )

    sign: Sign | None = Field(
        default=None, description="Redraw only where Δ log p of the token is negative, or positive."
    )

    @model_validator(mode="after")
    def _settle(self) -> Threshold:
        """Write the criterion's own side as none, so that two ways of saying it are equal."""
        if self.side == ("below" if self.below else "above"):
            object.__setattr__(self, "side", None)
        return self

    @property
    def holds_below(self) -> bool:
        """Whether it holds below tau, not above it."""
        return self.side == "below" if self.side else self.below

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return tau, and whether it holds below it."""
        return self.tau, self.holds_below

    def without_threshold(self) -> Threshold:
        """Return the gate with a threshold that all of its kind have; its sign stays."""
        return self.model_copy(update={"tau": 0.0, "side": None})

    def doubt(self) -> str | None:
        """Describe in a sentence why this threshold is hardly meant; None where nothing is odd."""
        if self.least is not None and self.tau < self.least:
            share = "no token is ever" if self.holds_below else "every token is"
            return f"tau={self.tau} is negative: {self.name} is never below {self.least:g}, so {share} redrawn"
        return None


def sign_of(gate: Gate | None) -> int:
    """Return the sign of delta log p that a gate asks for, -1 or 1; 0 where it asks for none."""
    return {"negative": -1, "positive": 1}.get(getattr(gate, "sign", None) or "", 0)


OWN: dict[str, type[Gate]] = {}  # somebody's own, imported by `policy.own`: by what was written, and as files have it


def line_of(error: BaseException, module: str) -> str:
    """Describe at which line of a module's file an error was raised last; nothing where it was not there."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if Path(at.filename).stem == module]
    return f" ({module}.py, line {lines[-1]})" if lines else ""


@cache
def gates() -> dict[str, type[Gate]]:
    """Return the criteria that there are, by name, in the order of the files and of the classes in them."""
    modules = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    classes = [member for module in modules for member in vars(module).values() if isinstance(member, type)]
    return {gate.name: gate for gate in classes if issubclass(gate, Gate) and gate.name}


def parameters() -> dict[str, FieldInfo]:
    """Return what any criterion can be asked with, by name."""
    return {name: info for gate in (*gates().values(), *OWN.values()) for name, info in gate.model_fields.items()}


def split(criterion: str) -> dict[str, Any]:
    """Read a criterion as labels have it, its own parameters, side and sign behind it: `NAME/32 below negative`.

    Returns:
        `criterion`, its name, and what was named with it.
    """
    words, *sides = criterion.split(" ")
    named = {"sign" if side in get_args(Sign) else "side": side for side in sides}
    if ":" in words:  # somebody's own
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
        ValueError: there is no such criterion, or it has no such parameters, or refuses a value.
    """
    criterion = fields.get("criterion")
    if not isinstance(criterion, str) or (gate_class := gates().get(criterion)) is None:
        raise unknown("criterion", criterion, gates())
    return gate_class.model_validate({name: value for name, value in fields.items() if name != "criterion"})

"""Gates: the criteria f of Algorithm 1, which say where a proposed token is redrawn. A criterion is one class here.

    class Margin(Threshold):                 # a file of gates/, or anybody's own: criterion=margin.py:Margin
        name, label = "margin", "margin of RL's two likeliest tokens"
        places: int = 1                      # a parameter: an option, a key of YAML, a part of the hash

        def value(self, step):               # (rows,) numbers; it holds where they are beyond tau
            ...

Options, keys, hashes, labels, help, traces and the decision itself are made from the class; nothing else in the house
names one. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import Tensor

    from harness.policy.step import Step

Side = Literal["below", "above"]
MEMORY = 256  # positions that a gate may look back at


class Gate(BaseModel, frozen=True):
    """A criterion with its parameters, which are its fields. Rows whose gates are equal are asked together."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    name: ClassVar[str] = ""  # under which it is asked for
    label: ClassVar[str] = ""  # what tables and figures call its value
    statistic: ClassVar[str] = ""  # what its value is, where that is a statistic of the position as it is
    needs: ClassVar[tuple[str, ...] | None] = None  # the statistics that `value` reads; None: policies, perhaps
    memory: ClassVar[int] = 0  # positions that it looks back at, with `remember` and `recall`; at most MEMORY
    redraws: ClassVar[bool] = False  # whether `redraw` says what its rows are redrawn from, in place of the target
    threshold: ClassVar[tuple[float, bool]] = (0.0, False)  # where it holds: beyond this, below it (True) or above

    def value(self, step: Step) -> Tensor:
        """Return (rows,) numbers to compare with the threshold; NaN: it cannot know, and the response is refused."""
        return step.stat(self.statistic)

    def redraw(self, step: Step) -> Tensor:
        """Return (rows, vocab) weights to redraw from, at most 1."""
        raise NotImplementedError

    def asked(self) -> Gate:
        """Return what rows have in common that are asked together: the gate, whatever its threshold."""
        return self

    @property
    def words(self) -> str:
        """What it is called with its parameters, short: `spike/32`."""
        return self.name

    @property
    def caption(self) -> str:
        """What its value is called in tables and figures, with its parameters."""
        return self.label


class Threshold(Gate, frozen=True):
    """A criterion that holds where its value is beyond `tau`; equality never does."""

    below: ClassVar[bool] = False  # its own side
    least: ClassVar[float | None] = None  # what its value is never below, in nats

    tau: float = Field(description="Threshold: delta_logp and random below it, others above.")
    side: Side | None = Field(
        default=None, description="Redraw below or above tau, where that is not the criterion's own side."
    )

    @property
    def holds_below(self) -> bool:
        """Whether it holds below tau, not above it."""
        return self.side == "below" if self.side else self.below

    @property
    def threshold(self) -> tuple[float, bool]:
        """Return tau, and whether it holds below it."""
        return self.tau, self.holds_below

    def asked(self) -> Threshold:
        """Return the gate with a threshold that all of its kind have."""
        return self.model_copy(update={"tau": 0.0, "side": None})

    @property
    def words(self) -> str:
        """What it is called with its side, where that is not its own: `delta_logp above`."""
        return self.name if self.side is None else f"{self.name} {self.side}"

    @property
    def caption(self) -> str:
        """What its value is called, with its side where that is not its own."""
        return self.label if self.side is None else f"{self.label} {self.side}"


@cache
def gates() -> dict[str, type[Gate]]:
    """Return the criteria that there are, by name, in the order of the files and of the classes in them."""
    modules = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {gate.name: gate for gate in found if issubclass(gate, Gate) and gate.name}


def gate_of(fields: Mapping[str, Any]) -> Gate:
    """Make a gate from its `criterion` and its parameters.

    Raises:
        ValueError: there is no such criterion, or it has no such parameters.
    """
    criterion = fields.get("criterion")
    if criterion not in gates():
        raise ValueError(f"criterion={criterion!r} is not known; accepted: {', '.join(gates())}")
    return gates()[criterion].model_validate({name: value for name, value in fields.items() if name != "criterion"})

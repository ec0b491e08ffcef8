"""Import user-defined criteria, `criterion=package.module:CLASS`.

A criterion is only imported if a person names it in a command, a model argument or a file that they run (`load_named`).
Names in records, results or requests are never imported.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import ConfigDict, Field, model_validator

from rlvr_dir.policy.gates import OWN, Gate, GateError, line_of

VARIABLE = "RLVR_DIR_CRITERIA"  # criteria imported here, for the processes that this one starts
_NAMED = re.compile(r"(?:^|[,;])\s*criterion\s*=\s*([\w.]+:[A-Za-z_]\w*)")
_NAME, _VALUE = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII), re.compile(r"[\w.+, \[\]'-]{1,200}", re.ASCII)


def load_named(*options: Any) -> None:
    """Import the criteria that are named anywhere in options, or in the values of a file.

    Raises:
        GateError: A criterion cannot be imported, or is not a gate.
    """
    for criterion in _named(options, ""):
        load(criterion)


def not_loaded(data: Any) -> list[str]:
    """Return the user-defined criteria that `data` names and that are not imported here."""
    return [criterion for criterion in _named(data, "") if imported(criterion) is None]


def _named(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value.partition(" ")[0]] if key == "criterion" and ":" in value else _NAMED.findall(value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _named(item, key if key == "criterion" else str(name).rpartition(".")[2])
    elif isinstance(value, Sequence):
        for item in value:
            yield from _named(item, key)


def load(criterion: str) -> type[Gate]:
    """Import the class at package.module:CLASS.

    Raises:
        GateError: It cannot be imported, or is not a gate.
    """
    module, _, name = criterion.partition(":")
    try:
        members = vars(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        where = line_of(error, module.rpartition(".")[2])
        raise GateError(
            f"cannot be imported: {type(error).__name__}: {error}{where}",
            argument="criterion",
            value=criterion,
            accepted="a class in a module that Python can import here (an installed package, or on PYTHONPATH)",
        ) from None
    gate = members.get(name)
    if not _is_criterion(gate):
        own = [called for called, member in members.items() if _is_criterion(member) and member.__module__ == module]
        raise GateError(
            "is not a criterion",
            argument="criterion",
            value=criterion,
            accepted="a subclass of rlvr_dir.policy.gates.Threshold",
            hint=f"{module} has: {', '.join(own)}" if own else "",
        )
    if not gate.statistic and gate.value is Gate.value:
        raise GateError(
            "has no value",
            argument="criterion",
            value=criterion,
            accepted="a method value(step) that returns one number per row",
        )
    OWN.update({criterion: gate, gate.written: gate})
    os.environ[VARIABLE] = ",".join(OWN)
    return gate


def _is_criterion(member: object) -> TypeGuard[type[Gate]]:
    return isinstance(member, type) and issubclass(member, Gate) and bool(member.written)


def imported(criterion: str, source: str | None = None) -> type[Gate] | None:
    """Return a class that this process, or its parent, imported; None if it was not, or if its source differs."""
    if criterion not in OWN and criterion in os.environ.get(VARIABLE, "").split(","):
        load(criterion)
    gate = OWN.get(criterion)
    return gate if gate is not None and source in (None, gate.source()) else None


class NotLoaded(Gate, frozen=True):
    """Represent a user-defined criterion that a record or a result names but that is not imported.

    It can be compared, but not computed. Its text from a file of unknown origin appears in tables, figures and pages,
    so only short plain values are allowed.
    """

    model_config = ConfigDict(extra="allow")

    criterion: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,199}:[A-Za-z_][A-Za-z0-9_]{0,99}$")
    digest: str = Field(pattern="^[0-9a-f]{16}$")

    @model_validator(mode="after")
    def _check(self) -> NotLoaded:
        for name, value in (self.model_extra or {}).items():
            if not _NAME.fullmatch(name) or not (value is None or _VALUE.fullmatch(str(value))):
                raise ValueError(f"{name[:40]!r} of criterion={self.criterion!r} is no name with a plain value")
        return self

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the class's name."""
        return self.criterion.rpartition(":")[2].lower()

    label = name  # pyright: ignore[reportAssignmentType]

    @property
    def own(self) -> dict[str, Any]:
        """Return the parameters that only this criterion has."""
        extra = self.model_extra or {}
        return {name: value for name, value in extra.items() if name not in ("tau", "side")}

    def plain(self) -> dict[str, Any]:
        """Return the values as they were read."""
        return {"criterion": self.criterion, "source": self.digest, **(self.model_extra or {})}

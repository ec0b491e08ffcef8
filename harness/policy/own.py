"""A criterion of one's own, `criterion=margin.py:Margin` or `package.module:Margin`: loaded where a user names it.

Only what a person writes into a command, a model argument or a file that they run is loaded (`load_named`), never what
a record, a result or a request names. The digest of its source is part of what is hashed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, model_validator

from harness.policy.gates import OWN, Gate, GateError

if TYPE_CHECKING:
    from torch import Tensor

    from harness.policy.statistics import Step

VARIABLE = "RLVR_DIR_OWN_GATES"  # what was loaded here, for the processes of an engine
_WRITTEN = re.compile(r"[\w./-]{1,200}:[A-Za-z_]\w{0,99}", re.ASCII)  # as records and results tell of one
_NAME, _VALUE = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII), re.compile(r"[\w.+, \[\]'-]{1,200}", re.ASCII)
_NAMED = re.compile(r"(?:^|[,;])\s*criterion\s*=\s*([^,;]+:[A-Za-z_]\w*)")


def load_named(*given: Any) -> None:
    """Load the criteria that are named anywhere in options, or in the values of a file.

    Raises:
        GateError: one cannot be loaded, or is no gate.
    """
    for value in given:
        for criterion in _named(value, ""):
            load(criterion)


def not_loaded(data: Any) -> list[str]:
    """Return the criteria of somebody's own that some data name and that are not loaded here."""
    return [criterion for criterion in _named(data, "") if known(criterion) is None]


def _named(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value] if key == "criterion" and ":" in value else _NAMED.findall(value)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _named(each, key if key == "criterion" else str(name).rpartition(".")[2])
    elif isinstance(value, Sequence):
        for each in value:
            yield from _named(each, key)


def load(criterion: str) -> type[Gate]:
    """Load the class at FILE.py:CLASS or package.module:CLASS, once.

    Raises:
        GateError: it cannot be loaded, or is no gate.
    """
    if (known := OWN.get(criterion)) is not None:
        return known
    place, _, name = criterion.partition(" ")[0].rpartition(":")
    try:
        module, file = _module(place)
    except (Exception, SystemExit) as error:  # a user's program, which may fail as any
        raise GateError(f"criterion={criterion!r} cannot be loaded: {type(error).__name__}: {error}") from None
    made = getattr(module, name, None)
    if not (isinstance(made, type) and issubclass(made, Gate)):
        there = [each for each, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, Gate)]
        raise GateError(
            f"criterion={criterion!r} is no criterion; accepted: a class of {file.name} that is a Threshold of "
            f"harness.policy.gates; there are {', '.join(there) or 'none'}"
        )
    if not made.statistic and made.value is Gate.value:
        raise GateError(f"criterion={criterion!r} has no value; accepted: a method value(step), one number a row")
    if not _WRITTEN.fullmatch(f"{file.name if place.endswith('.py') else place}:{name}"):
        raise GateError(f"criterion={criterion!r} is refused; accepted: a name of letters, digits, _, - and dots")
    made.source = sha256(file.read_bytes()).hexdigest()[:16]
    made.place = f"{file.resolve() if place.endswith('.py') else place}:{name}"
    made.written = f"{file.name if place.endswith('.py') else place}:{name}"
    made.__reduce__ = _by_place  # its module is no other process's
    made.name = made.name or name.lower()
    made.label = made.label or made.name
    OWN.update({criterion: made, made.place: made, made.written: made})
    os.environ[VARIABLE] = json.dumps(sorted({(key, each.place, each.source) for key, each in OWN.items()}))
    return made


def _module(place: str) -> tuple[Any, Path]:
    if not place.endswith(".py"):
        module = importlib.import_module(place)
        return module, Path(str(module.__file__))
    path = Path(place).expanduser().resolve()
    name = f"rlvr_dir_own_{sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module, path


def known(criterion: str, source: str | None = None) -> type[Gate] | None:
    """Return a class that was loaded, by what was written; None where none was, or one of another source."""
    made = OWN.get(criterion)
    for written, place, _ in json.loads(os.environ.get(VARIABLE, "[]")) if made is None else ():
        if criterion == written:  # a worker of a process that has loaded it
            made = load(place)
    return made if made is not None and source in (None, made.source) else None


def rebuilt(place: str, source: str, fields: Mapping[str, Any]) -> Gate:
    """Make a gate again in another process of the same program.

    Raises:
        GateError: that program has not loaded it, or its source has changed since.
    """
    if [place, place, source] not in json.loads(os.environ.get(VARIABLE, "[]")):
        raise GateError(f"criterion={place!r} was not loaded when this engine started; accepted: to name it before")
    made = load(place)
    if made.source != source:
        raise GateError(f"criterion={place!r} has changed since it was loaded; accepted: to begin again")
    return made.model_validate(fields)


def _by_place(self: Gate) -> tuple[Any, ...]:
    return rebuilt, (self.place, self.source, self.model_dump())


class NotLoaded(Gate, frozen=True):
    """Stand for a criterion of somebody's own that a record or a result tells of: named and compared, never asked.

    What a stranger's file says of it gets into tables, figures and pages, so it is short, and words alone.
    """

    model_config = ConfigDict(extra="allow")

    criterion: str
    digest: str = Field(pattern="^[0-9a-f]{16}$")

    @model_validator(mode="after")
    def _check(self) -> NotLoaded:
        if not _WRITTEN.fullmatch(self.criterion):
            raise ValueError(f"criterion={self.criterion[:80]!r} is refused; accepted: FILE.py:CLASS")
        for name, value in (self.model_extra or {}).items():
            if not _NAME.fullmatch(name) or not (value is None or _VALUE.fullmatch(str(value))):
                raise ValueError(f"{name[:40]!r} of criterion={self.criterion!r} is no name with a plain value")
        return self

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the class's name."""
        return self.criterion.rpartition(":")[2].lower()

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the same."""
        return self.name

    @property
    def own(self) -> dict[str, Any]:
        """Return the parameters that it alone has."""
        extra = self.model_extra or {}
        return {name: value for name, value in extra.items() if name not in ("tau", "side")}

    def plain(self) -> dict[str, Any]:
        """Return what was read."""
        return {"criterion": self.criterion, "source": self.digest, **(self.model_extra or {})}

    def value(self, step: Step) -> Tensor:
        """Refuse."""
        raise GateError(f"criterion={self.criterion!r} is not loaded: only what you name yourself is; accepted: -d")

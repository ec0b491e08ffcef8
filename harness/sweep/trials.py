"""What is done of a sweep: a file a point, `points/KEY.json`, written once it is complete or has failed.

They say which results belong to which point. Whoever is killed loses none, and two who do one point write the same.
"""

import sys
from collections.abc import Iterator
from hashlib import sha256
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from harness.errors import DamagedError
from harness.files import write_file
from harness.spec import Decoding, Sampling
from harness.spec.search import Search
from harness.spec.stored import Count, Name, Number, Plain, Stored, Text
from harness.spec.sweep import SweepSpec
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point, key


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"results: {name!r} is refused; accepted: the name of a file inside the folder")
    return name


FileInside = Annotated[Name, AfterValidator(_inside)]  # of a training `NAME/seed-0/done.json`


class DecodingPoint(Stored, frozen=True):
    """What every point, and every reference, of a sweep of decodings has."""

    pair: Text
    reference: Decoding | None = None
    sampling: Sampling | None = None


class TrainingPoint(Stored, frozen=True):
    """That of a sweep of trainings; a reference has the settings that it changes."""

    pair: Text
    reference: Plain | None = None


class Trial(Stored, frozen=True):
    """A point, or a reference, that was tried. `about` is what else is known: its seeds' metrics."""

    point: Plain
    state: Literal["complete", "failed"]
    number: Count = 0  # in the order of points
    results: tuple[FileInside, ...] = ()
    metrics: dict[str, Number] = Field(default_factory=dict)
    error: Text | None = None
    about: Plain = Field(default_factory=dict)

    @property
    def pair(self) -> str:
        """The pair's name."""
        return self.point["pair"]

    @property
    def is_reference(self) -> bool:
        """Whether it is none of the points."""
        return "reference" in self.point


class Trials:
    """The trials of a sweep, by the key of their point, as they were when they were last `read`."""

    def __init__(self, spec: Search, folder: SweepFolder) -> None:
        self.spec, self.folder = spec, folder
        self._known: dict[str, Trial] = {}
        self._damaged: set[Path] = set()
        self.read()

    def read(self) -> None:
        """Read what others have written since. A file that is no trial of this sweep is named once, and hides no other:
        its point counts as not yet done.
        """
        for path in sorted(self.folder.points.glob("*.json")):
            if path.stem not in self._known or self._known[path.stem].state == "failed":
                try:
                    trial = Trial.from_file(path)
                    self._check(trial, path)
                except DamagedError as error:
                    if path not in self._damaged:
                        print(f"warning: left out, its point is done again: {error}", file=sys.stderr)
                    self._damaged.add(path)
                    continue
                self._known[path.stem] = trial

    def write(self, trial: Trial) -> None:
        """Keep a trial."""
        name = _name(trial.point)
        write_file(self.folder.points / f"{name}.json", trial.model_dump_json(indent=1).encode())
        self._known[name] = trial

    def forget(self, trial: Trial) -> None:
        """Have a point be done again."""
        name = _name(trial.point)
        (self.folder.points / f"{name}.json").unlink(missing_ok=True)
        del self._known[name]

    def get(self, point: Point) -> Trial | None:
        """Return the trial of a point."""
        return self._known.get(_name(point))

    def __iter__(self) -> Iterator[Trial]:
        return iter(sorted(self._known.values(), key=lambda trial: (not trial.is_reference, trial.number)))

    def complete(self, *, references: bool | None = None) -> list[Trial]:
        """Return the complete trials, references first; only those, or only the others."""
        every = [trial for trial in self if trial.state == "complete"]
        return [trial for trial in every if references in (None, trial.is_reference)]

    def states(self) -> dict[str, int]:
        """Count the points by state."""
        states = [trial.state for trial in self if not trial.is_reference]
        return {state: states.count(state) for state in ("complete", "failed")}

    def best(self, pair: str | None = None) -> Trial | None:
        """Return the best complete point (of a pair), the first of equal ones; None where there is none."""
        trials = [trial for trial in self.complete(references=False) if pair in (None, trial.pair)]
        sign = 1.0 if self.spec.metric.goal == "maximize" else -1.0
        return max(trials, key=lambda trial: sign * trial.metrics[self.spec.metric.name], default=None)

    def _check(self, trial: Trial, where: Any) -> None:
        form = DecodingPoint if isinstance(self.spec, SweepSpec) else TrainingPoint
        if (pair := form.from_plain(trial.point, f"{where}, its point").pair) not in self.spec.pairs:
            raise DamagedError(f"{where}, its point: pair={pair!r} is none of the sweep's pairs")
        if trial.state == "complete" and "sampling" not in trial.point:  # those may have fewer samples
            name = self.spec.metric.name
            if not isfinite(trial.metrics.get(name, float("nan"))):
                raise DamagedError(f"{where} is complete and has no metric {name!r}")


def _name(point: Point) -> str:
    return sha256(key(point).encode()).hexdigest()[:16]

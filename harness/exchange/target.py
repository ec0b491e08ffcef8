"""What an export is asked for, and what it has written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")


@dataclass(frozen=True, slots=True)
class Target:
    """Hold what only the person who exports can know, and when that is.

    `datasets` are the hub's dataset and its task's id by the name of a benchmark.
    """

    organization: str = "unknown"
    relationship: str = "other"
    source_url: str | None = None
    datasets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))


@dataclass(frozen=True, slots=True)
class Written:
    """Hold the files of an export and, a sentence each, what is not in them."""

    files: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()

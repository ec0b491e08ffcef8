"""What working on a trial needs beside the trial, whatever kind of sweep it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.spec.search import Search
from harness.sweep.folder import Folder
from harness.sweep.points import Point
from harness.sweep.study import Book


@dataclass(frozen=True)
class Bench:
    """The sweep, its book and folder, and the `store` of what is not done twice: rollouts, or trainings."""

    spec: Search
    book: Book
    folder: Folder
    store: Path
    say: Callable[[str], None]
    on_finish: Callable[[Point, Sequence[Any]], None]
    progress: bool = True

"""A sweep from its spec to its summary: in this process, or with a fleet of workers.

    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

It may be killed at any moment; the same call goes on. Whoever runs holds the lock of the sweep's folder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.records.lock import Lock
from harness.spec.search import Search
from harness.sweep.bench import Bench
from harness.sweep.fleet import run_fleet
from harness.sweep.folder import Folder
from harness.sweep.kinds import kind_of
from harness.sweep.owner import beat
from harness.sweep.points import Point
from harness.sweep.progress import Progress
from harness.sweep.storage import mend
from harness.sweep.study import Book
from harness.tracking import resolve_store


@dataclass(frozen=True)
class Places:
    """Where a sweep's files, the rollouts, the trainings and the MLflow runs go; `tracking` None logs nothing."""

    out: Path
    records: Path
    tracking: Path | str | None

    @classmethod
    def under(cls, out: Path, *, records: Path | None = None, track: bool = True) -> "Places":
        """The usual places in one folder; MLflow's is RLVR_DIR_TRACKING_URI where that is set."""
        return cls(out, records or out / "records", resolve_store(out) if track else None)

    @property
    def trainings(self) -> Path:
        """What sweeps of trainings share."""
        return self.out / "trainings"


def run_sweep(
    spec: Search, places: Places, *, extend: bool = False, say: Callable[[str], None] = print, progress: bool = True
) -> Any:
    """Runs what is left of a sweep to its end, and writes its summary, which is returned.

    Raises:
        UserError: the sweep was begun with other settings, another process runs it, or an engine refuses.
    """
    kind = kind_of(spec)
    kind.check(spec)
    folder = Folder.of(spec, places.out)
    folder.make()
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        folder.settle(spec, extend=extend)
        mend(folder.journal)
        beat(folder.workers)
        book = Book(spec, folder, extend=extend)
        retired = book.reclaim()
        if retired:
            say(f"{len(retired)} trials of an interrupted run were retired; what they had done is kept")
        parent = kind.parent(spec, places.tracking)
        shown = Progress(spec, book, say, lambda: kind.best_so_far(book, folder))

        def finished(point: Point, results: Sequence[Any]) -> None:
            for result in results:
                parent.child(result)
            shown.finished(kind.words(point, results))

        bench = Bench(spec, book, folder, kind.store(places), say, finished, progress)
        try:
            if spec.workers.count == 1:
                kind.run_here(bench)
            else:
                run_fleet(bench)
        except BaseException:
            parent.interrupted()
            raise
        made = kind.write(spec, book, folder, seconds=shown.seconds)
        parent.close(made, folder)
        return made
    finally:
        lock.release()

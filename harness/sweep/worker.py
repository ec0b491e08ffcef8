"""One worker of a fleet: claim a trial, do it, tell; again, until nothing is left or the parent is gone.

    python -m harness.sweep.worker FOLDER STORE NUMBER PARENT_PID

It never enqueues and never reclaims. A failure ends it: its trial is told FAIL first, the parent starts another worker.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from harness.errors import UserError
from harness.spec.search import LISTED
from harness.sweep.bench import Bench
from harness.sweep.folder import Folder
from harness.sweep.kinds import kind_of
from harness.sweep.owner import beat
from harness.sweep.study import ENDED, OPEN, Book

_PAUSE = 0.3  # seconds between two looks when there is nothing to do yet
_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def work(path: Path, store: Path, number: int = 0, parent: int | None = None) -> None:
    """Works on the sweep in a folder until no trial is left; `parent` is the process to end with.

    Raises:
        UserError: the folder has no sweep, or an engine refuses.
    """
    folder = Folder(path)
    spec = folder.stored()
    if spec is None:
        raise UserError(f"{path} holds no sweep")
    beat(folder.workers)
    book = Book(spec, folder, worker=number + 1)
    bench = Bench(spec, book, folder, store, print, lambda point, results: None, progress=False)
    with kind_of(spec).hand(bench) as do:
        while parent is None or os.getppid() == parent:
            asked = book.ask()
            if asked is None:
                if _over(book):
                    return
                time.sleep(_PAUSE)
                continue
            try:
                do(asked)
            except BaseException as error:
                book.give_up(asked, f"{type(error).__name__}: {error}", counted=True)
                raise


def _over(book: Book) -> bool:
    """Whether nothing is waiting or running anywhere, and a search has proposed all it may."""
    trials = book.trials()
    if any(trial.state in OPEN for trial in (*trials, *book.trials(book.references))):
        return False
    return book.spec.method in LISTED or sum(t.state in ENDED for t in trials) >= book.spec.run_cap


def end_with_parent() -> None:
    """Has the kernel end this process when its parent ends, however that ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    try:
        work(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except UserError as error:
        sys.exit(f"error: {error}")

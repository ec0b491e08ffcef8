"""One worker of a sweep: claim a trial, run it, again, until nothing is left or the parent is gone.

    python -m harness.sweep.worker FOLDER STORE NUMBER PARENT_PID

It never enqueues and never retires. A failure ends it: its trial is failed first, the parent starts another worker.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from harness.errors import UserError
from harness.sweep.context import SweepContext
from harness.sweep.folder import SweepFolder
from harness.sweep.kinds import kind_of
from harness.sweep.trials import Trials

_PAUSE = 0.3  # seconds between two looks when there is nothing to do yet
_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def work(path: Path, store: Path, number: int = 0, parent: int | None = None) -> None:
    """Work on the sweep in a folder until no trial is left; `parent` is the process to end with.

    Raises:
        UserError: the folder has no sweep, or an engine refuses.
    """
    folder = SweepFolder(path)
    spec = folder.stored()
    if spec is None:
        raise UserError(f"{path} holds no sweep")
    trials = Trials(spec, folder, worker=number + 1)
    context = SweepContext(spec, trials, folder, store, print, lambda point, results: None, progress=False)
    try:
        with kind_of(spec).runner(context) as runner:
            while parent is None or os.getppid() == parent:
                if (asked := trials.ask()) is not None:
                    with trials.failing([asked], counted=True):
                        runner.run(asked.point["pair"], [asked])
                elif trials.left():
                    time.sleep(_PAUSE)
                else:
                    return
    finally:
        trials.release()


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    try:
        work(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except UserError as error:
        sys.exit(f"error: {error}")

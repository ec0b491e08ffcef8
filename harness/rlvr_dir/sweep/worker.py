"""One worker of a sweep: does its share, then what is left, until nothing is or the parent is gone.

python -m rlvr_dir.sweep.worker FOLDER RECORDS NUMBER PARENT_PID
"""

import contextlib
import ctypes
import signal
import sys
from pathlib import Path

from rlvr_dir.errors import UserError
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import work
from rlvr_dir.sweep.sweep import open_sweep

_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def join(path: Path, records: Path | None = None, number: int | None = None, parent: int | None = None) -> None:
    """Work on the sweep in a folder until nothing is left; without a number on what nobody is at.

    Raises:
        UserError: the folder has no sweep, or an engine refuses.
    """
    folder = SweepFolder(path)
    spec = folder.stored()
    if spec is None:
        raise UserError(f"{path} holds no sweep")
    count = spec.workers.count if number is not None else sys.maxsize
    places = Places.under(path.resolve().parents[1], records=records, track=False)
    sweep = open_sweep(spec, places, worker=(number or 0) + 1)
    sweep.study.create()
    try:
        work(sweep, number or 0, count, parent)
    finally:
        sweep.objective.close()


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    try:
        join(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except UserError as error:
        sys.exit(f"error: {error}")

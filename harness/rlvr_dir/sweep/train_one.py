"""Run one training of a sweep in its own process: `python -m rlvr_dir.sweep.train_one SPEC STORE PARENT_PID`.

It ends with status `BUSY` of `rlvr_dir.sweep.outcome` if another process runs this training, and with 1 if it fails.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def end_with_parent(parent: int) -> None:
    """Make the kernel end this process when its parent ends (Linux); end it now if the parent has ended already."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("error: the sweep that started this training has ended")


def main(spec: str, store: str) -> None:
    """Train the rest of a training."""
    from rlvr_dir.errors import Busy, UserError
    from rlvr_dir.sweep.outcome import BUSY
    from rlvr_dir.sweep.training import train_seeds
    from rlvr_dir.train.run import TrainerError
    from rlvr_dir.train.spec import load_train

    try:
        train_seeds(load_train(json.loads(spec)), Path(store), print)
    except Busy as error:
        print(f"waiting: {error}", file=sys.stderr)
        sys.exit(BUSY)
    except (UserError, TrainerError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))  # before the import of torch and other libraries, which takes seconds
    main(sys.argv[1], sys.argv[2])

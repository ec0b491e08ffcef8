"""A program between us and verl that ends verl, and all that it started, when it is told to and when we are gone.

    python -I keeper.py GRACE_SECONDS OUTPUT COMMAND...

It writes `pid N`, later `exit STATUS` (negative: a signal). The end of its standard input, which comes however we end,
means SIGTERM to the command's process group, and SIGKILL after the grace; SIGTERM to the keeper means SIGKILL now. As a
subreaper it becomes the parent of whatever loses its own, so that even what left the group is found. What the command
leaves behind when it ends by itself is ended in the same way. Linux.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

_PDEATHSIG, _SUBREAPER = 1, 36  # linux/prctl.h
_LEFT_BEHIND = 10.0  # seconds that Ray's own processes may take to follow the command
_libc = ctypes.CDLL(None)


def main(grace: float, output: str, command: list[str]) -> None:
    """Run the command to its end, or to ours."""
    hurry, told = os.pipe()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.write(told, b"k"))
    _libc.prctl(_SUBREAPER, 1)
    try:
        with open(output, "ab") as file:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0, preexec_fn=_die_with_us
            )
    except OSError as error:
        print("error", error, flush=True)
        return
    print("pid", child.pid, flush=True)
    ended = os.pidfd_open(child.pid)
    ready = select.select([0, hurry, ended], [], [])[0]
    if ended in ready:
        grace = min(grace, _LEFT_BEHIND)
    else:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    if ended not in ready and hurry not in ready:
        select.select([ended, hurry], [], [], grace)
    _end_descendants(until, hurry)
    with suppress(BrokenPipeError):  # there may be nobody to tell
        print("exit", child.wait(), flush=True)


def _die_with_us() -> None:
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)


def _end_descendants(until: float, hurry: int) -> None:
    """Send SIGTERM, and SIGKILL when the time is up, to every descendant until there is none."""
    told: set[int] = set()
    while alive := [each for each in psutil.Process().children(recursive=True) if _runs(each)]:
        late = time.monotonic() >= until or bool(select.select([hurry], [], [], 0)[0])
        for each in alive:
            with suppress(psutil.Error):
                if late:
                    each.kill()
                elif each.pid not in told:
                    each.terminate()
        told.update(each.pid for each in alive)
        time.sleep(0.02)


def _runs(process: psutil.Process) -> bool:
    """Tell whether a process has not ended; one that has and waits to be reaped is none."""
    with suppress(psutil.NoSuchProcess):
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])

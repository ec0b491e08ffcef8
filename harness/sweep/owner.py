"""Who runs a trial: a process that holds a lock file for as long as it lives, however it ends, on whatever host."""

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import Any

from harness.records.lock import Lock


class Owner:
    """This process, as the owner of trials. `facts` is what is written beside a trial that it claims."""

    def __init__(self, folder: Path) -> None:
        """Lock a file of `folder` that no other process has or will have."""
        host, pid = socket.gethostname(), os.getpid()
        name = f"{host}-{pid}-{time.time_ns()}.lock"
        self.facts: dict[str, Any] = {"host": host, "pid": pid, "lock": name}
        self._lock = Lock(folder / name, "a claim of trials")

    def release(self) -> None:
        """Let others retire what this process has not finished."""
        self._lock.release()
        self._lock.path.unlink(missing_ok=True)


def gone(owner: dict[str, Any] | None, folder: Path) -> bool:
    """Tell whether the owner of a running trial has ended: its lock file is not there, or nobody holds it.

    A trial without an owner, or with one that earlier code wrote, was left behind.
    """
    if not owner or not owner.get("lock"):
        return True
    try:
        fd = os.open(folder / owner["lock"], os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, IsADirectoryError):
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look at the same time see the same
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)

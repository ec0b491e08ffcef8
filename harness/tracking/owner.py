"""Who writes a run: host, process and its start time, so that a run left behind by a killed process can be told."""

import json
import os
import socket
from pathlib import Path


def owner() -> str:
    """Describe this process, as the value of a run's tag `owner`."""
    pid = os.getpid()
    return json.dumps({"host": socket.gethostname(), "pid": pid, "started": _started(pid)})


def is_dead(tag: str) -> bool:
    """Tell whether the process in an `owner` tag was on this host and is no more; False for other hosts."""
    try:
        written = json.loads(tag)
        host, pid, started = written["host"], int(written["pid"]), written["started"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    return host == socket.gethostname() and _started(pid) != started


def _started(pid: int) -> str | None:
    """Return a process's start, in clock ticks since boot, which a reused number does not share; None if it is gone."""
    if not Path("/proc/self/stat").exists():  # not Linux: the number alone
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return "alive"
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]

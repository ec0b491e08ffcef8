"""Who runs a trial: host, process and its start; and whether that process is still there."""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

BEAT = 20.0  # seconds between signs of life, for those who cannot look at the process itself
SILENT = 300.0  # after so many seconds without one, a process on another host counts as dead


def me() -> dict[str, Any]:
    """This process."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": started(os.getpid())}


def started(pid: int) -> str | None:
    """A process's start in clock ticks since boot, which no later process of that number shares; None if it is gone."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]


def dead(owner: dict[str, Any] | None, beats: Path) -> bool:
    """Whether an owner is gone: on this host by its process, on another by the file it touches in `beats`."""
    if not owner:
        return True
    if owner["host"] == socket.gethostname():
        return started(owner["pid"]) != owner["start"]
    mine = beats / "now"
    mine.touch()  # the file server's clock, not this machine's
    try:
        return mine.stat().st_mtime - _file(beats, owner).stat().st_mtime > SILENT
    except OSError:
        return True


def beat(beats: Path) -> None:
    """Shows signs of life, in a thread of its own, for as long as this process lives."""
    beats.mkdir(parents=True, exist_ok=True)
    file = _file(beats, me())
    file.touch()

    def touch() -> None:
        while True:
            time.sleep(BEAT)
            file.touch()

    threading.Thread(target=touch, daemon=True).start()


def _file(beats: Path, owner: dict[str, Any]) -> Path:
    return beats / f"{owner['host']}-{owner['pid']}"

"""Lock files so that each record has one writer. A lock ends with its process and names its owner to others.

`flock` belongs to the open file, so a process killed with -9 leaves no stale lock. A forked child would share the lock
and keep it after its parent's death, so children close their copies of a `Lock`. Network file systems must support
`flock` between machines (NFSv4 and Lustre mounted with `-o flock` do).
"""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlvr_dir.errors import Busy, UserError
from rlvr_dir.files import disk_error

_POLL = 0.02  # seconds
_locked: set[int] = set()  # descriptors


def flocked(path: Path, seconds: float | None = None) -> int:
    """Lock a file (not a link), which is created if necessary, and return its descriptor. Closing all copies unlocks
    it.

    Raises:
        TimeoutError: It stayed locked for `seconds`; None waits for ever.
        OSError: The file cannot be opened, or its file system has no locks.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + (seconds or 0.0)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if seconds is None else fcntl.LOCK_NB))
                return fd
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TimeoutError(f"{path} was held for {seconds:g} s") from None
                time.sleep(_POLL)
    except BaseException:
        os.close(fd)
        raise


@contextmanager
def locked(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Lock a file in a `with` block. The file stays. Raises the errors of `flocked`."""
    fd = flocked(path, seconds)
    try:
        yield
    finally:
        os.close(fd)


class Lock:
    """Keep `path` locked from construction to `release`, and write the owner into it.

    Raises:
        UserError: Another process (or another object of this one) has locked it; the message names the owner.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        try:
            self._fd = flocked(path, 0.0)
        except TimeoutError:
            raise _taken(path, name) from None
        except OSError as error:
            raise disk_error(error, path, "nothing was written; a record needs a file system with flock") from None
        if not os.fstat(self._fd).st_nlink:
            os.close(self._fd)
            raise UserError(f"{name} was being deleted by another process", hint="Run the command again")
        _locked.add(self._fd)
        owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": " ".join(sys.argv)[:200],
        }
        with suppress(OSError):  # optional: if it fails (a full disk), the lock is valid nevertheless
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(owner).encode(), 0)

    def release(self) -> None:
        """Unlock. The file stays, because deleting it would let two processes lock it."""
        if self._fd in _locked:  # false in a forked child, where the number may be another file by now
            _locked.discard(self._fd)
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
        self._fd = -1


def check_free(path: Path, name: str) -> None:
    """Check that nobody has a `Lock` of this path, without creating anything.

    Raises:
        UserError: Somebody does; the message names the owner.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # there was never a lock, or it is not readable
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(path, name) from None
    finally:
        os.close(fd)


def _taken(path: Path, name: str) -> Busy:
    return Busy(
        f"{name} is being written by {_owner(path)}, and a record can have only one writer",
        hint="Wait for that process, or end it",
    )


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_bytes()[:4096])
        return f"process {owner['pid']} on {owner['host']} (since {owner['since']}: {owner['command']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # between locking and signing, or unreadable
        return "another process"


def _close_in_child() -> None:
    for fd in _locked:
        with suppress(OSError):
            os.close(fd)
    _locked.clear()


os.register_at_fork(after_in_child=_close_in_child)

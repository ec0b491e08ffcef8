"""One writer a record: an advisory lock that ends with its process, however that ends, and names its owner.

`flock` belongs to the open file, so a process killed with -9 leaves nothing stale. A forked child would share it and
keep it alive after its parent's death; children therefore close their copies. Network file systems must support
`flock` between machines (NFSv4 and Lustre mounted with `-o flock` do).
"""

import fcntl
import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from harness.errors import UserError
from harness.records.files import disk_error

_held: set[int] = set()  # descriptors


class Lock:
    """Holds `path` locked from construction to `release`.

    Raises:
        UserError: another process (or another object of this one) holds it; the sentence names the owner.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(error, path, "nothing was written") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or os.fstat(self._fd).st_ino != path.stat().st_ino:
                raise UserError(f"{what} was being deleted by another process; run again")
        except BlockingIOError:
            owner = _owner(self._fd)
            os.close(self._fd)
            raise UserError(
                f"{what} is being written by {owner}; two processes on one record are refused, "
                "wait for that one or end it"
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise UserError(
                f"{path} cannot be locked ({error.strerror}); keep records on a file system with flock"
            ) from None
        except BaseException:
            os.close(self._fd)
            raise
        _held.add(self._fd)
        self._sign()

    def _sign(self) -> None:
        """Writes who holds the lock. It is a courtesy: where it fails (a full disk) the lock holds all the same."""
        owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": " ".join(sys.argv)[:200],
        }
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(owner).encode(), 0)

    def release(self) -> None:
        """Lets the next one in; the file stays, for deleting it would let two in."""
        if self._fd in _held:  # not so in a forked child, where the number may mean another file by now
            _held.discard(self._fd)
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
        self._fd = -1


def _owner(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, 4096, 0))
        return f"process {owner['pid']} on {owner['host']} (since {owner['since']}: {owner['command']})"
    except (OSError, ValueError, KeyError, TypeError):  # between locking and signing, or unreadable
        return "another process"


def _close_in_child() -> None:
    for fd in _held:
        with suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)

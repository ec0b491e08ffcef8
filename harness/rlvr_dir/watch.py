"""End an engine's processes when the process that owns them ends, in whatever way.

vLLM's core is a separate process. It notices an owner that closes it or raises an error, but not one that was killed:
it would wait for requests for ever and keep its GPU. So each process that one of our engines starts watches its parent,
from its first moment if our start-up hook is installed (`rlvr_dir_autoload`), otherwise from the moment at which vLLM
loads its plugins. No message from the parent is needed, because a killed parent cannot send one. Its output is written
to the log that the owner named.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

OWNER = "RLVR_DIR_ENGINE_OWNER"  # in the environment of an engine's processes: the process that started them
LOG = "RLVR_DIR_ENGINE_LOG"  # the file for these processes' output, if there is one
APART = "RLVR_DIR_ENGINE_APART"  # set: these processes leave the terminal's group, and Ctrl-C is their owner's alone
_POLL = 0.5  # seconds, if the kernel does not notify
_forks_are_told = False


@contextmanager
def owning(log: Path | None = None) -> Iterator[None]:
    """Mark processes that are started in the `with` block as this process's. Only they watch it, and write to its
    `log`."""
    marks = {OWNER: str(os.getpid())} | ({LOG: str(log)} if log else {})
    os.environ |= marks
    try:
        yield
    finally:
        for name in marks:
            del os.environ[name]


def end_with_parent() -> None:
    """End this process at once when the parent that started it for an engine has ended.

    In other processes it does nothing. Spawned processes must call it; forked ones do so by themselves.
    """
    global _forks_are_told
    if not _forks_are_told:
        _forks_are_told = True
        os.register_at_fork(after_in_child=end_with_parent)
    parent = os.environ.get(OWNER)
    if parent is None or parent == str(os.getpid()):
        return
    os.environ[OWNER] = str(os.getpid())  # processes that it starts are its own
    if log := os.environ.get(LOG):
        os.environ["VLLM_LOGGING_LEVEL"] = "INFO"  # it disturbs nobody in a log
        with suppress(OSError):
            file = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.close(file)
    if os.environ.get(APART):
        os.setpgid(0, 0)
    end_with(int(parent))


def end_with(parent: int) -> None:
    """End this process at once when `parent`, which started it, has ended."""
    Thread(target=_end_after, args=(parent,), name="rlvr-dir-watch", daemon=True).start()


def _end_after(parent: int) -> None:
    try:
        ended = select.poll()
        ended.register(os.pidfd_open(parent), select.POLLIN)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):  # not Linux, or an older version
        ended = None
    if os.getppid() == parent and ended is not None:  # asked second: `parent` was not yet another process's number
        ended.poll()
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)

"""An engine's processes end when the process that owns them does, however that one ends.

vLLM's core, a process of its own, notices an owner that closes it or raises, and not one that was killed: it would wait
for requests for ever and keep its GPU. So each process that an engine of ours starts watches its parent: from its first
moment where our start-up hook is installed (`rlvr_dir_autoload`), else from the moment at which vLLM loads its plugins.
It needs no word from the parent, which has no time to say one. What it prints goes to the log that the owner named.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

OWNER = "RLVR_DIR_ENGINE_OWNER"  # in the environment of what an engine's processes start: which of them did
LOG = "RLVR_DIR_ENGINE_LOG"  # the file that these processes print into, where there is one
APART = "RLVR_DIR_ENGINE_APART"  # set: these processes leave the terminal's group, and Ctrl-C is their owner's alone
_POLL = 0.5  # seconds, where the kernel does not tell
_forks_are_told = False


@contextmanager
def owning(log: Path | None = None) -> Iterator[None]:
    """Mark what is started meanwhile as this process's; only such processes watch anybody, and print into a `log`."""
    marks = {OWNER: str(os.getpid())} | ({LOG: str(log)} if log else {})
    os.environ |= marks
    try:
        yield
    finally:
        for name in marks:
            del os.environ[name]


def end_with_parent() -> None:
    """End this process, at once and whatever it is doing, when the parent that started it for an engine has ended.

    In any other process, nothing. To be called by what is spawned; what is forked does by itself.
    """
    global _forks_are_told
    if not _forks_are_told:
        _forks_are_told = True
        os.register_at_fork(after_in_child=end_with_parent)
    parent = os.environ.get(OWNER)
    if parent is None or parent == str(os.getpid()):
        return
    os.environ[OWNER] = str(os.getpid())  # what it starts is its own
    if log := os.environ.get(LOG):
        os.environ["VLLM_LOGGING_LEVEL"] = "INFO"  # nobody is disturbed by it there
        with suppress(OSError):
            file = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.close(file)
    if os.environ.get(APART):
        os.setpgid(0, 0)
    end_with(int(parent))


def end_with(parent: int) -> None:
    """End this process, at once and whatever it is doing, when `parent`, which started it, has ended."""
    Thread(target=_end_after, args=(parent,), name="rlvr-dir-watch", daemon=True).start()


def _end_after(parent: int) -> None:
    try:
        ended = select.poll()
        ended.register(os.pidfd_open(parent), select.POLLIN)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):  # another system than Linux, or an older one
        ended = None
    if os.getppid() == parent and ended is not None:  # asked second: `parent` was not yet another process's number
        ended.poll()
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)

"""An engine's processes end when the process that owns them does, however that one ends.

vLLM's core, a process of its own, notices an owner that closes it or raises, and not one that was killed: it would wait
for requests for ever and keep its GPU. So each process that an engine of ours starts watches its parent, from the
moment at which vLLM loads its plugins there. It needs no word from the parent, which has no time to say one.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread

_OWNER = "RLVR_DIR_ENGINE_OWNER"  # the process that is starting an engine, in the environment of those that it starts
_POLL = 0.5  # seconds, where the kernel does not tell

_pid: int | None = None  # of this process, once it watches over forks: a forked child finds its parent's here


@contextmanager
def owning() -> Iterator[None]:
    """Marks what is started meanwhile as this process's; only such processes watch anybody."""
    os.environ[_OWNER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_OWNER]


def end_with_parent() -> None:
    """Ends this process, at once and whatever it is doing, when its parent has ended; in an owner itself, nothing.

    The children that it forks do the same; those that it spawns come here by themselves.
    """
    global _pid
    if _pid is None:
        _pid = os.getpid()
        os.register_at_fork(after_in_child=_forked)
    parent = parent_process()
    if parent is not None and os.environ.get(_OWNER, str(os.getpid())) != str(os.getpid()):
        _watch(parent.pid)


def _forked() -> None:
    global _pid
    parent, _pid = _pid, os.getpid()
    if _OWNER in os.environ:
        _watch(parent)


def _watch(parent: int) -> None:
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

"""Breaks what files rest on, for real: a process that dies at a chosen call, a full disk, a disk that is read only."""

import contextlib
import itertools
import os
import resource
import signal
import subprocess
from pathlib import Path


def in_child(work):
    """Runs `work()` in a forked process; gives its pid. Nothing of pytest's runs in it afterwards."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def alive(pid):
    """Tell whether a process runs: one that has ended and was not asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def die_at(step):
    """From here on this process dies of -9 at its `step`-th call that touches a file, half-way through if it writes."""
    steps = itertools.count()

    def deadly(call, half=None):
        def wrapped(*arguments, **options):
            if next(steps) == step:
                if half is not None:
                    half(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapped

    write, pwrite = os.write, os.pwrite
    os.write = deadly(write, lambda fd, data: write(fd, data[: len(data) // 2]))
    os.pwrite = deadly(pwrite, lambda fd, data, at: pwrite(fd, data[: len(data) // 2], at))
    for name in ("open", "fsync", "replace", "ftruncate", "truncate", "close", "link"):
        setattr(os, name, deadly(getattr(os, name)))


@contextlib.contextmanager
def files_at_most(size):
    """No file of this process grows beyond `size` bytes: what a full disk looks like, at any size."""
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


@contextlib.contextmanager
def read_only(folder):
    """A folder that nobody can write to, root neither: a mounted one, or for users without that right its mode."""
    folder.mkdir(exist_ok=True)
    if os.geteuid():
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
    elif subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", folder], capture_output=True).returncode:
        yield Path("/proc")  # a container without that right: where nobody can make a file
    else:
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def tiny_disk(folder, size="64k"):
    """A folder on a disk of its own that holds little; None where one cannot be mounted."""
    folder.mkdir(exist_ok=True)
    how = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder]
    if os.geteuid() or subprocess.run(how, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)

"""verl as a child of ours: started, followed line by line, told to end, and never left behind.

interrupts = Interrupts()
with interrupts.noted():
    child = Child(command, cwd=..., env=..., output=..., lock=..., grace=60, interrupts=interrupts)
    try:
        status = follow(child, log, on_line, hang=7200)
    finally:
        child.end()
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.records.lock import flocked

POLL = 0.2  # seconds
_KEEPER = str(Path(__file__).with_name("keeper.py"))


class Hung(Exception):
    """Nothing was logged for too long."""


class Child:
    """A command and all that it starts, under a keeper that ends them when this process ends, even by SIGKILL.

    `lock` is held by the keeper: as long as something of an earlier run is still being ended, no other may begin.

    Raises:
        UserError: the lock was held for longer than the grace, or the command could not be started.
        KeyboardInterrupt, SystemExit: there was an interrupt while it waited for the lock.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
        lock: Path,
        grace: float,
        interrupts: "Interrupts",
    ) -> None:
        self.interrupts = interrupts
        held = self._lock(lock, grace + 15)
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-I", _KEEPER, str(grace), str(output), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=cwd,
                env=dict(env),
                pass_fds=[held],
                start_new_session=True,  # a terminal's Ctrl-C is for us
            )
        finally:
            os.close(held)  # the keeper's copy stays
        assert keeper.stdin is not None  # both are pipes
        assert keeper.stdout is not None
        self._keeper, self._stdin, self._stdout = keeper, keeper.stdin, keeper.stdout
        word, _, rest = self._stdout.readline().decode().strip().partition(" ")
        if word != "pid":
            self.end()
            raise UserError(f"{command[0]} could not be started: {rest}")
        self.pid = int(rest)

    def _lock(self, path: Path, seconds: float) -> int:
        until = time.monotonic() + seconds
        while True:
            try:
                return flocked(path, POLL)
            except TimeoutError:
                self.interrupts.check()
                if time.monotonic() > until:
                    text = f"{path.parent} still has a trainer of an earlier run; end it, then run again"
                    raise UserError(text) from None

    def wait(self, seconds: float) -> int | None:
        """Return the exit status (negative: a signal) once the command and all it started have ended; None before."""
        try:
            self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        word, _, rest = self._stdout.read().decode().strip().rpartition("\n")[2].partition(" ")
        if word == "exit":
            return int(rest)
        with suppress(ProcessLookupError):  # somebody killed the keeper
            os.killpg(self.pid, signal.SIGKILL)
        return -signal.SIGKILL

    def end(self) -> None:
        """Ask the command to end, end it after the grace, and return when nothing of it is left.

        An interrupt that comes meanwhile ends it at once.
        """
        self._stdin.close()
        while True:
            try:
                self._keeper.wait(POLL)
            except subprocess.TimeoutExpired:
                if self.interrupts.take() is not None:
                    self._keeper.terminate()
            else:
                self._stdout.close()
                return


def follow(child: Child, log: Path, on_line: Callable[[dict[str, Any]], None], hang: float) -> int:
    """Follow a command to its exit status, which is returned; `on_line` is told of each line of JSON it adds to `log`.

    Raises:
        Hung: no line came for `hang` seconds.
        KeyboardInterrupt, SystemExit: there was an interrupt.
    """
    lines, last = Lines(log), time.monotonic()
    while True:
        status = child.wait(POLL)
        for line in lines.new():
            on_line(line)
            last = time.monotonic()
        if status is not None:
            return status
        child.interrupts.check()
        if time.monotonic() - last > hang:
            raise Hung


class Lines:
    """Whole lines of JSON that a growing file has and that were not given yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the next ones; a line that is still being written comes later."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                with suppress(ValueError):
                    yield json.loads(line)


class Interrupts:
    """Ctrl-C and SIGTERM, noted when they come and raised between two steps.

    An exception of a signal's handler may rise anywhere, also in the middle of a library's `acquire` or of a
    destructor, where it leaves a lock behind or is lost.
    """

    def __init__(self) -> None:
        self._came: list[int] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note signals inside the `with`, and raise on leaving what nobody took. In a thread it does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._note) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        self.check()

    def _note(self, number: int, frame: Any) -> None:
        self._came.append(number)

    def take(self) -> int | None:
        """Return the first signal that came and was not taken yet, and forget it."""
        return self._came.pop(0) if self._came else None

    def check(self) -> None:
        """Raise what a signal that came means: KeyboardInterrupt, or SystemExit with 128 + its number."""
        number = self.take()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number is not None:
            raise SystemExit(128 + number)

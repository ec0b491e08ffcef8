"""What vLLM's processes print, kept in a file from their start to their end: where they fail, it alone says why."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from weakref import finalize

_BAR = re.compile(rb"\d+%( Completed \||\|)")  # a progress bar's: of weights that load, of graphs that are captured


class Output:
    """Own a file that other processes print into: `catch` them as they start.

    It is removed with this object, unless it is told to `keep`.
    """

    def __init__(self) -> None:
        self._file, name = tempfile.mkstemp(prefix="rlvr-dir-vllm-", suffix=".log")
        self.path = Path(name)
        self._removal = finalize(self, _remove, self.path, self._file)

    @contextmanager
    def catch(self, show_bars: bool) -> Iterator[None]:
        """Send what this process and those that it starts meanwhile print into the file; the latter's for good.

        Args:
            show_bars: progress bars are shown all the same.
        """
        _flush()
        ours = [os.dup(1), os.dup(2)]
        done = Event()
        shower = Thread(target=self._show_bars, args=(ours[1], done), daemon=True)
        try:
            for number in (1, 2):
                os.dup2(self._file, number)
            if show_bars:
                shower.start()
            yield
        finally:
            _flush()
            for number, kept in zip((1, 2), ours, strict=True):
                os.dup2(kept, number)
            done.set()
            if show_bars:
                shower.join()
            for kept in ours:
                os.close(kept)

    def _show_bars(self, screen: int, done: Event) -> None:
        with self.path.open("rb") as file:
            shown = last = False
            while not last:
                last = done.wait(0.2)
                for line in re.split(rb"[\r\n]+", file.read()):
                    if _BAR.search(line):
                        os.write(screen, b"\r" + line)
                        shown = True
        if shown:
            os.write(screen, b"\n")

    def text(self) -> str:
        """Read all that was printed."""
        return self.path.read_text(errors="replace")

    def keep(self, text: str = "") -> Path:
        """Leave the file for the user to read, with what this process knows at its end."""
        with self.path.open("a") as file:
            file.write(text)
        self._removal.detach()
        return self.path

    def discard(self) -> None:
        """Remove the file, unless it is kept."""
        self._removal()


def _remove(path: Path, file: int) -> None:
    os.close(file)
    path.unlink(missing_ok=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, or closed
            stream.flush()

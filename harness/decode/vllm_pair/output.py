"""Keep what vLLM's processes print in a file, from their start to their end: where they fail, it alone says why.

While they start, it also says what they do.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from weakref import finalize

from harness.progress import Entry, screen_at

_BAR = re.compile(r"\d+%( Completed \||\|)")  # a progress bar's: of weights that load, of graphs that are captured
# A phase, and words of vLLM's log with which it begins (0.25 to 0.32); in other versions the phase before seems longer.
_PHASES = {
    "loading": "Starting to load model",
    "compiling": "for the compilation|Starting torch.compile|Compile and warming up|Dynamo bytecode transform",
    "starting vLLM": "Warming up done|Model loading took|Initial profiling/warmup run took",
    "warming up": "Capturing CUDA graphs|Profiling CUDA graph",
}


def tell(current: Entry, line: str) -> None:
    """Tell the phase that a line of vLLM's log, or of a progress bar, speaks of."""
    named = next((name for name, words in _PHASES.items() if re.search(words, line)), None)
    bar = " ".join(line.split()) if _BAR.search(line) else ""
    if named or bar:
        current.now(named or current.name, bar)


class Output:
    """Own a file that other processes print into: `catch` them as they start.

    It is removed with this object, unless it is told to `keep`.
    """

    def __init__(self) -> None:
        self._file, name = tempfile.mkstemp(prefix="rlvr-dir-vllm-", suffix=".log")
        self.path = Path(name)
        self._removal = finalize(self, _remove, self.path, self._file)

    @contextmanager
    def catch(self, current: Entry) -> Iterator[None]:
        """Send what this process and those that it starts meanwhile print into the file; the latter's for good.

        Args:
            current: the phase, which is told of what is printed; it is shown where it would have been.
        """
        _flush()
        ours = [os.dup(1), os.dup(2)]
        done = Event()
        reader = Thread(target=self._read, args=(current, done), daemon=True)
        try:
            with screen_at(ours[1]):
                for number in (1, 2):
                    os.dup2(self._file, number)
                reader.start()
                try:
                    yield
                finally:
                    done.set()
                    reader.join()
        finally:
            _flush()
            for number, kept in zip((1, 2), ours, strict=True):
                os.dup2(kept, number)
                os.close(kept)

    def _read(self, current: Entry, done: Event) -> None:
        with self.path.open(errors="replace") as file:
            last = False
            while not last:
                last = done.wait(0.2)
                for line in re.split(r"[\r\n]+", file.read()):
                    tell(current, line)

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

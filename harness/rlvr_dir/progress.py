"""Show what a command is doing, and for how long: with bars by rich on a terminal, with a line every few seconds
elsewhere.

    with showing(), phase("loading"):
        ...

The code that works names its phase. The phase is shown if the caller has enabled that, with `showing` or a `Bar`.
Rich's own thread reads it, so that a phase in which nothing returns (such as compilation) is also shown, at most a few
seconds after it began. Without a terminal, phases that end earlier are not printed.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from rlvr_dir.text import visible

if TYPE_CHECKING:
    from rlvr_dir.progress_display import Display

_shown_by = 0  # the process whose phases are shown, but not those of its forked children
_display: "Display | None" = None  # of this process, or of the one that forked it


class Phase:
    """Represent something in progress: its name, its start, and a word about its progress."""

    def __init__(self, name: str, word: str | Callable[[], str] = "") -> None:
        self.name, self.word = name, word
        self.since = time.monotonic()

    def set_phase(self, name: str, word: str = "") -> None:
        """Change to another phase, or add a word about this one."""
        if name != self.name:
            self.name, self.since = name, time.monotonic()
        self.word = word

    def text(self) -> str:
        """Return text such as `compiling 01:23`."""
        word = self.word() if callable(self.word) else self.word
        return " ".join(filter(None, (self.name, interval(time.monotonic() - self.since), word)))


class Bar(Phase):
    """Show a bar for work that is counted; nothing is shown unless `enabled`."""

    def __init__(self, total: int, title: str, *, done: int = 0, enabled: bool = True) -> None:
        """Begin with `done` of `total` already done."""
        super().__init__("")
        self.total, self.n, self.title, self.enabled = total, done, title, enabled
        self._first, self._figures, self._began = done, "", self.since
        if enabled:
            display().begin(self, total)

    def update(self, n: int = 1) -> None:
        """Count some more as done."""
        self.n += n

    def figures(self, text: str) -> None:
        """Show this text after the count from now on."""
        self._figures = text

    def time_left(self) -> str:
        """Return the time that the rest takes at the current speed; `?` before anything is done."""
        done, passed = self.n - self._first, time.monotonic() - self._began
        return interval(passed * (self.total - self.n) / done) if done else "?"

    def head(self, inner: Phase | None = None) -> str:
        """Return its title and what is being done within it: `inner`, or its own phase."""
        inner = inner or self
        return f"{self.title}, {inner.text()}" if inner.name else self.title

    def tail(self) -> str:
        """Return how much is done, the elapsed time, and its figures."""
        share = f"{self.n / self.total:.0%} " if self.total else ""
        passed = interval(time.monotonic() - self._began)
        return f"{share}{self.n}/{self.total} [{', '.join(filter(None, (passed, self._figures)))}]"

    def line(self, inner: Phase | None = None) -> str:
        """Return it as a line of text; the count is included only if something is done, or there are figures."""
        head = self.head(inner)
        return f"{head}: {self.tail()}" if self.n > self._first or self._figures else head

    def close(self) -> None:
        """Close the bar. It stays as a line if something was done."""
        if self.enabled and display().end(self) and self.n > self._first:
            self.set_phase("")
            _print(self.line())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def showing(enabled: bool = True) -> Iterator[None]:
    """Show phases in the `with` block, or hide them."""
    global _shown_by
    before, _shown_by = _shown_by, os.getpid() if enabled else 0
    try:
        yield
    finally:
        _shown_by = before


@contextmanager
def phase(name: str, word: str | Callable[[], str] = "") -> Iterator[Phase]:
    """Name what is done in the `with` block. The returned object's `set_phase` changes the name."""
    entry = Phase(name, word)
    if _shown_by != os.getpid():
        yield entry
        return
    display().begin(entry)
    try:
        yield entry
    finally:
        display().end(entry)


def say(text: str) -> None:
    """Print a line on standard error, above a bar if there is one. Invisible characters are escaped."""
    _print(visible(text, None, "\n"))


def note(text: str) -> None:
    """Print a line like `say`, if phases are shown."""
    if _shown_by == os.getpid():
        say(text)


def interval(seconds: float) -> str:
    """Return seconds as minutes:seconds, with hours if there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def display() -> "Display":
    """Return the display of this process's phases; a forked process begins a new one."""
    global _display
    if _display is None or _display.process != os.getpid():
        from rlvr_dir.progress_display import Display

        _display = Display()
    return _display


def _print(line: str) -> None:
    with suppress(OSError, ValueError):  # the reader has closed it
        if _display is not None and _display.process == os.getpid() and _display.is_drawing:
            _display.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

"""What a command is doing, and for how long: on a terminal bars drawn by rich, elsewhere a line every few seconds.

    with showing(), phase("loading"):
        ...

Whoever does the work names its phase; it is shown where somebody has asked for that, by `showing` or by a `Bar`. A
thread looks at the clock, so that a phase in which nothing returns (a model that compiles) is seen like any other, some
seconds after it began at the latest. Off a terminal a phase that is over sooner is not told of.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from harness.text import visible

_TICK = 0.5  # seconds between two looks at the clock
_TOLD_AFTER = 1.0  # of a phase, off a terminal
_GAPS = (5.0, 30.0)  # seconds between two lines of one phase: the least, and the most; a twentieth of what has passed

_lock = threading.RLock()  # of all below and of what is drawn; nobody else draws while it is held
_stack: list["Entry"] = []  # what is under way, the innermost last
_asked: list[bool] = []  # whether it is shown; the innermost says so


class Entry:
    """Something under way: what it does now and since when, and a word on how far it is."""

    def __init__(self, name: str, word: str | Callable[[], str] = "") -> None:
        self.name, self.word = name, word
        self.since = time.monotonic()

    def now(self, name: str, word: str = "") -> None:
        """Go over to another phase, or say more of this one."""
        with _lock:
            if name != self.name:
                self.name, self.since = name, time.monotonic()
            self.word = word

    def text(self) -> str:
        """Return `compiling 01:23`."""
        word = self.word() if callable(self.word) else self.word
        return " ".join(filter(None, (self.name, interval(time.monotonic() - self.since), word)))


class Bar(Entry):
    """A bar of work that is counted; silent unless `enabled`."""

    def __init__(self, total: int, unit: str, title: str, *, done: int = 0, enabled: bool = True) -> None:
        """Begin, with `done` of `total` done before."""
        super().__init__("")
        self.total, self.n, self.unit, self.title, self.enabled = total, done, unit, title, enabled
        self._first, self._figures, self._began = done, "", self.since
        if enabled:
            _begin(self)

    def update(self, n: int = 1) -> None:
        """Count some more as done."""
        self.n += n

    def figures(self, text: str) -> None:
        """Show this behind the count from now on."""
        self._figures = text

    def left(self) -> str:
        """Return the time that the rest takes at the speed so far; `?` before anything is done."""
        done, passed = self.n - self._first, time.monotonic() - self._began
        return interval(passed * (self.total - self.n) / done) if done else "?"

    def head(self) -> str:
        """Return its title and what is done within it now."""
        inner = self
        for entry in _stack[_stack.index(self) + 1 :] if self in _stack else ():
            if isinstance(entry, Bar):
                break
            inner = entry
        return f"{self.title}, {inner.text()}" if inner.name else self.title

    def tail(self) -> str:
        """Return how much is done, since when, and its figures."""
        share = f"{self.n / self.total:.0%} " if self.total else ""
        passed = interval(time.monotonic() - self._began)
        return f"{share}{self.n}/{self.total} [{', '.join(filter(None, (passed, self._figures)))}]"

    def line(self) -> str:
        """Return it as a line of text; of the count only where something is done, or there are figures."""
        return f"{self.head()}: {self.tail()}" if self.n > self._first or self._figures else self.head()

    def close(self) -> None:
        """Leave the bar as a line, or none where nothing was done."""
        with _lock:
            if self in _stack:
                self.now("")
                _end(self)
                if self.n > self._first:
                    _write(self.line())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def showing(enabled: bool = True) -> Iterator[None]:
    """Have phases shown meanwhile, or not shown."""
    _asked.append(enabled)
    try:
        yield
    finally:
        _asked.pop()


@contextmanager
def phase(name: str, word: str | Callable[[], str] = "") -> Iterator[Entry]:
    """Say what is done meanwhile; what is given can be told of another phase by its `now`."""
    entry = Entry(name, word)
    if not (_asked and _asked[-1]):
        yield entry
        return
    _begin(entry)
    try:
        yield entry
    finally:
        _end(entry)


def say(text: str) -> None:
    """Print a line on standard error, above a bar that may be there; what cannot be seen in it is written out."""
    with _lock:
        _write(visible(text, None, "\n"))


def told(text: str) -> None:
    """Print a line as `say` does, where phases are shown."""
    if _asked and _asked[-1]:
        say(text)


def interval(seconds: float) -> str:
    """Write seconds as minutes:seconds, with hours where there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _begin(entry: Entry) -> None:
    with _lock:
        _stack.append(entry)
        _ticker.wake()


def _end(entry: Entry) -> None:
    """Take an entry off; the one beneath it goes on from here."""
    with _lock:
        if entry in _stack:
            _stack.remove(entry)
        if _stack:
            _stack[-1].since = time.monotonic()
        _ticker.draw()


def _write(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        if _ticker.live is not None:
            _ticker.live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


class _Ticker:
    """The thread that looks at the clock while something is under way."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._first = self._last = 0.0  # when something was first under way, and when the last line was written
        self._told: set[str] = set()
        self.live: Any = None  # rich's, while something is drawn on a terminal

    def wake(self) -> None:
        """See to it that there is a thread."""
        if self._thread is None:
            self._first = self._first or time.monotonic()
            self._thread = threading.Thread(target=self._run, name="rlvr-dir-progress", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_TICK)
            with _lock:
                self.draw()
                if not _stack:
                    self._thread = None
                    return

    def draw(self) -> None:
        """Bring what is shown up to date."""
        with suppress(OSError, ValueError):
            if self.live is not None or (sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
                self._draw_bars()
            elif _stack:
                self._print()

    def _draw_bars(self) -> None:
        """Draw a line for each bar, or for the phase where there is none."""
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        if not _stack:
            if self.live is not None:
                self.live.stop()
                self.live = None
            return
        if self.live is None:
            screen = Console(file=sys.stderr)
            self.live = Live(
                console=screen, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self.live.start()
            screen.show_cursor()  # else it would stay hidden where this process is killed
        grid = Table.grid(padding=(0, 1))
        for bar in (entry for entry in _stack if isinstance(entry, Bar)):
            share = ProgressBar(total=max(1, bar.total), completed=bar.n, width=20)
            grid.add_row(Text(bar.head()), share, Text(bar.tail()))
        if not grid.row_count:
            grid.add_row(Text(_stack[-1].text()))
        self.live.update(grid, refresh=True)

    def _print(self) -> None:
        """Write a line of a phase that is new, or when none was written for a while."""
        now, top = time.monotonic(), _stack[-1]
        least, most = _GAPS
        due = now - self._last >= min(most, max(least, (now - self._first) / 20))
        if now - top.since >= _TOLD_AFTER and (due or top.name not in self._told):
            bar = next((entry for entry in reversed(_stack) if isinstance(entry, Bar)), None)
            _write(top.text() if bar is None else bar.line())
            self._told.add(top.name)
            self._last = now


_ticker = _Ticker()


def _forked() -> None:
    """Begin anew in a forked process: what is under way is its parent's."""
    _stack.clear()
    _asked.clear()
    _ticker.__init__()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)

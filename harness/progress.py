"""What a command is doing, and for how long: on a terminal a bar, elsewhere a line every few seconds.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from typing import Any, Self

from harness.text import visible

_TICK = 0.5  # seconds between two looks at the clock
_TOLD_AFTER = 1.0  # of a phase, off a terminal
_GAPS = (5.0, 60.0)  # seconds between two lines of one phase: the least, and the most; a twentieth of what has passed
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"

_lock = threading.RLock()  # of all below and of what is drawn; nobody else draws while it is held
_stack: list["Entry"] = []  # what is under way, the innermost last
_asked: list[bool] = []  # whether it is shown; the innermost says so
_forks_are_told = False


class _Screen:
    """Standard error as it is when it is written to; elsewhere while `screen_at` says so."""

    stream: Any = None

    def write(self, text: str) -> int:
        return (self.stream or sys.stderr).write(text)

    def flush(self) -> None:
        (self.stream or sys.stderr).flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream or sys.stderr, name)


_screen = _Screen()


class Entry:
    """Something under way: what it does now and since when, and a word on how far it is."""

    def __init__(self, name: str) -> None:
        self.name, self.word = name, ""
        self.since = time.monotonic()

    def now(self, name: str, word: str = "") -> None:
        """Go over to another phase, or say more of this one."""
        with _lock:
            if name != self.name:
                self.name, self.since = name, time.monotonic()
            self.word = word

    def text(self) -> str:
        """Return `compiling 01:23`."""
        return " ".join(filter(None, (self.name, interval(time.monotonic() - self.since), self.word)))


class Bar(Entry):
    """A bar of work that is counted; silent unless `enabled`."""

    def __init__(self, total: int, unit: str, title: str, *, done: int = 0, enabled: bool = True) -> None:
        """Begin, with `done` of `total` done before."""
        super().__init__("")
        self.total, self.n, self.title, self.enabled = total, done, title, enabled
        self._first, self._figures, self._began = done, "", self.since
        self._drawn: Any = None
        if not enabled:
            return
        with _lock:
            if _on_terminal():
                self._drawn = _tqdm()(
                    total=total, initial=done, unit=unit, desc=title, file=_screen, dynamic_ncols=True,
                    bar_format=_FORMAT,
                )  # fmt: skip
            _stack.append(self)
        _ticker.wake()

    def update(self, n: int = 1) -> None:
        """Count some more as done."""
        self.n += n
        if self._drawn is not None:
            self._drawn.update(n)

    def figures(self, text: str) -> None:
        """Show this behind the count from now on."""
        self._figures = text
        if self._drawn is not None:
            self._drawn.set_postfix_str(text, refresh=False)

    def left(self) -> str:
        """Return the time that the rest takes at the speed so far; `?` before anything is done."""
        done, passed = self.n - self._first, time.monotonic() - self._began
        return interval(passed * (self.total - self.n) / done) if done else "?"

    def draw(self, within: Entry) -> None:
        """Redraw it on a terminal, in this phase."""
        if self._drawn is not None:
            self._drawn.set_description_str(self._head(within), refresh=True)

    def line(self, within: Entry) -> str:
        """Return it as a line of text, in this phase; of the count only where something is done."""
        if self.n == self._first:
            return self._head(within)
        share = f"{self.n / self.total:.0%} " if self.total else ""
        passed = interval(time.monotonic() - self._began)
        return (
            f"{self._head(within)}: {share}{self.n}/{self.total} [{', '.join(filter(None, (passed, self._figures)))}]"
        )

    def _head(self, within: Entry) -> str:
        return f"{self.title}, {within.text()}" if within.name else self.title

    def close(self) -> None:
        """Leave the bar as it stands, or none where nothing was done."""
        with _lock:
            if self not in _stack:
                return
            self.now("")
            if self._drawn is not None:
                self._drawn.leave = self.n > self._first
                self._drawn.set_description_str(self.title, refresh=False)
                self._drawn.close()
            elif self.n > self._first:
                _write(self.line(self))
            _leave(self)

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
def phase(name: str) -> Iterator[Entry]:
    """Say what is done meanwhile; what is given can be told of another phase by its `now`."""
    entry = Entry(name)
    if not (_asked and _asked[-1]):
        yield entry
        return
    with _lock:
        _stack.append(entry)
    _ticker.wake()
    try:
        yield entry
    finally:
        with _lock:
            _leave(entry)


@contextmanager
def screen_at(file: int) -> Iterator[None]:
    """Show all of it at another file descriptor, while standard error is somebody else's."""
    with os.fdopen(os.dup(file), "w") as stream:
        _screen.stream = stream
        try:
            yield
        finally:
            _screen.stream = None


def say(text: str) -> None:
    """Print a line on standard error, above a bar that may be there; what cannot be seen in it is written out."""
    text = visible(text, None, "\n")
    with _lock:
        if _on_terminal():
            _tqdm().write(text, file=_screen)
        else:
            _write(text)


def told(text: str) -> None:
    """Print a line as `say` does, where phases are shown."""
    if _asked and _asked[-1]:
        say(text)


def interval(seconds: float) -> str:
    """Write seconds as minutes:seconds, with hours where there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _leave(entry: Entry) -> None:
    """Take an entry off; the one beneath it goes on from here."""
    if entry in _stack:
        _stack.remove(entry)
    if _stack:
        _stack[-1].since = time.monotonic()
    _ticker.draw()


def _on_terminal() -> bool:
    return bool(_screen.isatty())


def _write(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        _screen.write(line + "\n")
        _screen.flush()


@cache
def _tqdm() -> Any:
    """Return tqdm, drawing under our lock: its own would stay locked for ever in a process forked while we draw."""
    from tqdm import tqdm

    tqdm.set_lock(_lock)
    return tqdm


class _Ticker:
    """The thread that looks at the clock while something is under way."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._line: Any = None  # of phases outside any bar, on a terminal
        self._first = self._last = 0.0  # when something was first under way, and when the last line was written
        self._told: set[str] = set()

    def wake(self) -> None:
        """See to it that there is a thread."""
        global _forks_are_told
        with _lock:
            if not _forks_are_told:
                _forks_are_told = True
                os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)
            if self._thread is None:
                self._first = self._first or time.monotonic()
                self._thread = threading.Thread(target=self._run, name="rlvr-dir-progress", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_TICK)
            with _lock:
                if not _stack:
                    self._thread = None
                    return
                with suppress(OSError, ValueError):
                    self.draw()

    def draw(self) -> None:
        """Bring what is shown up to date."""
        if _on_terminal():
            self._draw_bars()
        elif _stack:
            self._print()

    def _draw_bars(self) -> None:
        bars = [at for at, entry in enumerate(_stack) if isinstance(entry, Bar)]
        for at, end in pairwise([*bars, len(_stack)]):
            bar = _stack[at]
            assert isinstance(bar, Bar)
            bar.draw(_stack[end - 1])
        if _stack and not bars:
            if self._line is None:
                self._line = _tqdm()(bar_format="{desc}", file=_screen, dynamic_ncols=True, leave=False)
            self._line.set_description_str(_stack[-1].text(), refresh=True)
        elif self._line is not None:
            self._line.close()
            self._line = None

    def _print(self) -> None:
        """Write a line of a phase that is new, or when none was written for a while."""
        now, top = time.monotonic(), _stack[-1]
        least, most = _GAPS
        due = now - self._last >= min(most, max(least, (now - self._first) / 20))
        if now - top.since >= _TOLD_AFTER and (due or top.name not in self._told):
            bar = next((entry for entry in reversed(_stack) if isinstance(entry, Bar)), None)
            _write(top.text() if bar is None else bar.line(top))
            self._told.add(top.name)
            self._last = now


_ticker = _Ticker()


def _forked() -> None:
    """Begin anew in a forked process: what is under way is its parent's."""
    _stack.clear()
    _asked.clear()
    _ticker.__init__()
    _lock.release()

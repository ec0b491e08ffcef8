"""Show progress for `rlvr_dir.progress` with rich's progress display, which has its own thread.

On a terminal it draws a row for each bar, or for the phase if there is no bar. Elsewhere rich draws nothing, but still
requests the rows, and a line is written when it is due.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.text import Text


class DisplayEntry(Protocol):
    """Describe a phase for a row: `rlvr_dir.progress.Phase`; one with a total is a `Bar`."""

    name: str
    since: float

    def text(self) -> str:
        """Return it as text."""
        ...


PER_SECOND = 2  # updates
_PRINTED_AFTER = 1.0  # seconds of a phase before it is printed, without a terminal
_GAPS = (5.0, 30.0)  # seconds between two lines of a phase: the least and the most; a twentieth of the elapsed time


class _Words(ProgressColumn):
    """Show a column of words about a bar or phase."""

    def __init__(self, words: Callable[[Task], str]) -> None:
        super().__init__()
        self._words = words

    def render(self, task: Task) -> Text:
        """Return the words of a row."""
        return Text(self._words(task))


class Display(Progress):
    """Hold the bars and phases of one process, the innermost last, each as a task of rich's; a phase has no total."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._first = self._last = 0.0  # when something was first in progress, and when the last line was written
        self._printed: set[str] = set()  # phases
        super().__init__(
            _Words(self._head),
            BarColumn(20),
            _Words(lambda task: "" if task.total is None else task.fields["entry"].tail()),
            console=Console(stderr=True, force_terminal=self.on_terminal, force_jupyter=False),
            refresh_per_second=PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    @property
    def is_drawing(self) -> bool:
        """Return whether rows are on a terminal now."""
        return self.on_terminal and self.live.is_started

    def begin(self, entry: DisplayEntry, total: int | None = None) -> None:
        """Show a phase from now on, or a bar, which has a total."""
        self._first = self._first or time.monotonic()
        self.add_task("", total=None if total is None else max(1, total), entry=entry)
        if not self.live.is_started:
            self.start()
            self.console.show_cursor()  # otherwise it would stay hidden if this process is killed

    def end(self, entry: DisplayEntry) -> bool:
        """Stop showing it; the one below it continues. Return whether it was shown."""
        ended = [task.id for task in self.tasks if task.fields["entry"] is entry]
        for task in ended:
            self.remove_task(task)
        if tasks := self.tasks:
            tasks[-1].fields["entry"].since = time.monotonic()
        else:
            with suppress(OSError, ValueError):
                self.live.stop()  # `stop` would print an empty line without a terminal
        return bool(ended)

    def get_renderables(self) -> Iterator[RenderableType]:
        """Return the rows for rich to draw; without a terminal, write a line instead when it is due."""
        tasks = self.tasks
        if not self.on_terminal:
            with suppress(OSError, ValueError):
                self._print_if_due()
            return
        bars = [task for task in tasks if task.total is not None]
        for task in bars:
            task.completed = task.fields["entry"].n
        yield self.make_tasks_table(bars or tasks[-1:])

    def _head(self, task: Task) -> str:
        entry = task.fields["entry"]
        return entry.text() if task.total is None else entry.head(self._innermost(task))

    def _innermost(self, bar: Task) -> DisplayEntry | None:
        """Return the innermost phase within a bar."""
        tasks = self.tasks
        after = tasks[tasks.index(bar) + 1 :]
        phases = list(takewhile(lambda task: task.total is None, after))
        return phases[-1].fields["entry"] if phases else None

    def _print_if_due(self) -> None:
        """Write a line about a phase that is new, or if none was written for a while."""
        if not (tasks := self.tasks):
            return
        now, top = time.monotonic(), tasks[-1].fields["entry"]
        least, most = _GAPS
        due = now - self._last >= min(most, max(least, (now - self._first) / 20))
        if now - top.since >= _PRINTED_AFTER and (due or top.name not in self._printed):
            bars = [task for task in tasks if task.total is not None]
            line = bars[-1].fields["entry"].line(self._innermost(bars[-1])) if bars else top.text()
            print(line, file=sys.stderr, flush=True)
            self._printed.add(top.name)
            self._last = now

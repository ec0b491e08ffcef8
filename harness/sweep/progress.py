"""What a person sees of a running sweep: a line a finished trial, the best so far with its interval, the time left."""

import time
from collections.abc import Callable, Sequence

from harness.markdown import duration
from harness.sweep.trials import Trials


class SweepProgress:
    """Counts from the trials themselves, so that it is right with any number of workers."""

    def __init__(self, trials: Trials, say: Callable[[str], None], best: Callable[[], str]) -> None:
        self._trials, self._say, self._best = trials, say, best
        self._began, self._finished = time.monotonic(), 0

    @property
    def seconds(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self._began

    def finished(self, about: Sequence[str]) -> None:
        """Say that one more trial is complete, and what there is to say of it."""
        self._finished += 1
        ended, left = self._trials.ended(), self._trials.left()
        words = [f"{ended}/{ended + left}", *about]
        if best := self._best():
            words.append(best)
        if left:
            words.append(f"about {duration(self.seconds / self._finished * left)} left")
        self._say("  |  ".join(words))

"""What a person sees of a running sweep: a line a finished trial, the best so far with its interval, the time left."""

import time
from collections.abc import Callable, Sequence

from optuna.trial import TrialState

from harness import stats
from harness.spec.search import LISTED, Search
from harness.sweep.folder import Folder
from harness.sweep.study import ENDED, OPEN, Book


class Progress:
    """Counts from the book, so that it is right with any number of workers."""

    def __init__(self, spec: Search, book: Book, say: Callable[[str], None], best: Callable[[], str]) -> None:
        self._spec, self._book, self._say, self._best = spec, book, say, best
        self._began, self._finished = time.monotonic(), 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def finished(self, about: Sequence[str]) -> None:
        """One more trial is complete; what there is to say of it."""
        self._finished += 1
        done, total = self.counts()
        words = [f"{done}/{total}", *about]
        if best := self._best():
            words.append(best)
        if total > done:
            words.append(f"about {duration(self.seconds / self._finished * (total - done))} left")
        self._say("  |  ".join(words))

    def counts(self) -> tuple[int, int]:
        """Trials that are over, and all of them, references included."""
        done = total = 0
        for study in (self._book.points, self._book.references):
            states = [trial.state for trial in self._book.trials(study)]
            ended = sum(state in ENDED for state in states)
            known = ended + sum(state in OPEN for state in states)
            done += ended
            total += known if study is self._book.references or self._spec.method in LISTED else self._spec.run_cap
        return done, total


def best_so_far(book: Book, folder: Folder) -> str:
    """The best complete point with the 95 % interval of its score over problems; empty while there is none."""
    if not (best := book.best()):
        return ""
    result = folder.result(best[0].user_attrs["results"][0])
    if result is None:
        return ""
    low, high = stats.t_interval(result.avg, result.standard_error, len(result.problem_ids))
    many = f"Pareto set of {len(best)}, first" if len(book.spec.metric) > 1 else "best so far"
    return f"{many}: {result.label} {100 * result.avg:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def state(book: Book) -> dict[str, int]:
    """How many trials of the points are in which state."""
    trials = book.trials()
    return {state.name.lower(): sum(t.state == state for t in trials) for state in TrialState}


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

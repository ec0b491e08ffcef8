"""Grading beside decoding: each response once, in a thread of its own, so that the engine waits for hard ones only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Thread

from harness.decode import Rollout
from harness.decode.progress import Progress
from harness.grading import Gold, Verdict, grade_many
from harness.records import Key, Record, Row

Golds = Mapping[str, Gold]  # by problem; empty where they are not known


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One response that waits for its verdict."""

    job: int
    gold: Gold
    row: Row


class Graders:
    """Grades what `add` is given, job by job; `finish` waits for a job's verdicts and stores them in its record.

    A verdict that is stored and still holds is taken as it is. What fails, fails in `finish`: responses are safe then.
    """

    def __init__(self, golds: Sequence[Golds], records: Sequence[Record] | None, judges: Sequence[str]) -> None:
        self._golds, self._records, self._judges = golds, records, judges  # of each job
        self.verdicts: list[dict[Key, Verdict]] = [{} for _ in golds]
        self._new: list[list[tuple[_Waiting, Verdict]]] = [[] for _ in golds]
        self.graded, self.right = [0] * len(golds), [0] * len(golds)
        self._waiting = [0] * len(golds)
        self._changed = Condition()
        self._failure: Exception | None = None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def add(self, job: int, row: Row) -> None:
        """Take one response of a job; its verdict appears in `verdicts`."""
        if not self._golds[job]:
            return
        gold = self._golds[job][row.problem]
        verdict = self._records[job].verdict(self._judges[job], row, gold) if self._records else None
        with self._changed:
            if verdict is not None:
                self._take(job, row.key, verdict)
            else:
                self._waiting[job] += 1
                self._queue.put(_Waiting(job, gold, row))

    def finish(self, job: int) -> None:
        """Wait until all of a job is graded, and store its verdicts.

        Raises:
            Exception: whatever grading raised.
            UserError: the disk is full.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._waiting[job])
        if self._failure is not None:
            raise self._failure
        if self._records is not None and self._golds[job]:
            new = [(each.row, each.gold, verdict) for each, verdict in self._new[job]]
            self._records[job].judge(self._judges[job], new)
        self._new[job] = []

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)

    def _take(self, job: int, key: Key, verdict: Verdict) -> None:
        self.verdicts[job][key] = verdict
        self.graded[job] += 1
        self.right[job] += verdict.correct

    def _grade(self, todo: list[_Waiting]) -> list[tuple[_Waiting, Verdict]]:
        """Grade each by its job's grader."""
        found: list[tuple[_Waiting, Verdict]] = []
        graders = [judge.split("+")[0] for judge in self._judges]
        for grader in dict.fromkeys(graders[each.job] for each in todo):
            own = [each for each in todo if graders[each.job] == grader]
            items = [(each.gold, each.row.text, each.row.finish_reason) for each in own]
            found += zip(own, grade_many(items, grader=grader), strict=True)
        return found

    def _work(self) -> None:
        """Grade all that waits at once, again and again, so that hard answers share the worker processes."""
        while True:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            todo = [each for each in batch if each is not None]
            try:
                verdicts = self._grade(todo)
            except Exception as error:  # of the grader, to whoever waits
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                for each, verdict in verdicts:
                    self._new[each.job].append((each, verdict))
                    self._take(each.job, each.row.key, verdict)
                    self._waiting[each.job] -= 1
                self._changed.notify_all()
            if None in batch:
                return


class Board(Progress):
    """One bar over all jobs, with the score so far of the one that was decoded last; requests are tagged with theirs.

    `jobs` are the name and the size of each.
    """

    def __init__(self, graders: Graders, jobs: Sequence[tuple[str, int]], total: int, enabled: bool) -> None:
        super().__init__(total, enabled)
        self._graders, self._jobs = graders, jobs
        self._current: int | None = None

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout."""
        self._current = rollout.request.tag
        super().finished(rollout)

    def note(self) -> str:
        """Return the interim Avg of what is being decoded: of finished responses, so that long ones are missing."""
        if self._current is None or not (graded := self._graders.graded[self._current]):
            return ""
        name, size = self._jobs[self._current]
        return f" | {name}: {100 * self._graders.right[self._current] / graded:.1f} so far ({graded}/{size})"

"""What a person sees of a running evaluation: one bar over all of it, and the score so far of what is decoded now."""

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from harness.decode import Rollout
from harness.decode.progress import Progress
from harness.evals.work import Work
from harness.grading import Gold, grade_many

_Item = tuple[int, Gold, str, str]  # index of the work, gold, text, finish reason


class Board(Progress):
    """The progress of a stream of work; requests carry the index of their work as their tag.

    Answers are graded in a thread of their own as they come, so that the engine waits for hard ones only in the end;
    a verdict is remembered by the grader, so nothing is graded twice.
    """

    def __init__(self, works: Sequence[Work], total: int, enabled: bool, grader: str) -> None:
        super().__init__(total, enabled)
        self._works, self._grader = works, grader
        self._graded, self._right = [0] * len(works), [0] * len(works)
        self._current: int | None = None
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._thread = Thread(target=self._grade, daemon=True)
        self._thread.start()

    def finished(self, rollout: Rollout) -> None:
        """One more rollout is done; its answer goes to the grading thread."""
        index = self._current = rollout.request.tag
        for answers in list(self._works[index].gold.values())[:1]:
            self._queue.put((index, answers[rollout.request.problem], rollout.text, rollout.finish_reason))
        super().finished(rollout)

    def note(self) -> str:
        """The interim Avg of what is being decoded: of finished responses, among which long ones are still missing."""
        if self._current is None or not self._graded[self._current]:
            return ""
        work, graded = self._works[self._current], self._graded[self._current]
        so_far = 100 * self._right[self._current] / graded
        return f" | {work.task} {work.decoding.label()}: {so_far:.1f} so far ({graded}/{len(work.requests)})"

    def settle(self) -> None:
        """Waits until everything handed over is graded."""
        self._queue.put(None)
        self._thread.join()
        self._thread = Thread(target=self._grade, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leaves the bar as it stands; what is not graded yet is left to whoever needs it."""
        self._queue.put(None)
        super().close()

    def _grade(self) -> None:
        while (item := self._queue.get()) is not None:
            index, gold, text, reason = item
            try:
                [verdict] = grade_many([(gold, text, reason)], grader=self._grader)
            except Exception:  # the final grading meets it again, and says so
                continue
            self._graded[index] += 1
            self._right[index] += verdict.correct

"""Grading beside decoding: each response once, in a thread of its own, so that the engine waits for hard ones only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any

from harness.decode import Rollout
from harness.decode.progress import Progress
from harness.digest import digest
from harness.evals.metrics import verdict_facts
from harness.grading import Gold, Verdict, grade_many
from harness.records import Entry, Record, StoredRollout, judge_name
from harness.records.verdicts import StoredVerdicts

Golds = Mapping[str, Mapping[str, Gold]]  # by version of the gold answers, the one that counts first; by problem


@dataclass(slots=True)
class GradedResponse:
    """A response as it is scored: its text and counts, and a verdict by each version of the gold answers.

    A long run must not keep the tokens of all of them, so this holds none; a stored text is read when asked for.
    """

    source: str | Entry
    finish_reason: str
    n_tokens: int
    n_replaced: int
    n_changed: int
    n_forwards: int | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @classmethod
    def of(cls, rollout: Rollout | StoredRollout | Entry) -> "GradedResponse":
        """Make it from a rollout, decoded or stored."""
        source = rollout if isinstance(rollout, Entry) else rollout.text
        counts = (rollout.n_tokens, rollout.n_replaced, rollout.n_changed, rollout.n_forwards)
        return cls(source, rollout.finish_reason, *counts)

    @property
    def text(self) -> str:
        """Return the response.

        Raises:
            UserError: its record was damaged, or deleted, since it was opened.
        """
        return self.source if isinstance(self.source, str) else self.source.text

    @property
    def text_digest(self) -> str:
        """Return the digest of the response, by which verdicts and scores know it."""
        return digest(self.source) if isinstance(self.source, str) else self.source.text_digest

    def counts(self) -> dict[str, Any]:
        """Return what the engine counted, by the names of lm-eval's samples file."""
        found = {name: getattr(self, name) for name in ("n_tokens", "n_replaced", "n_changed", "finish_reason")}
        return found | ({} if self.n_forwards is None else {"n_forwards": self.n_forwards})

    def facts(self, versions: Sequence[str]) -> dict[str, Any]:
        """Return the counts and the verdicts; the first version of the gold answers is the one that counts."""
        return {**self.counts(), **verdict_facts({version: self.verdicts[version] for version in versions})}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One response that waits for its verdict by one version of the gold answers."""

    job: int
    version: str
    gold: Gold
    rollout: Rollout | StoredRollout | Entry
    response: GradedResponse


class Graders:
    """Grades what `add` is given, job by job; `finish` waits for a job's verdicts and stores them beside its record.

    A verdict that is stored and still holds is taken as it is. What fails, fails in `finish`: rollouts are safe then.
    """

    def __init__(self, golds: Sequence[Golds], records: Sequence[Record] | None, graders: Sequence[str]) -> None:
        self._golds, self._graders = golds, graders  # of each job
        self._stored: list[dict[str, StoredVerdicts]] = [{} for _ in golds]
        for stored, versions, record, grader in zip(self._stored, golds, records or [], graders, strict=False):
            for version in versions:
                judge = judge_name(grader, version)
                stored[version] = StoredVerdicts(record.folder, record.header(), judge)
        self.graded, self.right = [0] * len(golds), [0] * len(golds)  # by the version that counts
        self._waiting = [0] * len(golds)
        self._changed = Condition()
        self._failure: Exception | None = None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def add(self, job: int, problem: str, rollout: Rollout | StoredRollout | Entry) -> GradedResponse:
        """Take one rollout of a job; its verdicts appear in the response that is given back."""
        response = GradedResponse.of(rollout)
        for version, answers in self._golds[job].items():
            gold, stored = answers[problem], self._stored[job].get(version)
            verdict = None if stored is None or isinstance(rollout, Rollout) else stored.get(rollout, gold)
            with self._changed:
                if verdict is not None:
                    self._take(job, version, response, verdict)
                else:
                    self._waiting[job] += 1
                    self._queue.put(_Waiting(job, version, gold, rollout, response))
        return response

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
        for stored in self._stored[job].values():
            stored.write()

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)

    def _take(self, job: int, version: str, response: GradedResponse, verdict: Verdict) -> None:
        response.verdicts[version] = verdict
        if version == next(iter(self._golds[job])):
            self.graded[job] += 1
            self.right[job] += verdict.correct

    def _grade(self, todo: list[_Waiting]) -> list[tuple[_Waiting, Verdict]]:
        """Grade each by its job's grader."""
        found: list[tuple[_Waiting, Verdict]] = []
        for grader in dict.fromkeys(self._graders[each.job] for each in todo):
            mine = [each for each in todo if self._graders[each.job] == grader]
            items = [(each.gold, each.rollout.text, each.rollout.finish_reason) for each in mine]
            found += zip(mine, grade_many(items, grader=grader), strict=True)
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
                    stored = self._stored[each.job].get(each.version)
                    if stored is not None and not isinstance(each.rollout, Rollout):
                        stored.add(each.rollout, each.gold, verdict)
                    self._take(each.job, each.version, each.response, verdict)
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

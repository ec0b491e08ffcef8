"""Replay stored responses with one token changed, with the same noise, to see how the verdict changes.

    every = Decoding(mode="replace", criterion="always")
    replay(job, [Change("tiny_medium/3", sample=0, at=17, was=5, by=every)], engine, store)

The noise of a token is a function of its position, so a change is a decoding with a window of one token. The tokens
before it are taken from the stored response. If the new token equals the old one, nothing is decoded. Results are
stored in the response's record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Engine, Request
from rlvr_dir.decode.plan import written
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job
from rlvr_dir.grading import grade_many
from rlvr_dir.records import Record, RecordStore, Replay, judge_name
from rlvr_dir.records.replay import OWN, PROPOSED


@dataclass(frozen=True, slots=True)
class Change:
    """Describe a change of one token of a stored response: to the token that `by` samples there, or to `token`.

    `was` is the stored token. `by` resamples every token. `own` means that it samples from the response's own model.
    `noises` is how often the rest is replayed with other noise, in addition to once with the response's own.
    """

    problem: str
    sample: int
    at: int
    was: int
    by: Decoding | None = None
    token: int | None = None
    own: bool = False
    noises: int = 0

    @property
    def name(self) -> str:
        """Return the origin of the new token, as a `Replay` stores it."""
        if self.by is None:
            return PROPOSED
        return OWN if self.own else _name(self.by)

    def draft(self, record: Record, noise: int = 0) -> Replay:
        """Return the replay before its result is known."""
        response = record.rows[self.problem, self.sample].digest
        place: dict[str, Any] = {"problem": self.problem, "sample": self.sample, "response": response}
        return Replay(**place, at=self.at, by=self.name, noise=noise, token=self.token or 0)

    def find(self, record: Record, noise: int = 0) -> Replay | None:
        """Return the replay that a record contains."""
        return record.replays.get(self.draft(record, noise).key)


@cache
def _name(by: Decoding) -> str:
    return digest_of(by.model_dump(mode="json"))


def judge_of(job: Job) -> str:
    """Return the name of the judge of a job's responses and replays.

    Raises:
        UserError: The task is one of lm-eval's, which scores its responses itself.
    """
    if not job.golds:
        raise UserError(
            "is scored by lm-eval itself", argument="task", value=job.task, accepted="a benchmark with gold answers"
        )
    return judge_name(job.grader, job.task, job.record_task)


def undone(record: Record, change: Change, judge: str) -> list[int] | None:
    """Return the noises with which a change must still be replayed; None if its token must still be sampled."""
    first = change.find(record)
    token = first.token if first is not None else change.token
    if token is None:
        return None
    if token == change.was:
        return []
    replays = [change.find(record, noise) for noise in range(change.noises + 1)]
    return [i for i, kept in enumerate(replays) if kept is None or kept.right is None or kept.judge != judge]


def replay(job: Job, changes: Sequence[Change], engine: Engine, store: RecordStore, *, progress: bool = True) -> None:
    """Sample the tokens of changes, and replay the rest of each response. Store each in the job's record at once.

    Replays in the record are not repeated, so an interrupted call resumes.

    Raises:
        UserError: Another process writes the record, the disk is full, or the task has no gold answers.
    """
    judge = judge_of(job)
    requests = {(request.problem, request.sample): request for request in job.requests}
    with job.open(store) as record:

        @lru_cache(maxsize=256)
        def read(problem: str, sample: int) -> tuple[tuple[int, ...], int]:
            row = record.rows[problem, sample].load()
            return row.token_ids, len(row.prompt_token_ids)

        def begun(change: Change, sampling: Sampling, token: int | None = None, **options: Any) -> Request:
            whole = read(change.problem, change.sample)[0]
            tokens = whole[: change.at] if token is None else (*whole[: change.at], token)
            request = requests[change.problem, change.sample]
            return replace(request, begun=tokens, sampling=sampling, trace=None, **options)

        def keep(change: Change, noise: int, tokens: Sequence[int], **fields: Any) -> None:
            fields |= {"token": tokens[change.at], "n_tokens": len(tokens)}
            record.keep_replay(change.draft(record, noise).model_copy(update=fields))

        def judged(change: Change, noise: int, tokens: Sequence[int], text: str, finish: str) -> None:
            [verdict] = grade_many([(job.golds[change.problem], text, finish)], grader=job.grader)
            keep(change, noise, tokens, judge=judge, right=verdict.correct)

        draws = []
        for change in changes:
            if change.by is not None and undone(record, change, judge) is None:
                window = change.by.model_copy(update={"window": f"{change.at}:{change.at + 1}"})
                short = job.sampling.model_copy(update={"max_tokens": change.at + 1})
                draws.append(begun(change, short, decoding=window, tag=change))
        for rollout in engine.generate(draws, progress=progress) if draws else ():
            keep(rollout.request.tag, 0, (*rollout.request.begun, *rollout.token_ids))

        rest = []
        for change, noise in ((candidate, i) for candidate in changes for i in undone(record, candidate, judge) or ()):
            kept, (_, prompt) = change.find(record), read(change.problem, change.sample)
            sampling = job.sampling.model_copy(update={"seed": job.sampling.seed + noise})
            request = begun(change, sampling, kept.token if kept else change.token, tag=(change, noise))
            room = engine.context.limit(job.decoding) - prompt
            if request.begun[-1] in engine.eos_token_ids or len(request.begun) >= min(sampling.max_tokens, room):
                finish = "stop" if request.begun[-1] in engine.eos_token_ids else "length"
                judged(change, noise, request.begun, written(engine.tokenizer, request.begun), finish)
            else:
                rest.append(request)
        for rollout in engine.generate(rest, progress=progress) if rest else ():
            change, noise = rollout.request.tag
            tokens = (*rollout.request.begun, *rollout.token_ids)
            judged(change, noise, tokens, rollout.text, rollout.finish_reason)

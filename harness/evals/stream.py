"""Much work in one engine stream: held rollouts come from records, the rest is decoded, each work as it completes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from harness.decode import Engine, Request, Rollout
from harness.evals.board import Board
from harness.evals.work import Sample, Work, numbered
from harness.grading import DEFAULT_GRADER, Verdict, grade_many
from harness.records import Record, RecordStore, judge_name, through

Key = tuple[str, int]  # request.problem, sample


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """Work that is complete: a sample for every request, and a verdict on each by every version of the answers.

    `decoded` counts the rollouts that were not in the record; `tokens_per_second` is the stream's mean speed until
    then, None where nothing was decoded.
    """

    work: Work
    samples: Mapping[Key, Sample]
    verdicts: Mapping[str, Mapping[Key, Verdict]]
    decoded: int
    tokens_per_second: float | None


def stream(
    engine: Engine,
    works: Sequence[Work],
    store: RecordStore | None = None,
    *,
    grader: str = DEFAULT_GRADER,
    progress: bool = False,
) -> Iterator[Done]:
    """Decodes what no record holds and yields each work when it is complete, in the order of completion.

    All of it is one batch stream: while the last rollouts of one work finish, those of the next are running. Every
    rollout is in its record before anything else happens to it. The engine is asked for nothing if nothing is missing.

    Raises:
        UserError: another process writes one of the records, a request cannot be served, or the disk is full.
    """
    with ExitStack() as stack:
        books = [stack.enter_context(_open(store, work)) for work in works] if store else None
        requests = numbered(works)
        samples: dict[int, dict[Key, Sample]] = {index: {} for index in range(len(works))}
        decoded: Counter[int] = Counter()
        missing = len(requests) - sum((r.problem, r.sample) in books[r.tag] for r in requests if books)
        board = stack.enter_context(closing(Board(works, missing, progress and missing > 0, grader)))

        def generate(asked: list[Request]) -> Iterator[Rollout]:
            for rollout in engine.generate(asked, progress=board):
                decoded[rollout.request.tag] += 1
                yield rollout

        done = (
            through(requests, lambda request: books[request.tag], generate)
            if books
            else ((rollout.request, rollout) for rollout in generate(requests))
        )
        for request, rollout in done:
            index, work = request.tag, works[request.tag]
            samples[index][request.problem, request.sample] = Sample.of(rollout)
            if len(samples[index]) == len(work.requests):
                board.settle()
                book, speed = books[index] if books else None, board.speed if decoded[index] else None
                yield _done(work, samples.pop(index), book, grader, decoded[index], speed)
        if samples:
            lacking = ", ".join(f"{works[index].task} ({works[index].decoding.label()})" for index in samples)
            raise RuntimeError(f"the engine did not return every response of {lacking}")


def _open(store: RecordStore, work: Work) -> Record:
    about = {"base": work.pair.base, "rl": work.pair.rl}
    samples, width = work.sampling.samples, work.trace_columns
    return store.open(work.config, work.task, work.prompts, samples, about=about, trace_columns=width)


def _done(
    work: Work, samples: dict[Key, Sample], book: Record | None, grader: str, decoded: int, speed: float | None
) -> Done:
    if book is not None:
        book.finish()
    verdicts = {version: _judge(work, samples, book, grader, version) for version in work.gold}
    if book is not None:
        book.close()
    return Done(work, samples, verdicts, decoded, speed)


def _judge(
    work: Work, samples: dict[Key, Sample], book: Record | None, grader: str, version: str
) -> Mapping[Key, Verdict]:
    answers = work.gold[version]
    if book is not None:
        return book.grade(answers, judge_name(grader, version))
    items = [(answers[problem], sample.text, sample.finish_reason) for (problem, _), sample in samples.items()]
    return dict(zip(samples, grade_many(items, grader=grader), strict=True))

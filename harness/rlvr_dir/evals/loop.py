"""Run every evaluation, in one loop that can be read from top to bottom.

    results = evaluate(EvalSpec(tasks=("tiny_easy",), decodings=("base", "rl")), records="runs/records")

1. Make a job for each decoding on each task, with its requests and the record they belong to.
2. Read what the store contains, and decode only the rest, all jobs in one engine stream.
3. Store every rollout durably before anything else, then grade it while others are decoded.
4. Return a job's result as soon as its last response is stored.

`rlvr-dir eval`, the lm-eval adapter, sweeps, the validation of trainings and traces all use this loop.
"""

import os
import platform
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr_dir.config import EvalSpec
from rlvr_dir.decode import Engine, Request, Rollout
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.types import EngineLost
from rlvr_dir.digest import installed
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.order import points_first
from rlvr_dir.evals.speed import keep_speed
from rlvr_dir.grading import Verdict, grade_many
from rlvr_dir.problems.benchmark import Benchmark
from rlvr_dir.problems.data import preflight_of
from rlvr_dir.problems.generation import template_name
from rlvr_dir.problems.lm_eval_tasks import computed_scores
from rlvr_dir.progress import phase, say, showing
from rlvr_dir.records import Key, Record, RecordStore, Row, judge_name
from rlvr_dir.records.config import NOT_HASHED
from rlvr_dir.records.verdicts import versions as grading_versions
from rlvr_dir.results.from_records import provenance
from rlvr_dir.results.result import EvalResult, LmEvalResult, refuse_lm_eval_tasks, result_from

GRADERS = min(os.cpu_count() or 1, 8)  # threads, each of which may wait for an answer that is hard to grade
PROBE_SECONDS = 120.0
MOST_LOSSES = 3  # engine losses in a row, without a finished response in between, before a command ends


def evaluate(
    spec: EvalSpec,
    *,
    engine: Engine | None = None,
    records: str | Path | None = None,
    progress: bool = True,
    on_result: Callable[[EvalResult], None] | None = None,
) -> list[EvalResult]:
    """Evaluate every decoding on every task in one engine stream, and return results in that order.

    Each decoding is run before its controls, so that an interrupted evaluation has complete comparisons.

    Args:
        engine: An open engine, whose pair is then evaluated. Otherwise the engine for `spec.pair` is opened, loads its
            weights only if something must be decoded, and is closed here.
        records: A folder that stores every rollout as it finishes. Stored rollouts are not decoded again, so an
            interrupted evaluation resumes where it stopped.
        on_result: Called with each result as soon as it is complete, in the order of completion.

    Prompts use the pair's chat template if it has one.

    Raises:
        UserError: `preflight` rejects the spec, or a task is one of lm-eval's (before any model loads); or the engine
            rejects a request.
    """
    benchmarks = preflight_of(spec)
    refuse_lm_eval_tasks(benchmarks, "compared")
    kwargs: dict[str, Any] = {"engine": engine, "records": records, "progress": progress, "on_result": on_result}
    results = evaluate_all(spec, benchmarks=benchmarks, **kwargs)
    return [result for result in results if isinstance(result, EvalResult)]


def evaluate_all(
    spec: EvalSpec,
    *,
    engine: Engine | None = None,
    records: str | Path | None = None,
    progress: bool = True,
    on_result: Callable[[Any], None] | None = None,
    benchmarks: Mapping[str, Benchmark] | None = None,
) -> list[EvalResult | LmEvalResult]:
    """Evaluate like `evaluate`, including lm-eval tasks. `benchmarks` are those that `preflight_of` returned.

    Raises:
        UserError: `preflight` rejects the spec (before any model loads), or the engine rejects a request.
    """
    benchmarks = preflight_of(spec) if benchmarks is None else benchmarks
    with showing(progress), opened(spec, engine) as engine:
        store = RecordStore(records) if records else None
        jobs = jobs_of(spec, engine, benchmarks=benchmarks, store=store)
        context = {"chat": template_name(engine), "versions": versions(), "limit": spec.limit, "argv": sys.argv}
        context |= {"part": spec.part.words} if spec.part.words else {}
        results: dict[int, EvalResult | LmEvalResult] = {}
        for done in run_jobs(engine, in_order(spec, jobs), store, progress=progress):
            result = results[jobs.index(done.job)] = done.result(context)
            if on_result is not None:
                on_result(result)
        return [results[index] for index in range(len(jobs))]


def in_order(spec: EvalSpec, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs in the order in which they run: each decoding before its controls."""
    place = {decoding: n for n, decoding in enumerate(points_first(spec.decodings))}
    return sorted(jobs, key=lambda job: place[job.decoding])


# 2. to 4. Read what is stored, decode the rest, store, grade, return


@dataclass(frozen=True, slots=True, eq=False)
class CompletedJob:
    """Hold a finished job: a response to every request, with its verdict if gold answers are known.

    `record` is closed; without a store it is in memory. `decoded` counts the rollouts that were not stored before.
    `tokens_per_second` is the stream's mean speed so far, None if nothing was decoded. `info` describes the engine.
    """

    job: Job
    record: Record
    responses: Mapping[Key, Row]
    verdicts: Mapping[Key, Verdict]
    info: Mapping[str, Any]
    decoded: int
    tokens_per_second: float | None

    def result(self, session: Mapping[str, Any], scores: Mapping[str, Any] | None = None) -> EvalResult | LmEvalResult:
        """Return the result of a job whose gold answers are known, or which lm-eval scores.

        `session` is added to the provenance. `scores` come from `task_scores`, if lm-eval has scored the job already.
        """
        job, record, task, speed = self.job, self.record, self.job.lm_eval_task, self.tokens_per_second
        names = [*dict.fromkeys(request.problem for request in job.requests)]
        grader = (job.grader, grading_versions(job.grader)) if task is None else (task.grader, task.graded_with)
        source = provenance(record, job.benchmark, *grader) | {**session}
        source["engine"] |= {name: self.info[name] for name in NOT_HASHED if name in self.info}
        tokens = sum(row.n_tokens for row in self.responses.values())
        seconds = tokens / speed if speed and self.decoded == len(self.responses) else 0.0
        fields: dict[str, Any] = {"seconds": seconds, "provenance": source}
        if task is None:
            return result_from(record, job.task, names, job.sampling.samples, verdicts=self.verdicts, **fields)
        scores = scores or computed_scores(task, self.responses)
        return result_from(record, job.task, names, job.sampling.samples, scores=scores, **fields)


class ProbeOver(Exception):
    """Signal that a probe has run for its time. Its arguments are the generated tokens and the seconds."""


class EvalProgress(Progress):
    """Show one bar over all jobs, with the score so far of the job that was decoded last. Requests are tagged with
    their job.

    `right` has an entry per graded response, job by job.
    """

    def __init__(
        self, jobs: Sequence[Job], right: Sequence[list[bool]], total: int, enabled: bool, seconds: float | None = None
    ) -> None:
        super().__init__(total, enabled)
        self._jobs, self._right, self._current, self._seconds = jobs, right, -1, seconds

    def show(self, running: Iterable[int]) -> None:
        """Update the figures. Raises ProbeOver after its time."""
        super().show(running)
        if self._seconds is not None and (passed := time.monotonic() - self._started) > self._seconds:
            raise ProbeOver(self._tokens + self._unfinished, passed)

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout."""
        self._current = rollout.request.tag
        super().finished(rollout)

    def note(self) -> str:
        """Return the current Avg of the job being decoded, which covers finished responses only, so long ones are
        missing."""
        if self._done == self.total or self._current < 0 or not (right := self._right[self._current]):
            return ""
        job = self._jobs[self._current]
        score = f"{100 * sum(right) / len(right):.1f} % correct so far ({len(right)} of {len(job.requests)} responses)"
        return f" | {job.task} {job.decoding.label()}: {score}"


def run_jobs(
    engine: Engine,
    jobs: Sequence[Job],
    store: RecordStore | None = None,
    *,
    progress: bool = False,
    seconds: float | None = None,
) -> Iterator[CompletedJob]:
    """Decode what no record contains, and yield each job when it is complete, in the order of completion.

    All jobs are one stream: while the last rollouts of one job finish, those of the next are running. The engine is not
    used if nothing is missing. Jobs that share a record with an earlier one come last, because their responses may be
    stored by then.

    Raises:
        UserError: Another process writes one of the records, the engine rejects a request, or the disk is full.
        ProbeOver: Decoding has taken `seconds`.
    """
    from rlvr_dir.checkpoints.cuts import cut_otherwise

    prompts = dict.fromkeys(request.prompt for job in jobs for request in job.requests)
    if sentence := cut_otherwise(engine.checkpoints, prompts):
        warnings.warn(sentence, stacklevel=2)
    first = {job.record: job for job in reversed(jobs)} if store else {}
    later = [job for job in jobs if store and first[job.record] is not job]
    yield from _run([job for job in jobs if job not in later], engine, store, progress=progress, seconds=seconds)
    for job in later:
        yield from _run([job], engine, store, progress=progress, seconds=seconds)


def _run(
    jobs: Sequence[Job], engine: Engine, store: RecordStore | None, *, progress: bool, seconds: float | None
) -> Iterator[CompletedJob]:
    """Run jobs with different records."""
    with ExitStack() as stack:
        records = [stack.enter_context(job.open(store)) for job in jobs]
        requests = [replace(request, tag=index) for index, job in enumerate(jobs) for request in job.requests]
        stored = [(request, records[request.tag].get((request.problem, request.sample))) for request in requests]
        missing = [request for request, row in stored if row is None]
        right: list[list[bool]] = [[] for _ in jobs]
        shows_board = progress and bool(missing)
        board = stack.enter_context(closing(EvalProgress(jobs, right, len(missing), shows_board, seconds)))
        pool = ThreadPoolExecutor(GRADERS, "grader")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        keeper = stack.enter_context(ThreadPoolExecutor(1, "keeper"))  # ends before the records close
        responses: list[dict[Key, Row]] = [{} for _ in jobs]
        graded: list[dict[Key, Future[Verdict]]] = [{} for _ in jobs]
        decoded, open_jobs = [0] * len(jobs), {*range(len(jobs))}
        generated: list[int] = []  # tokens of each response

        def rows() -> Iterator[tuple[Request, Row, str | None]]:
            """Yield what is stored, then what is decoded, with its text, after storing it."""
            yield from ((request, row, None) for request, row in stored if row is not None)
            waiting: deque[tuple[Rollout, Future[Row]]] = deque()
            for rollout in _generated(engine, missing, board) if missing else ():
                waiting.append((rollout, keeper.submit(keep, rollout)))
                while waiting and waiting[0][1].done():
                    yield finished(*waiting.popleft())
            while waiting:
                yield finished(*waiting.popleft())

        def keep(rollout: Rollout) -> Row:
            """Compress a response and store it in another thread, in the order of arrival."""
            row = Row.from_rollout(rollout)
            records[rollout.request.tag].add(row)
            return row

        def finished(rollout: Rollout, row: Future[Row]) -> tuple[Request, Row, str]:
            """Count a response when it is stored."""
            decoded[rollout.request.tag] += 1
            generated.append(rollout.n_tokens)
            return rollout.request, row.result(), rollout.text

        def grade(index: int, row: Row, text: str | None) -> Verdict:
            """Grade a response in another thread, unless its record has a valid verdict."""
            job, gold = jobs[index], jobs[index].golds[row.problem]
            verdict = records[index].verdict(judge_name(job.grader, job.task, job.record_task), row, gold)
            if verdict is None:
                text = row.text if text is None else text
                [verdict] = grade_many([(gold, text, row.finish_reason)], grader=job.grader)
            right[index].append(verdict.correct)
            return verdict

        for request, row, text in rows():
            index, job, record = request.tag, jobs[request.tag], records[request.tag]
            responses[index][row.key] = row
            if job.golds:
                graded[index][row.key] = pool.submit(grade, index, row, text)
            if len(responses[index]) < len(job.requests):
                continue
            record.finish()
            with phase("grading"):
                verdicts = {key: future.result() for key, future in graded[index].items()}
            if verdicts:
                graded_rows = [(responses[index][key], job.golds[key[0]], verdict) for key, verdict in verdicts.items()]
                record.judge(judge_name(job.grader, job.task, job.record_task), graded_rows)
            record.close()
            speed = board.speed if decoded[index] else None
            if speed and store:  # for the next plan
                keep_speed(store.folder, job.config.weights, engine.info(), sum(generated), sum(generated) / speed)
            open_jobs.remove(index)
            yield CompletedJob(job, record, responses[index], verdicts, engine.info(), decoded[index], speed)
            responses[index], graded[index] = {}, {}
        if open_jobs:
            lacking = ", ".join(f"{jobs[index].task} {jobs[index].decoding.label()}" for index in sorted(open_jobs))
            raise RuntimeError(f"the engine did not return every response of {lacking}")


def _generated(engine: Engine, requests: Sequence[Request], board: Progress) -> Iterator[Rollout]:
    """Yield the rollouts of some requests. If the engine is lost, report it, start it again and decode the rest.

    Raises:
        EngineLost: The engine was lost `MOST_LOSSES` times without finishing a response in between.
    """
    pending, losses = {(request.tag, request.problem, request.sample): request for request in requests}, 0
    while True:
        try:
            for rollout in engine.generate([*pending.values()], progress=board):
                done, losses = rollout.request, 0
                pending.pop((done.tag, done.problem, done.sample), None)
                yield rollout
            return
        except EngineLost as error:
            losses += 1
            if losses == MOST_LOSSES or not pending:
                raise
            say(f"{error}\nrestarting the engine; {len(pending):,} responses are left to generate")
            engine.close()


def probe(
    spec: EvalSpec,
    records: Path,
    *,
    engine: Engine | None = None,
    seconds: float = PROBE_SECONDS,
    progress: bool = True,
) -> None:
    """Generate the first responses of an evaluation for some seconds, and store them and the speed.

    Raises:
        UserError: As for `evaluate`.
    """
    store = RecordStore(records)
    with showing(progress), opened(spec, engine) as engine:
        jobs = in_order(spec, jobs_of(spec, engine, store=store))
        try:
            for _ in run_jobs(engine, jobs, store, progress=progress, seconds=seconds):
                pass
        except ProbeOver as over:
            keep_speed(store.folder, jobs[0].config.weights, engine.info(), *over.args, least=1)


# The parts of an evaluation


@contextmanager
def opened(spec: EvalSpec, engine: Engine | None = None) -> Iterator[Engine]:
    """Yield a given engine, which stays open, or open the spec's: its weights are loaded when needed, and it is
    closed."""
    if engine is not None:
        yield engine
        return
    with phase("starting"):
        from rlvr_dir.checkpoints.resolve import resolve
        from rlvr_dir.decode import open_engine

        engine = open_engine(resolve(spec.pair), spec.engine, lazily=True)
    try:
        yield engine
    finally:
        engine.close()


def versions() -> dict[str, str]:
    """Return the versions of what can change a score."""
    names = ("rlvr-dir", "lm-eval", "math-verify", "latex2sympy2-extended", "sympy", "datasets")
    return {"python": platform.python_version(), **installed(*names)}

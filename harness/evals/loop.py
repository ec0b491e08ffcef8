"""The loop of every evaluation, to be read from top to bottom.

    results = evaluate(EvalSpec(tasks=("tiny_easy",), decodings=("base", "rl")), records="runs/records")

1. what is asked: a job for each decoding on each task, with its requests and the record they belong to;
2. what the store holds is read, and only the rest is decoded, all jobs in one engine stream;
3. every rollout is stored durably before anything else happens to it, then graded while others are decoded;
4. a job's result is given as soon as its last response is there.

`rlvr-dir eval`, the lm-eval adapter, sweeps, the validation of trainings and traces all come through here.
"""

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from harness.decode import Engine, Request
from harness.decode.trace import columns
from harness.digest import digest
from harness.errors import UserError
from harness.evals.benchmark import BenchmarkFacts
from harness.evals.chat import template_name
from harness.evals.data import preflight_of
from harness.evals.foreign import LmEvalResult, TaskScores
from harness.evals.graders import Board, Golds, Graders
from harness.evals.lm_task import computed_scores, keep_scores
from harness.evals.metrics import sample_facts
from harness.evals.prompts import PromptSet, prompt_sets
from harness.evals.result import EvalResult
from harness.evals.task_file import GRADER, ScoredTask
from harness.grading import DEFAULT_GRADER, Verdict, grader_name
from harness.progress import phase, showing
from harness.records import Key, Record, RecordConfig, RecordStore, Row, judge_name
from harness.records.config import engine_facts
from harness.records.verdicts import versions as grading_versions
from harness.spec import Decoding, EvalSpec, Pair, Sampling


def evaluate(
    spec: EvalSpec,
    *,
    engine: Engine | None = None,
    records: str | Path | None = None,
    progress: bool = True,
    on_result: Callable[[EvalResult], None] | None = None,
) -> list[EvalResult]:
    """Evaluate every decoding on every task in one engine stream: results in that order, decoding by decoding.

    Args:
        engine: an open engine, whose pair is then evaluated; else that of `spec.pair` is opened, loads its weights only
            if something has to be decoded, and is closed here.
        records: a folder that holds every rollout as it finishes; what it holds already is not decoded again, so an
            interrupted evaluation goes on where it stopped.
        on_result: told of each result as soon as it is there, in the order of completion.

    Prompts go through the pair's chat template where it has one.

    Raises:
        UserError: what `preflight` refuses, before any model loads, or what the engine refuses.
    """
    preflight_of(spec)
    with showing(progress), opened(spec, engine) as engine:
        jobs = jobs_of(spec, engine)
        about = {"chat": template_name(engine), "versions": versions(), "limit": spec.limit, "argv": sys.argv}
        about |= {"part": spec.part.words} if spec.part.words else {}
        store = RecordStore(records) if records else None
        results: dict[int, EvalResult] = {}
        for done in run_jobs(engine, jobs, store, progress=progress):
            result = results[jobs.index(done.job)] = done.result(about)
            if on_result is not None:
                on_result(result)
        return [results[index] for index in range(len(jobs))]


# 1. What is asked

_KEPT = ("file", "problems", "presentation", "grader")  # of a benchmark's facts, in its records


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One decoding of one task: requests that differ in problem and sample only, and the settings of their record.

    `golds` has the gold answer of each `request.problem`; it is empty where they are not known here.
    `theirs` is the task of lm-eval's that then scores the responses, where it is at hand; `chat` says through which
    chat template the prompts went. What is `looked` at only counts in no result of its record.
    """

    task: str
    pair: Pair
    requests: tuple[Request, ...]
    config: RecordConfig
    golds: Golds
    benchmark: BenchmarkFacts
    theirs: ScoredTask | None = None
    chat: str | None = None
    looked: bool = False

    @property
    def decoding(self) -> Decoding:
        """Return how all of it is decoded."""
        return self.requests[0].decoding

    @property
    def sampling(self) -> Sampling:
        """Return how all of it is drawn."""
        return self.requests[0].sampling

    @property
    def grader(self) -> str:
        """Return the name of who grades it, with its version, where gold answers are known."""
        return grader_name(self.benchmark.grader or DEFAULT_GRADER)

    @property
    def recorded(self) -> str:
        """Return the task that its record and its problems are named after: its own, or the one that it grades."""
        return self.benchmark.of or self.task

    @property
    def judge(self) -> str:
        """Return who gives its verdicts in the record."""
        return judge_name(self.grader, self.task, self.recorded)

    @property
    def record(self) -> str:
        """Return the name of its record, `<record hash>/<task>`."""
        return f"{self.config.hash()}/{self.recorded}"

    def read(self, store: RecordStore) -> Record | None:
        """Return its record as it is now, without a lock; None where there is none."""
        try:
            return store.read(*self.record.split("/"))
        except UserError:
            return None

    def held(self, record: Record | None) -> list[Row]:
        """Return what its record holds of what is asked: as many responses as requests when it is done."""
        keys = {(request.problem, request.sample): digest(request.prompt) for request in self.requests}
        found = [(record.get(key), prompt) for key, prompt in keys.items()] if record else []
        fits = [row for row, prompt in found if row is not None and row.prompt in (None, prompt)]
        return [row for row in fits if row.trace_columns >= self._trace_columns]

    def open(self, store: RecordStore) -> Record:
        """Open its record for writing, and note what its results need to be made again.

        Raises:
            UserError: another process writes it, or the disk is full.
        """
        prompts = {request.problem: digest(request.prompt) for request in self.requests}
        known = {name: value for name in _KEPT if (value := getattr(self.benchmark, name)) is not None}
        places = {role: place for role, (place, _) in self.pair.models.items()}
        about = {**places, "chat": self.chat, **known}
        how = {"about": about, "trace_columns": self._trace_columns, "looked": self.looked}
        return store.open(self.config, self.recorded, prompts, self.sampling.samples, **how)

    @property
    def _trace_columns(self) -> int:
        trace = self.requests[0].trace
        return 0 if trace is None else columns(trace)


def jobs_of(spec: EvalSpec, engine: Engine, *, trace: int | None = None) -> list[Job]:
    """Return a job for every decoding of every task, decoding by decoding; `trace` is that of the requests."""
    jobs: list[Job] = []
    with phase("making prompts"):
        sets = prompt_sets(spec, engine)
        for decoding, prompts in product(spec.decodings, sets):
            requests = _requests(prompts, decoding, trace)
            recorded = prompts.benchmark.of or prompts.task
            golds = {f"{recorded}/{key}": gold for key, gold in prompts.golds.items()}
            job = make_job(prompts.task, requests, engine, prompts.benchmark, golds, jobs[0] if jobs else None)
            jobs.append(replace(job, theirs=prompts.theirs, chat=template_name(engine)))
    return jobs


def _requests(prompts: PromptSet, decoding: Decoding, trace: int | None) -> list[Request]:
    """Return the requests sample by sample: sample 0 of every problem comes first.

    So what is there when it is interrupted, or looked at, is a smaller whole.
    """
    return [
        Request(
            prompt=prompt,
            problem=f"{prompts.benchmark.of or prompts.task}/{key}",
            sample=sample,
            decoding=decoding,
            sampling=prompts.sampling,
            stop=prompts.stop,
            trace=trace,
        )
        for sample in range(prompts.sampling.samples)
        for key, prompt in prompts.prompts.items()
    ]


def make_job(
    task: str, requests: Sequence[Request], engine: Engine, benchmark: BenchmarkFacts, golds: Golds, like: Job | None
) -> Job:
    """Make a job of requests; the first one's prompt stands for how they are made.

    `like` is another job on this engine: its checkpoints are not read again to identify them.
    """
    info, first = engine.info(), requests[0]
    pair, prompt, data = Pair(**info["pair"]), digest(first.prompt), benchmark.of_data or benchmark.data
    if like is None:
        config = RecordConfig.of(pair, first.decoding, first.sampling, info, stop=first.stop, prompt=prompt, data=data)
    else:
        told = {"sampling": first.sampling.drawing, "engine": engine_facts(info, first.decoding)}
        config = like.config.replace(decoding=first.decoding, stop=tuple(first.stop), prompt=prompt, data=data, **told)
    return Job(task, pair, tuple(requests), config, golds, benchmark)


# 2. to 4. Read what is held, decode the rest, store, grade, give


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """A job that is complete: a response to every request, with its verdict where gold answers are known.

    `decoded` counts the rollouts that were not in the record; `tokens_per_second` is the stream's mean speed until
    then, None where nothing was decoded. `engine` is what the engine says of itself, `store` the folder of records.
    """

    job: Job
    responses: Mapping[Key, Row]
    verdicts: Mapping[Key, Verdict]
    engine: dict[str, Any]
    store: Path | None
    decoded: int
    tokens_per_second: float | None

    @property
    def n_tokens(self) -> int:
        """Return the generated tokens of all responses."""
        return sum(response.n_tokens for response in self.responses.values())

    @property
    def seconds(self) -> float:
        """Return its share of the engine's time, by the stream's mean speed; 0 where a record held a part."""
        speed = self.tokens_per_second
        return self.n_tokens / speed if speed and self.decoded == len(self.responses) else 0.0

    def provenance(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the numbers come from: settings, data, grader, record, engine, and `about`."""
        job, config = self.job, self.job.config
        found = {"settings": config.hash(), **config.facts, **job.benchmark.provenance()}
        if job.golds:
            found |= {"grader": job.grader, "graded_with": grading_versions(job.grader)}
        stored = {} if self.store is None else {"records": str(self.store.resolve()), "record": job.record}
        return {**found, **about, **stored, "engine": self.engine}

    def scored(self, task: ScoredTask, scored: TaskScores, about: Mapping[str, Any]) -> LmEvalResult:
        """Return the result by lm-eval's scores, and keep those in the record."""
        if self.store is not None:
            keep_scores(self.store / self.job.record, task, scored, self._names, self.job.sampling.samples)
        provenance = {**self.provenance(about), "grader": GRADER, "graded_with": task.graded_with}
        how = {"seconds": self.seconds, "provenance": provenance}
        return LmEvalResult.of(self.job.task, self.job.decoding, self.job.sampling, self._rows({}), scored, **how)

    def result(self, about: Mapping[str, Any]) -> EvalResult:
        """Return the numbers of a job whose gold answers are known, or which lm-eval scores, and keeps its scores.

        `about` is put into the provenance.
        """
        if (theirs := self.job.theirs) is not None:
            return self.scored(theirs, computed_scores(theirs, self.responses), about)
        how = {"seconds": self.seconds, "provenance": self.provenance(about)}
        rows = self._rows(self.verdicts)
        return EvalResult.from_samples(self.job.task, self.job.decoding, self.job.sampling, rows, **how)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(request.problem for request in self.job.requests))

    def _rows(self, verdicts: Mapping[Key, Verdict]) -> dict[str, list[dict[str, Any]]]:
        return sample_facts(self.job.recorded, self._names, self.job.sampling.samples, self.responses, verdicts)


def run_jobs(
    engine: Engine, jobs: Sequence[Job], store: RecordStore | None = None, *, progress: bool = False
) -> Iterator[Done]:
    """Decode what no record holds, and yield each job when it is complete, in the order of completion.

    All of it is one stream: while the last rollouts of one job finish, those of the next are running. The engine is
    asked for nothing if nothing is missing. Jobs that share a record with an earlier one come after all others: what
    they ask is held by then.

    Raises:
        UserError: another process writes one of the records, a request cannot be served, or the disk is full.
    """
    first = {job.record: job for job in reversed(jobs)} if store else {}
    later = [job for job in jobs if store and first[job.record] is not job]
    yield from _run([job for job in jobs if job not in later], engine, store, progress=progress)
    for job in later:
        yield from _run([job], engine, store, progress=progress)


def _run(jobs: Sequence[Job], engine: Engine, store: RecordStore | None, *, progress: bool) -> Iterator[Done]:
    """Run jobs of which no two share a record."""
    with ExitStack() as stack:
        records = [stack.enter_context(job.open(store)) for job in jobs] if store else None
        requests = [replace(request, tag=index) for index, job in enumerate(jobs) for request in job.requests]
        missing = [r for r in requests if records is None or (r.problem, r.sample) not in records[r.tag]]
        graders = stack.enter_context(
            closing(Graders([job.golds for job in jobs], records, [job.judge for job in jobs]))
        )
        names = [(f"{job.task} {job.decoding.label()}", len(job.requests)) for job in jobs]
        board = stack.enter_context(closing(Board(graders, names, len(missing), progress and bool(missing))))
        responses: list[dict[Key, Row]] = [{} for _ in jobs]
        decoded, complete = [0] * len(jobs), [False] * len(jobs)

        def rows() -> Iterator[tuple[Request, Row]]:
            """Yield what is held, then what is decoded, stored before anybody sees it."""
            absent = {(request.tag, request.problem, request.sample) for request in missing}
            for request in requests:
                if records is not None and (request.tag, request.problem, request.sample) not in absent:
                    yield request, records[request.tag].rows[request.problem, request.sample]
            for rollout in engine.generate(missing, progress=board) if missing else ():
                row, index = Row.from_rollout(rollout), rollout.request.tag
                decoded[index] += 1
                if records is not None:
                    records[index].add(row)
                yield rollout.request, row

        for request, row in rows():
            index, job = request.tag, jobs[request.tag]
            responses[index][row.key] = row
            graders.add(index, row)
            if len(responses[index]) < len(job.requests):
                continue
            if records is not None:
                records[index].finish()
            with phase("grading"):
                graders.finish(index)
            if records is not None:
                records[index].close()
            speed = board.speed if decoded[index] else None
            folder = store.folder if store else None
            yield Done(job, responses[index], graders.verdicts[index], engine.info(), folder, decoded[index], speed)
            responses[index], complete[index] = {}, True
        if lacking := [name for (name, _), whole in zip(names, complete, strict=True) if not whole]:
            raise RuntimeError(f"the engine did not return every response of {', '.join(lacking)}")


# What an evaluation stands on


@contextmanager
def opened(spec: EvalSpec, engine: Engine | None = None) -> Iterator[Engine]:
    """Give an engine as it is, left open; or that of a spec, its weights loaded when needed, closed in the end."""
    if engine is not None:
        yield engine
        return
    with phase("starting"):
        from harness.decode import open_engine
        from harness.tiny import checkpoints

        engine = open_engine(checkpoints(spec.pair), spec.engine, lazily=True)
    try:
        yield engine
    finally:
        engine.close()


def versions() -> dict[str, str]:
    """Return the versions of what can change a score."""
    found = {"python": platform.python_version()}
    for name in ("rlvr-dir", "lm-eval", "math-verify", "latex2sympy2-extended", "sympy", "datasets"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

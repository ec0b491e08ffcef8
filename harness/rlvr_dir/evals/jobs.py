"""Divide an evaluation into jobs: each is one decoding on one benchmark, with its requests and its record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.config import Decoding, EvalSpec, Pair, Sampling
from rlvr_dir.decode import Engine, Request
from rlvr_dir.decode.trace import columns
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError
from rlvr_dir.grading import DEFAULT_GRADER, Gold, grader_name
from rlvr_dir.problems.benchmark import Benchmark, BenchmarkMetadata
from rlvr_dir.problems.generation import template_name
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark
from rlvr_dir.problems.prompts import prompt_sets
from rlvr_dir.progress import phase
from rlvr_dir.records import Record, RecordConfig, RecordStore

_KEPT = ("file", "problems", "presentation", "grader", "families")  # fields of a benchmark that its records contain


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Decode one task in one way: requests that differ only in problem and sample, and the settings of their record.

    `golds` has the gold answer of each `request.problem`; it is empty if they are not known here. `lm_eval_task` is the
    lm-eval task that then scores the responses, if it is available. `chat` names the chat template of the prompts. A
    job that is `inspect_only` counts in no result of its record.
    """

    task: str
    pair: Pair
    requests: tuple[Request, ...]
    config: RecordConfig
    golds: Mapping[str, Gold]
    benchmark: BenchmarkMetadata
    lm_eval_task: LmEvalBenchmark | None = None
    chat: str | None = None
    inspect_only: bool = False

    @property
    def decoding(self) -> Decoding:
        """Return the decoding of all requests."""
        return self.requests[0].decoding

    @property
    def sampling(self) -> Sampling:
        """Return the sampling settings of all requests."""
        return self.requests[0].sampling

    @property
    def grader(self) -> str:
        """Return the grader's name, with its version, if gold answers are known."""
        return grader_name(self.benchmark.grader or DEFAULT_GRADER)

    @property
    def record_task(self) -> str:
        """Return the task that its record and its problems are named after: its own, or the one that it grades."""
        return self.benchmark.of or self.task

    @property
    def record(self) -> str:
        """Return the name of its record, `<record hash>/<task>`."""
        return f"{self.config.hash()}/{self.record_task}"

    def read(self, store: RecordStore) -> Record | None:
        """Read its record without a lock; None if there is none."""
        try:
            return store.read(*self.record.split("/"))
        except UserError:
            return None

    def open(self, store: RecordStore | None) -> Record:
        """Open its record for writing, and store what is needed to compute its results again; in memory without a
        store.

        Raises:
            UserError: Another process writes it, or the disk is full.
        """
        prompts = {request.problem: digest(request.prompt) for request in self.requests}
        kept = {name: value for name in _KEPT if (value := getattr(self.benchmark, name)) is not None}
        places = {role: place for role, (place, _) in self.pair.models.items()}
        metadata = {**places, "chat": self.chat, **kept}
        trace = self.requests[0].trace
        kwargs = {
            "metadata": metadata,
            "trace_columns": 0 if trace is None else columns(trace),
            "inspect_only": self.inspect_only,
        }
        requested = prompts, self.sampling.samples
        if store is None:
            return Record.without_file(self.config, self.record_task).request(*requested, **kwargs)
        record = store.open(self.config, self.record_task, *requested, **kwargs)
        if record.metadata.families and not self.benchmark.families:  # its file no longer defines them
            record.note(families=None)
        return record


def jobs_of(
    spec: EvalSpec,
    engine: Engine,
    *,
    trace: int | None = None,
    benchmarks: Mapping[str, Benchmark] | None = None,
    store: RecordStore | None = None,
) -> list[Job]:
    """Return a job for every decoding of every task, decoding by decoding. `trace` is that of the requests.

    `benchmarks` are those that `preflight_of` returned. Records that an earlier version began in `store` keep their
    names. Sample 0 of every problem comes first, so an interrupted evaluation still covers all problems.
    """
    jobs: list[Job] = []
    with phase("making prompts"):
        sets = [(prompts, prompts.benchmark.metadata) for prompts in prompt_sets(spec, engine, benchmarks)]
        for decoding, (prompts, metadata) in product(spec.decodings, sets):
            benchmark, record_task = prompts.benchmark, metadata.of or prompts.benchmark.name
            kwargs: dict[str, Any] = {"decoding": decoding, "sampling": prompts.sampling, "stop": prompts.stop}
            requests = [
                Request(prompt=prompt, problem=f"{record_task}/{key}", sample=sample, trace=trace, **kwargs)
                for sample in range(prompts.sampling.samples)
                for key, prompt in prompts.prompts.items()
            ]
            lm_eval_task = benchmark if isinstance(benchmark, LmEvalBenchmark) else None
            golds = {} if lm_eval_task else {f"{record_task}/{key}": benchmark.golds[key] for key in prompts.prompts}
            job = make_job(benchmark.name, requests, engine, metadata, golds, jobs[0] if jobs else None, store=store)
            jobs.append(replace(job, lm_eval_task=lm_eval_task, chat=template_name(engine)))
    return jobs


def make_job(
    task: str,
    requests: Sequence[Request],
    engine: Engine,
    benchmark: BenchmarkMetadata,
    golds: Mapping[str, Gold],
    like: Job | None,
    *,
    store: RecordStore | None = None,
) -> Job:
    """Make a job from requests. The first prompt represents how all of them are made.

    `like` is another job on this engine, so that its checkpoints are not identified again. A record that an earlier
    version began in `store` keeps its name.
    """
    info, first = engine.info(), requests[0]
    pair = Pair(**info["pair"])
    data, weights = benchmark.of_data or benchmark.data, like.config.weights if like else None
    identity: dict[str, Any] = {
        "prompt": digest(first.prompt),
        "data": data,
        "stop": tuple(first.stop),
        "weights": weights,
    }
    if "own_max_model_len" in info:  # a context was set, so check whether every response fits
        identity["longest"] = _longest(engine, frozenset(request.prompt for request in requests))
        identity["longest"] += first.sampling.max_tokens
    config = RecordConfig.of(pair, first.decoding, first.sampling, info, **identity)
    if store is not None:
        config = store.kept_as(config, config.earlier(info, first.decoding), benchmark.of or task)
    return Job(task, pair, tuple(requests), config, golds, benchmark)


@lru_cache(maxsize=8)
def _longest(engine: Engine, prompts: frozenset[str]) -> int:
    """Return the number of tokens of the longest prompt."""
    return max(len(encode_prompt(engine.tokenizer, prompt)) for prompt in prompts)

"""Plan a list of jobs, and count the cached responses in their records."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.config import EvalSpec
from rlvr_dir.config.pair import model_name
from rlvr_dir.decode import Engine
from rlvr_dir.decode.trace import columns
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.loop import opened
from rlvr_dir.evals.order import points_first
from rlvr_dir.evals.plan import Gpus, Plan, PlanRow, memory_of, plural
from rlvr_dir.evals.speed import speed_of
from rlvr_dir.problems.data import preflight_of
from rlvr_dir.records import RecordStore


def rows_of(jobs: Sequence[Job], engine: Engine, store: RecordStore, pair: str = "") -> list[PlanRow]:
    """Return a row for each decoding of some jobs, in the order in which they run, summed over benchmarks."""
    place = {decoding: n for n, decoding in enumerate(points_first(job.decoding for job in jobs))}
    row_of: dict[Any, PlanRow] = {}
    lengths: dict[str, int] = {}  # tokens of a prompt
    for job in sorted(jobs, key=lambda job: place[job.decoding]):
        label, sampling = job.decoding.label(), job.sampling
        record, trace = job.read(store), job.requests[0].trace
        if record is not None:
            record.trace_columns = 0 if trace is None else columns(trace)
        limit = engine.context.limit(job.decoding)
        cached: list[int] = []
        most = 0
        for request in job.requests:
            row = None if record is None else record.get((request.problem, request.sample))
            if row is not None:
                cached.append(row.n_tokens)
                continue
            if request.prompt not in lengths:
                lengths[request.prompt] = len(encode_prompt(engine.tokenizer, request.prompt))
            most += max(0, min(sampling.max_tokens, limit - lengths[request.prompt]))
        before = row_of.get(job.decoding, PlanRow(pair, label, 0, 0, 0))
        row_of[job.decoding] = PlanRow(
            pair,
            label,
            before.responses + len(job.requests),
            (before.cached or 0) + len(cached),
            before.most + most,
            (*before.lengths, *cached),
        )
    return list(row_of.values())


def plan_evaluation(spec: EvalSpec, records: Path, gpus: Gpus | None = None, *, trace: int | None = None) -> Plan:
    """Plan an evaluation. Load no weights and write nothing. With `trace`, responses without it do not count as cached.

    Raises:
        UserError: A benchmark is unknown, or the two models do not fit together.
    """
    store, benchmarks = RecordStore(records), preflight_of(spec)
    with opened(spec) as engine:
        jobs = jobs_of(spec, engine, trace=trace, benchmarks=benchmarks, store=store)
        return plan_jobs("", {"": jobs}, engine, store, gpus)


def plan_jobs(
    title: str, jobs: Mapping[str, Sequence[Job]], engine: Engine, store: RecordStore, gpus: Gpus | None = None
) -> Plan:
    """Plan a list of jobs, by the name of their pair. Load no weights."""
    rows = [row for pair, own in jobs.items() for row in rows_of(own, engine, store, pair)]
    every = [job for own in jobs.values() for job in own]
    pair = every[0].pair
    name = model_name(pair.rl)
    return Plan(
        title or f"{plural(len(rows), 'decoding')} of {name}",
        rows,
        longest_of(every, engine),
        engine.spec,
        memory={name: memory_of(pair, engine.spec)},
        speed=speed_of(store.folder, every[0].config.weights, engine.spec),
        gpus=gpus,
    )


def longest_of(jobs: Iterable[Job], engine: Engine) -> int:
    """Return the tokens of the longest possible response of some jobs, with its prompt."""
    longest = 1
    for job in jobs:
        prompts = {request.prompt for request in job.requests}
        prompt = max(len(encode_prompt(engine.tokenizer, text)) for text in prompts)
        longest = max(longest, min(engine.context.limit(job.decoding), prompt + job.sampling.max_tokens))
    return longest

"""Decode rollouts with their traces: the values of every criterion at every position, computed while decoding."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlvr_dir.config import Decoding, EvalSpec
from rlvr_dir.decode import Engine, Trace
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.loop import opened, run_jobs
from rlvr_dir.policy.gates import Gate
from rlvr_dir.problems.data import preflight_of
from rlvr_dir.progress import showing
from rlvr_dir.records import RecordStore, Row


def traced(
    spec: EvalSpec,
    records: str | Path,
    *,
    engine: Engine | None = None,
    top: int = 0,
    progress: bool = True,
    inspect_only: bool = False,
    problems: Collection[str] = (),
) -> list[Job]:
    """Decode rollouts with their traces into the record store, or add missing traces. `rollouts` reads them back.

    The tokens are those of an evaluation without traces, so a record serves both. Responses stored without a trace are
    decoded once more. The `top` most likely tokens of each model are stored. Responses that are `inspect_only` count in
    no result of the record, which other commands may have made. `problems` are the ids of the problems to decode, by
    default all.

    Raises:
        UserError: As for `evaluate`, or an id is unknown.
    """
    benchmarks, store = preflight_of(spec), RecordStore(records)
    with showing(progress), opened(spec, engine) as engine:
        jobs = jobs_of(spec, engine, trace=top, benchmarks=benchmarks, store=store)
        jobs = [replace(job, inspect_only=inspect_only) for job in jobs]
        jobs = _of_problems(jobs, problems) if problems else jobs
        for _ in run_jobs(engine, jobs, store, progress=progress):
            pass
    return jobs


def _of_problems(jobs: Sequence[Job], problems: Collection[str]) -> list[Job]:
    """Return the jobs for these problems, with their requests only."""
    ids = {
        request.problem: request.problem.removeprefix(f"{job.record_task}/") for job in jobs for request in job.requests
    }
    if wrong := [problem for problem in problems if problem not in {*ids, *ids.values()}]:
        first = ", ".join([*dict.fromkeys(ids.values())][:5])
        raise UserError(
            "is not known",
            argument="problem",
            value=wrong[0],
            accepted=f"ids of the tasks' problems, of which the first are {first}",
        )
    requested = {full for full, short in ids.items() if {full, short} & {*problems}}
    parts = [(job, tuple(request for request in job.requests if request.problem in requested)) for job in jobs]
    return [replace(job, requests=requests) for job, requests in parts if requests]


def rollouts(job: Job, records: str | Path) -> Iterator[Row]:
    """Yield the stored rollouts of a finished job, in the order of its requests."""
    record = RecordStore(records).read(*job.record.split("/"))
    for request in job.requests:
        yield record.rows[request.problem, request.sample].load()


def trace_of(rollout: Row) -> Trace:
    """Return the trace that a rollout was stored with.

    Raises:
        ValueError: It was stored without one.
    """
    if (table := rollout.trace) is None:
        raise ValueError(f"{rollout.problem} sample {rollout.sample} has no trace")
    return Trace(table)


def criterion_values(
    spec: EvalSpec,
    records: str | Path,
    *,
    gates: Sequence[Gate] = (),
    engine: Engine | None = None,
    progress: bool = True,
) -> dict[Decoding, dict[Gate, np.ndarray]]:
    """Return the values of criteria at every position of the rollouts of a spec, for the token proposed there.

    Returns:
        By decoding and gate, as it is `asked`, (positions,) float32: all tokens of all responses, tasks and problems in
            order. A decoding with a gate has its own; others (such as base's own generation) have the `gates`.

    Raises:
        UserError: A trace does not contain what a gate needs.
    """
    parts: dict[Decoding, dict[Gate, list[np.ndarray]]] = {
        decoding: {gate.without_threshold(): [] for gate in (gates if decoding.gate is None else (decoding.gate,))}
        for decoding in spec.decodings
    }
    for job in traced(spec, records, engine=engine, progress=progress):
        for rollout in rollouts(job, records):
            trace = trace_of(rollout)
            for gate, values in parts[job.decoding].items():
                values.append(trace.value(gate))
    return {
        decoding: {gate: np.concatenate(values) for gate, values in by_gate.items()}
        for decoding, by_gate in parts.items()
    }

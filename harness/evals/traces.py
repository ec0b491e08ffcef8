"""Rollouts with their traces: the value of every criterion at every position, scored by both models as they decode."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.decode import Engine, Trace
from harness.evals.loop import Job, jobs_of, opened, run_jobs
from harness.progress import showing
from harness.records import RecordStore, StoredRollout
from harness.spec import CRITERIA, Decoding, EvalSpec
from harness.spec.decoding import WITHOUT_TAU

MEASURABLE = tuple(name for name in CRITERIA if name not in ("random", "spike", *WITHOUT_TAU))  # of a position alone


def traced(
    spec: EvalSpec,
    records: str | Path,
    *,
    engine: Engine | None = None,
    top: int = 0,
    progress: bool = True,
    looked: bool = False,
) -> list[Job]:
    """Decode, or complete, rollouts with their traces in the record store; `rollouts` reads them back.

    The tokens are those of an evaluation without traces, so a record serves both; what it holds without a trace is
    decoded once more. `top` likeliest tokens of each model are kept a position. What is only `looked` at counts
    in no result of its record, which other commands may have made.

    Raises:
        UserError: what `evaluate` refuses.
    """
    with showing(progress), opened(spec, engine) as engine:
        jobs = [replace(job, looked=looked) for job in jobs_of(spec, engine, trace=top)]
        for _ in run_jobs(engine, jobs, RecordStore(records), progress=progress):
            pass
    return jobs


def rollouts(job: Job, records: str | Path) -> Iterator[StoredRollout]:
    """Yield the stored rollouts of a finished job, in the order of its requests."""
    snapshot = RecordStore(records).read(job.config.hash(), job.task)
    for request in job.requests:
        yield snapshot.rollout((request.problem, request.sample))


def trace_of(rollout: StoredRollout) -> Trace:
    """Return the trace that a rollout was stored with.

    Raises:
        ValueError: it was stored without one.
    """
    if rollout.trace is None:
        raise ValueError(f"{rollout.problem} sample {rollout.sample} has no trace")
    return Trace(rollout.trace)


def criterion_values(
    spec: EvalSpec,
    records: str | Path,
    *,
    criteria: Sequence[str] = MEASURABLE,
    engine: Engine | None = None,
    progress: bool = True,
) -> dict[Decoding, dict[str, np.ndarray]]:
    """Return the values of the criteria at every position of the rollouts of a spec: of the token proposed there.

    Returns:
        By decoding and criterion, (positions,) float32: all tokens of all responses, tasks and problems in order. Of a
        decoding with a gate its own criterion, of others (base's own generation, say) the `criteria`: `spike` with
        its span, as `spike/32`.
    """
    parts: dict[Decoding, dict[str, list[np.ndarray]]] = {
        each: {name: [] for name in ((each.gate.split()[0],) if each.gated else criteria)} for each in spec.decodings
    }
    for job in traced(spec, records, engine=engine, progress=progress):
        for rollout in rollouts(job, records):
            trace = trace_of(rollout)
            for name, values in parts[job.decoding].items():
                values.append(trace.fact(name))
    return {
        decoding: {name: np.concatenate(values) for name, values in mine.items()} for decoding, mine in parts.items()
    }

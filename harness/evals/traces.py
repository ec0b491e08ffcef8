"""One recorded generation scored by both models as it is made: every criterion's value at every position of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.decode import Engine, Trace
from harness.evals.data import PUBLISHED
from harness.evals.run import opened, preflight
from harness.evals.stream import stream
from harness.evals.work import Work, exams, works_of
from harness.records import RecordStore, StoredRollout
from harness.spec import CRITERIA, Decoding, EngineSpec, Pair, Sampling

MEASURABLE = tuple(name for name in CRITERIA if name != "random")


def traced(
    engine_or_pair: Engine | Pair,
    decodings: Sequence[Decoding],
    tasks: Sequence[str],
    records: str | Path,
    sampling: Sampling | None = None,
    *,
    top: int = 0,
    limit: int | None = None,
    data_dir: str | None = None,
    engine_spec: EngineSpec | None = None,
    progress: bool = True,
) -> list[Work]:
    """Decodes, or completes, rollouts with their traces in the record store; `rollouts` reads them back.

    The tokens are those of an evaluation without traces, so a record serves both; what it holds without a trace is
    decoded once more.

    Raises:
        UserError: what `evaluate` refuses.
    """
    names = list(preflight(tasks, data_dir))
    with opened(engine_or_pair, engine_spec) as engine:
        papers = exams(names, engine, sampling, limit=limit, data_dir=data_dir, version=PUBLISHED)
        works = works_of(papers, decodings, engine, trace=top)
        for _ in stream(engine, works, RecordStore(records), progress=progress):
            pass
    return works


def rollouts(work: Work, records: str | Path) -> Iterator[StoredRollout]:
    """The stored rollouts of finished work, in the order of its requests."""
    snapshot = RecordStore(records).read(work.config.hash(), work.task)
    for request in work.requests:
        yield StoredRollout.from_row(snapshot.row((request.problem, request.sample)))


def criterion_values(
    engine_or_pair: Engine | Pair,
    tasks: Sequence[str],
    records: str | Path,
    sampling: Sampling | None = None,
    *,
    decoding: Decoding | None = None,
    limit: int | None = None,
    data_dir: str | None = None,
    engine_spec: EngineSpec | None = None,
    progress: bool = True,
) -> dict[str, np.ndarray]:
    """The value of every criterion but `random` at every position of one generation (default: base's own).

    Returns:
        By criterion, (positions,) float32: all tokens of all responses, tasks and problems in order.
    """
    works = traced(
        engine_or_pair,
        [decoding or Decoding(mode="base")],
        tasks,
        records,
        sampling,
        limit=limit,
        data_dir=data_dir,
        engine_spec=engine_spec,
        progress=progress,
    )
    parts: dict[str, list[np.ndarray]] = {name: [] for name in MEASURABLE}
    for work in works:
        for rollout in rollouts(work, records):
            table = Trace(rollout.trace)
            for name, values in parts.items():
                values.append(table.fact(name))
    return {name: np.concatenate(values) for name, values in parts.items()}

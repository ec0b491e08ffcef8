"""The responses that an analysis reads, with their traces: decoded where the records do not hold them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.config import Decoding, EvalSpec
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.loop import opened
from rlvr_dir.evals.traces import rollouts, traced
from rlvr_dir.progress import showing
from rlvr_dir.records import Row


def description_of(jobs: Sequence[Job], pair: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every analysis of responses says of them."""
    return {
        "pair": dict(pair),
        "tasks": list(dict.fromkeys(job.task for job in jobs)),
        "limited": {job.task: part for job in jobs if (part := limited(job))},
        "sampling": jobs[0].sampling.model_dump(mode="json"),
        "samples": {job.task: job.sampling.samples for job in jobs},
        "records": [job.record for job in jobs],
    }


def drawn_alike(jobs: list[Job]) -> list[Job]:
    """Return jobs, all of whose tokens are drawn in one way: an analysis counts them together and says how.

    Raises:
        UserError: two tasks are drawn in ways of their own.
    """
    ways = {job.sampling.words: job.task for job in reversed(jobs)}
    if len(ways) > 1:
        words_of_tasks = "; ".join(f"{task}: {words}" for words, task in ways.items())
        raise UserError(
            f"The tasks are sampled in different ways: {words_of_tasks}",
            argument="sampling",
            hint="Give a temperature and a top_p for all of them.",
        )
    return jobs


def once(jobs: Iterable[Job]) -> list[Job]:
    """Leave out jobs of another's responses: of a benchmark that grades them by answers of its own."""
    return [*{job.record: job for job in jobs}.values()]


def limited(job: Job) -> str | None:
    """Return of what the problems of a job are a part (`16 of 83 problems`); None where it has all."""
    n_problems, whole = len({request.problem for request in job.requests}), job.benchmark.problems
    return f"{n_problems} of {whole} problems" if whole and n_problems != whole else None


class TracedRecords:
    """The responses of a spec, traced; those that two of its benchmarks share, once."""

    def __init__(self, spec: EvalSpec, records: str | Path, *, top: int = 0, progress: bool = True) -> None:
        with showing(progress), opened(spec) as engine:
            drawn_alike(jobs_of(spec, engine))
            jobs = traced(spec, records, engine=engine, top=top, progress=progress)
            self.tokenizer: Any = engine.tokenizer
            self.description = description_of(jobs, engine.info()["pair"])
        self.jobs = once(jobs)
        self._records = records

    def read(self, mode: str) -> Iterable[Row]:
        """Yield the responses of a mode."""
        for job in self.jobs:
            if job.decoding.mode == mode:
                yield from rollouts(job, self._records)

    def by_decoding(self) -> dict[Decoding, list[Iterable[Row]]]:
        """Return the responses of each decoding, a part a task."""
        rows: dict[Decoding, list[Iterable[Row]]] = {}
        for job in self.jobs:
            rows.setdefault(job.decoding, []).append(rollouts(job, self._records))
        return rows

"""Read the responses that an analysis needs, with their traces. Responses that are not cached are generated."""

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
    """Return the context that every analysis of responses has."""
    return {
        "pair": dict(pair),
        "tasks": list(dict.fromkeys(job.task for job in jobs)),
        "limited": {job.task: part for job in jobs if (part := limited(job))},
        "sampling": jobs[0].sampling.model_dump(mode="json"),
        "samples": {job.task: job.sampling.samples for job in jobs},
        "records": [job.record for job in jobs],
    }


def drawn_alike(jobs: list[Job]) -> list[Job]:
    """Return `jobs` if all have the same sampling settings.

    An analysis pools their tokens and states these settings.

    Raises:
        UserError: Two tasks have different sampling settings.
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
    """Drop jobs that share another job's responses, because their benchmark only grades them by answers of its own."""
    return [*{job.record: job for job in jobs}.values()]


def limited(job: Job) -> str | None:
    """Return how many of a benchmark's problems a job has (`16 of 83 problems`); None if it has all."""
    n_problems, whole = len({request.problem for request in job.requests}), job.benchmark.problems
    return f"{n_problems} of {whole} problems" if whole and n_problems != whole else None


class TracedRecords:
    """Hold the responses of a spec, traced. Responses that two of its benchmarks share are included once."""

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
        """Return the responses of each decoding, with one part per task."""
        rows: dict[Decoding, list[Iterable[Row]]] = {}
        for job in self.jobs:
            rows.setdefault(job.decoding, []).append(rollouts(job, self._records))
        return rows

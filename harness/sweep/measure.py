"""From claimed trials to results: all in one engine stream, each told as soon as its last benchmark is there."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from harness.decode import Engine
from harness.evals import EvalResult, evaluate, preflight
from harness.evals.loop import Job, jobs_of, run_jobs
from harness.records import RecordStore
from harness.spec import Decoding, parse
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.bench import Bench
from harness.sweep.matched import Found
from harness.sweep.points import Point
from harness.sweep.study import Asked

Taus = dict[tuple[str, float], Found]  # by criterion and wanted ratio
Trials = dict[Decoding, list[Asked]]  # points may be other words for one decoding


def decoding_of(spec: SweepSpec, point: Point, taus: Taus) -> Decoding:
    """How a point or a reference is decoded."""
    if "reference" in point:
        return parse(Decoding, point["reference"])
    if RATIO not in point:
        return spec.decoding(point)
    criterion = spec.decoding(point, 0.0).criterion
    return spec.decoding(point, point[RATIO] if criterion == "random" else taus[criterion, point[RATIO]].tau)


def measure(bench: Bench, engine: Engine, asked: Sequence[Asked], taus: Taus) -> None:
    """Decode what is missing of all trials in one stream, and tells each when it is complete; with a pruner, those
    that are clearly worse than the best so far are ended early.

    Raises:
        UserError: what the engine or the record store refuses; trials that are complete by then have been told.
    """
    by: Trials = {}
    for each in asked:
        by.setdefault(decoding_of(bench.spec, each.point, taus), []).append(each)
    if bench.spec.pruner is not None:
        by = survivors(bench, engine, by)
    _evaluate(bench, engine, by)


def _evaluate(bench: Bench, engine: Engine, by: Trials) -> None:
    spec, found = bench.spec, {decoding: [] for decoding in by}
    tasks = len(preflight(spec.tasks, spec.data_dir, spec.golds))

    def have(result: EvalResult) -> None:
        mine = found[result.decoding]
        mine.append(result)
        if len(mine) == tasks:
            files = [bench.folder.keep(each) for each in mine]
            for asked in by[result.decoding]:
                bench.book.finish(asked, files, metrics(spec, mine))
                bench.on_finish(asked.point, mine)

    if by:
        asked = spec.evaluation(_pair(by), list(by))
        evaluate(asked, engine=engine, records=bench.store, progress=bench.progress, on_result=have)


def _pair(by: Trials) -> str:
    """Return the name of the pair of some trials; they have one engine, so one pair."""
    return next(iter(by.values()))[0].point["pair"]


def metrics(spec: SweepSpec, results: Sequence[EvalResult]) -> dict[str, float]:
    """Every metric of a trial by its name in sweeps, as fractions: the unweighted mean over its benchmarks."""
    every: list[dict[str, Any]] = []
    for result in results:
        values = {name.replace("@", "_at_"): value for name, value in result.metrics().items()}
        for name in (*(metric.name for metric in spec.metric), *spec.constraints):
            if name.startswith("pass_at_") and name not in values:
                values[name] = result.pass_at(int(name.removeprefix("pass_at_")))
        every.append(values)
    names = [name for name in every[0] if all(name in values for values in every)]
    return {name: float(fmean(values[name] for values in every)) for name in names}


def survivors(bench: Bench, engine: Engine, by: Trials) -> Trials:
    """The trials that are not worse than the best one, chunk by chunk of problems; the others are told PRUNED.

    All trials still alive decode a chunk together. Problems come in one order, shuffled by the sweep's seed, the same
    for every trial, so that a trial is compared on the very problems it has.
    """
    import numpy as np

    spec, pruner = bench.spec, bench.spec.pruner
    jobs: dict[Decoding, list[Job]] = {decoding: [] for decoding in by}
    for job in jobs_of(spec.evaluation(_pair(by), list(by)), engine):
        jobs[job.decoding].append(job)
    problems = list(dict.fromkeys(request.problem for job in next(iter(jobs.values())) for request in job.requests))
    problems = [problems[i] for i in np.random.default_rng(spec.seed).permutation(len(problems))]
    alive = dict(by)
    for start in range(0, len(problems), pruner.chunk):
        chunk = {problem: start + i for i, problem in enumerate(problems[start : start + pruner.chunk])}
        parts = [
            replace(job, requests=tuple(request for request in job.requests if request.problem in chunk))
            for decoding in alive
            for job in jobs[decoding]
        ]
        rights: dict[Decoding, dict[str, list[bool]]] = {decoding: {} for decoding in alive}
        store = RecordStore(bench.store)
        for done in run_jobs(engine, [p for p in parts if p.requests], store, grader=spec.grader):
            version = next(iter(done.job.golds))
            for (problem, _), response in done.responses.items():
                rights[done.job.decoding].setdefault(problem, []).append(response.verdicts[version].correct)
        seen = start + len(chunk)
        for decoding, trials in list(alive.items()):
            for asked in [asked for asked in trials if not asked.is_reference]:
                for problem, right in rights[decoding].items():
                    asked.trial.report(float(np.mean(right)), chunk[problem])
                if seen < len(problems) and asked.trial.should_prune():
                    bench.book.prune(asked, problems=seen, of=len(problems))
                    bench.say(f"pruned after {seen} of {len(problems)} problems: {decoding.label()}")
                    trials.remove(asked)
            if not trials:
                del alive[decoding]
    return alive

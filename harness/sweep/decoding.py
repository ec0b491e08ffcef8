"""Sweeps of decodings: a list of decodings given to the loop, pair by pair, in one stream of one engine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from harness import stats
from harness.decode import Engine, open_engine
from harness.errors import UserError
from harness.evals import EvalResult, evaluate
from harness.evals.benchmark import Benchmark
from harness.evals.data import preflight_of
from harness.evals.foreign import LmEvalResult
from harness.evals.loop import Job, jobs_of, run_jobs
from harness.evals.show import score
from harness.evals.task_file import LmEvalBenchmark
from harness.markdown import interval
from harness.records import RecordStore
from harness.spec import Decoding, Sampling
from harness.spec.search import LISTED
from harness.spec.sweep import SHARES, SweepSpec
from harness.sweep.confirm import confirm
from harness.sweep.context import Places, SweepContext, SweepKind, TrialRunner
from harness.sweep.decodings import decoding_of, metrics, references, sampling_of
from harness.sweep.estimate import DecodingEstimate, estimate
from harness.sweep.folder import SweepFolder
from harness.sweep.metrics import check_metrics
from harness.sweep.points import Point, listed_points
from harness.sweep.summary import summarise
from harness.sweep.taus import Taus, find_taus, stored_taus, wanted
from harness.sweep.track import SweepRun
from harness.sweep.trials import Asked, Trials
from harness.tiny import checkpoints

Way = tuple[Decoding, Sampling]
TrialsByDecoding = dict[Decoding, list[Asked]]  # trials by decoding: points may be other words for one


class DecodingRunner(TrialRunner):
    """Gives the loop lists of decodings, in an engine that is changed only with the pair."""

    def __init__(self, context: SweepContext[SweepSpec]) -> None:
        self._context, self._spec = context, context.spec
        self._engine: Engine | None = None
        self._loaded = ""
        self._taus: dict[str, Taus] = {}
        known = self._spec.method in LISTED and self._spec.pruner is None
        self.at_once = len(listed_points(self._spec)) if known else self._spec.batch

    def plan(self, pair: str) -> None:
        """Enqueue references, controls, listed points, and points that were lost.

        Finds the thresholds first, where the sweep asks for ratios. With a pruner, a point's control waits until the
        point is complete: those that are pruned need none.
        """
        spec, trials, context = self._spec, self._context.trials, self._context
        if pair not in self._taus:
            self._taus[pair] = stored_taus(spec, context.folder, pair)
            if any(each not in self._taus[pair] for each in wanted(spec)):
                engine, progress = self._open(pair), context.progress
                self._taus[pair] = find_taus(spec, context.folder, pair, engine, context.store, progress=progress)
            self._restore(pair)
        mine: dict[str, list[Point]] = {"PRUNED": [], "COMPLETE": [], "": []}
        for trial in trials.all():
            point = trial.user_attrs.get("point")
            if point is not None and point["pair"] == pair:
                mine[trial.state.name if trial.state.name in mine else ""].append(point)
        listed = [point for point in listed_points(spec) if point["pair"] == pair]
        points = [point for point in (*listed, *mine["COMPLETE"], *mine[""]) if point not in mine["PRUNED"]]
        controlled = mine["COMPLETE"] if spec.pruner else points
        trials.ensure(references(spec, pair, points, self._taus[pair], controlled))
        trials.ensure([*listed, *(point for point in trials.lost() if point["pair"] == pair)])

    def run(self, pair: str, batch: Sequence[Asked]) -> None:
        """Decode what is missing of all trials in one stream, and complete each when its last benchmark is there.

        With a pruner, those that are clearly worse than the best so far are ended early.

        Raises:
            UserError: what the engine or the record store refuses; trials that are complete by then stay so.
        """
        spec, engine = self._spec, self._open(pair)
        by: dict[Sampling, TrialsByDecoding] = {spec.sampling: {}}
        taus = stored_taus(spec, self._context.folder, pair)
        for asked in batch:
            mine = by.setdefault(sampling_of(spec, asked.point), {})
            mine.setdefault(decoding_of(spec, asked.point, taus), []).append(asked)
        if spec.pruner is not None and by[spec.sampling]:
            by[spec.sampling] = self._survivors(pair, engine, by[spec.sampling])

        def complete(way: Way, results: list[EvalResult]) -> None:
            files = [self._context.folder.keep(result) for result in results]
            for asked in by[way[1]][way[0]]:
                self._context.trials.finish(asked, files, metrics(spec, results))
                self._context.on_complete(asked.point, results)

        self._evaluate(pair, engine, [(decoding, sampling) for sampling in by for decoding in by[sampling]], complete)

    def _evaluate(self, pair: str, engine: Engine, ways: Sequence[Way], complete: Any) -> None:
        """Give decodings to the loop, those of one sampling in one stream.

        `complete` is told each way, and its results when its last benchmark is there.
        """
        spec, tasks = self._spec, len(preflight_of(self._spec)) if ways else 0
        store, progress = self._context.store, self._context.progress
        for sampling in dict.fromkeys(sampling for _, sampling in ways):
            found: dict[Decoding, list[EvalResult]] = {decoding: [] for decoding, own in ways if own == sampling}

            def have(result: EvalResult, sampling: Sampling = sampling, found: Any = found) -> None:
                mine = found[result.decoding]
                mine.append(result)
                if len(mine) == tasks:
                    complete((result.decoding, sampling), mine)

            asked = spec.evaluation(pair, list(found), sampling=sampling)
            evaluate(asked, engine=engine, records=store, progress=progress, on_result=have)

    def _restore(self, pair: str) -> None:
        """Make the result files of complete trials that are missing again, from the records.

        Raises:
            UserError: a benchmark has other problems or another grader now than when a trial was run, or the records
                now give other numbers than the trial has (another version of the grader, say).
        """
        context, lacking = self._context, {}
        spec = self._spec
        now = {each.name: each for each in preflight_of(spec).values()}
        for trial in (*context.trials.complete(context.trials.references), *context.trials.complete()):
            point = trial.user_attrs["point"]
            if point["pair"] != pair:
                continue
            results = context.folder.results_of(trial.user_attrs["results"])
            if results is None:
                lacking[decoding_of(spec, point, self._taus[pair]), sampling_of(spec, point)] = trial
            for each in results or ():
                for name in ("data", "grader", "scoring"):
                    was, here = _identity(each, now[each.task], name)
                    older = name == "grader" and str(was).startswith(f"{here}-")  # a version of it
                    if was not in (None, here) and not older:
                        raise UserError(
                            f"the {name} of {now[each.task].file or each.task} is not what sweep {spec.name!r} was "
                            f"begun with ({here}, and was {was}); give the changed sweep another name, or undo the "
                            "change"
                        )

        def complete(way: Way, results: list[EvalResult]) -> None:
            trial, now = lacking[way], metrics(self._spec, results)
            names = {name.rsplit("-", 2)[0]: name for name in trial.user_attrs["results"]}  # TASK-MODE-HASH.json
            if any(now.get(name, value) != value for name, value in trial.user_attrs["metrics"].items()):
                raise UserError(
                    f"the results of trial {trial.number} are missing, and its rollouts give other numbers now; move "
                    f"{context.folder.journal} away and run the sweep again: no rollout is lost, none is decoded twice"
                )
            for result in results:
                context.folder.keep(result, names[result.task])

        if lacking:
            context.say(f"{len(lacking)} results are missing in {context.folder.results}; made again from the records")
            self._evaluate(pair, self._open(pair), list(lacking), complete)

    def _survivors(self, pair: str, engine: Engine, by: TrialsByDecoding) -> TrialsByDecoding:
        """Return the trials that are not worse than the best one, chunk by chunk of problems; the others are pruned.

        All trials still alive decode a chunk together. Problems come in one order, shuffled by the sweep's seed, the
        same for every trial, so that a trial is compared on the very problems it has.
        """
        pruner = self._spec.pruner
        assert pruner is not None
        jobs: dict[Decoding, list[Job]] = {decoding: [] for decoding in by}
        for job in jobs_of(self._spec.evaluation(pair, list(by)), engine):
            jobs[job.decoding].append(job)
        problems = list(dict.fromkeys(request.problem for job in next(iter(jobs.values())) for request in job.requests))
        problems = [problems[i] for i in np.random.default_rng(self._spec.seed).permutation(len(problems))]
        alive = dict(by)
        for start in range(0, len(problems), pruner.chunk):
            chunk = {problem: start + i for i, problem in enumerate(problems[start : start + pruner.chunk])}
            shares = self._shares(engine, (job for decoding in alive for job in jobs[decoding]), chunk)
            seen = start + len(chunk)
            for decoding, mine in list(alive.items()):
                for asked in [asked for asked in mine if not asked.is_reference]:
                    for problem, share in shares[decoding].items():
                        asked.trial.report(share, chunk[problem])
                    if seen < len(problems) and asked.trial.should_prune():
                        self._context.trials.prune(asked, problems=seen, of=len(problems))
                        self._context.say(f"pruned after {seen} of {len(problems)} problems: {decoding.label()}")
                        mine.remove(asked)
                if not mine:
                    del alive[decoding]
        return alive

    def _shares(
        self, engine: Engine, jobs: Iterable[Job], chunk: Mapping[str, int]
    ) -> dict[Decoding, dict[str, float]]:
        """Decode a chunk of problems; the share of right responses to each, by decoding and problem."""
        parts = [
            replace(job, requests=tuple(request for request in job.requests if request.problem in chunk))
            for job in jobs
        ]
        rights: dict[Decoding, dict[str, list[bool]]] = {part.decoding: {} for part in parts if part.requests}
        store = RecordStore(self._context.store)
        for done in run_jobs(engine, [part for part in parts if part.requests], store):
            for (problem, _), verdict in next(iter(done.verdicts.values())).items():
                rights[done.job.decoding].setdefault(problem, []).append(verdict.correct)
        return {
            decoding: {problem: float(np.mean(right)) for problem, right in mine.items()}
            for decoding, mine in rights.items()
        }

    def _open(self, pair: str) -> Engine:
        """Return the pair's engine; its weights are loaded when something has to be decoded."""
        if self._engine is None or self._loaded != pair:
            self.close()
            self._engine = open_engine(checkpoints(self._spec.pairs[pair]), self._spec.engine, lazily=True)
            self._loaded = pair
        return self._engine

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _identity(result: EvalResult, now: Benchmark, name: str) -> tuple[Any, Any]:
    """Return what a result says of its benchmark's `data`, `grader` or `scoring` by lm-eval, and what is so now."""
    if name != "scoring":
        return result.provenance.get(name), getattr(now, name)
    if not isinstance(now, LmEvalBenchmark):
        return None, None
    return (result.provenance.get("graded_with") or {}).get("task"), now.theirs.graded_with["task"]


def _check(spec: SweepSpec) -> None:
    """Refuse tasks that cannot be had, and metrics that one of them does not have or that are better the other way.

    Raises:
        UserError: naming the task, the metric and what would be accepted.
    """
    check_metrics(spec, preflight_of(spec), spec.sampling.samples, (*SHARES, "mean_tokens"))


def _estimate(spec: SweepSpec, places: Places, speed: float | None) -> DecodingEstimate:
    return estimate(spec, places.out, places.records, speed)


def _results(spec: SweepSpec, folder: SweepFolder, trial: FrozenTrial) -> list[EvalResult] | None:
    return folder.results_of(trial.user_attrs["results"])


def _describe(point: Point, results: Sequence[EvalResult]) -> list[str]:
    drawn = f" ({results[0].sampling.words})" if "sampling" in point else ""
    return [
        f"{point['pair']}: {results[0].label}{drawn}",
        *(f"{result.benchmark} {score(result)}" for result in results),
    ]


def _best_so_far(spec: SweepSpec, trials: Trials, folder: SweepFolder) -> str:
    best = trials.best()
    if not best or not (results := folder.results_of(best[0].user_attrs["results"][:1])):
        return ""
    [result] = [each.of_metric(spec.metric[0].name) for each in results]
    many = f"Pareto set of {len(best)}, first" if len(spec.metric) > 1 else "best so far"
    if isinstance(result, LmEvalResult):
        return f"{many}: {result.label} {result.avg:.4f}"
    return f"{many}: {result.label} {100 * result.avg:.1f} {interval(*stats.score_interval(result.correct))}".rstrip()


DECODINGS = SweepKind(
    check=_check,
    store=lambda places: places.records,
    estimate=_estimate,
    runner=DecodingRunner,
    results=_results,
    describe=_describe,
    best_so_far=_best_so_far,
    summarise=summarise,
    track=SweepRun,
    confirm=confirm,
)

"""Decode the points of a sweep: a list of decodings given to the loop, pair by pair, in one stream of one engine."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import hypot, isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlvr_dir.config import Decoding, ProblemPart, Sampling
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.errors import UserError
from rlvr_dir.files import make_folder
from rlvr_dir.grading import grader_name
from rlvr_dir.problems.benchmark import Benchmark
from rlvr_dir.problems.data import preflight, preflight_of
from rlvr_dir.report.sweep import CompleteTrial, DecodingSummary
from rlvr_dir.results import EvalResult
from rlvr_dir.results.compare import comparisons
from rlvr_dir.results.result import refuse_lm_eval_tasks
from rlvr_dir.results.settings import Setting, settings_of
from rlvr_dir.results.show import score
from rlvr_dir.sweep.decodings import decoding_of, references, sampling_of
from rlvr_dir.sweep.estimate import DecodingEstimate, estimate
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Confirmation, Outcome, Outcomes, Places
from rlvr_dir.sweep.points import Point, key
from rlvr_dir.sweep.study import Trial
from rlvr_dir.sweep.taus import Taus, find_taus, stored_taus, wanted
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.tiny import checkpoints

if TYPE_CHECKING:  # which brings torch, and a sweep that is only looked at does not wait for it
    from rlvr_dir.decode import Engine

_ERROR = re.compile(r"avg_at_\d+_se(_sampling)?")  # standard errors, of benchmarks that share no problem
_ORDER = ("base", "rl", "replace", "reject", "veto", "extrapolate", "resample")  # of references


class DecodingObjective:
    """Gives the loop lists of decodings, in an engine that is changed only with the pair."""

    def __init__(self, spec: SweepSpec, places: Places, say: Callable[[str], None], *, progress: bool) -> None:
        self.spec, self.places, self.say, self.progress = spec, places, say, progress
        self.store, self.folder = places.records, SweepFolder.of(spec, places.out)
        self._engine: Engine | None = None
        self._loaded = ""  # the pair of the engine
        self._decodings: dict[str, Decoding] = {}  # of points, by key

    def check(self) -> None:
        """Refuse tasks that cannot be had, and those of lm-eval's.

        Raises:
            UserError: naming the task and what would be accepted.
        """
        refuse_lm_eval_tasks(preflight_of(self.spec), "swept")

    def estimate(self) -> DecodingEstimate:
        """Estimate from the records; of benchmarks that are not at hand, without them.

        Raises:
            UserError: a task is lm-eval's.
        """
        benchmarks: dict[str, Benchmark] = {}
        with suppress(UserError):
            benchmarks = preflight_of(self.spec)
        refuse_lm_eval_tasks(benchmarks, "swept")
        return estimate(self.spec, self.places.out, self.places.records)

    # Points

    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return base, RL, controls, and what else is asked for, of each pair."""
        wanted_references: list[Point] = []
        for pair in self.spec.pairs:
            taus, decodings = self._taus(pair), list[Decoding]()
            for point in points:
                if point["pair"] == pair:
                    name = key(point)  # its decoding is made once: a search asks again after each of its points
                    self._decodings[name] = self._decodings.get(name) or decoding_of(self.spec, point, taus)
                    decodings.append(self._decodings[name])
            wanted_references += references(self.spec, pair, decodings)
        return wanted_references

    def run(self, points: Sequence[Point], outcomes: Outcomes) -> None:
        """Decode what is missing of all points in one stream, and complete each when its last benchmark is there.

        Raises:
            UserError: what the engine or the record store refuses; points that are complete by then stay so.
        """
        spec, pair = self.spec, points[0]["pair"]
        taus = self._taus(pair)
        by_sampling: dict[Sampling, dict[Decoding, list[Point]]] = {spec.sampling: {}}
        for point in points:  # several points may be other words for one decoding
            decodings = by_sampling.setdefault(sampling_of(spec, point), {})
            decodings.setdefault(decoding_of(spec, point, taus), []).append(point)
        try:
            for sampling, points_of in by_sampling.items():
                if points_of:
                    self._decode(pair, sampling, points_of, outcomes)
        except UserError:
            self.close()  # it may be in the middle of other responses
            raise

    def _decode(
        self, pair: str, sampling: Sampling, points_of: dict[Decoding, list[Point]], outcomes: Outcomes
    ) -> None:
        from rlvr_dir.evals import evaluate

        spec, tasks = self.spec, len(preflight_of(self.spec))
        results: dict[Decoding, list[EvalResult]] = {decoding: [] for decoding in points_of}

        def complete(result: EvalResult) -> None:
            done = results[result.decoding]
            done.append(result)
            if len(done) == tasks:
                files = tuple(result.write(self.folder.results).name for result in done)
                for point in points_of[result.decoding]:
                    outcomes.complete(Outcome(point, done, metrics(spec, done), files))

        evaluation = spec.evaluation(pair, list(points_of), sampling=sampling)
        evaluate(evaluation, engine=self._open(pair), records=self.store, progress=self.progress, on_result=complete)

    def results(self, trial: Trial) -> list[EvalResult] | None:
        """Return the results of a trial."""
        return self.folder.results_of(trial.results)

    def is_current(self, trial: Trial) -> bool:
        """Tell whether results are there, and of the benchmarks, graders and criteria as they are now."""
        benchmarks = {benchmark.name: benchmark for benchmark in preflight_of(self.spec).values()}
        results, point = self.results(trial), trial.point
        for result in results or ():
            tau = result.decoding.tau if RATIO in point else None
            if "reference" not in point and result.decoding != self.spec.decoding(point, tau):
                return False  # its own file has changed
        return results is not None and all(_is_of(result, benchmarks[result.task]) for result in results)

    # The summary

    def entry(self, point: Point, results: Sequence[Any], number: int, metrics: dict[str, float]) -> CompleteTrial:
        """Return a point or a reference with its label, and how it is drawn otherwise than the sweep."""
        drawn = sampling_of(self.spec, point).difference_from(self.spec.sampling)
        label = results[0].decoding.label() + (f" ({drawn})" if drawn else "")
        facts = {
            "decoding": results[0].decoding.model_dump(mode="json"),
            "results": {result.task: result.config_hash for result in results},
        }
        varied, scores = None if "reference" in point else point, [Setting.of([result]) for result in results]
        more: dict[str, Any] = {"scores": scores, "drawn": drawn, "facts": facts}
        return CompleteTrial(point["pair"], number, varied, label, tuple(results), metrics, **more)

    def summary(self, entries: list[CompleteTrial], **counts: Any) -> DecodingSummary:
        """Return the summary, references first."""

        def place(entry: CompleteTrial) -> tuple[bool, bool, int]:
            mode = entry.results[0].decoding.mode
            return (
                entry.point is not None,
                bool(entry.drawn),
                _ORDER.index(mode) if entry.point is None else entry.number,
            )

        entries = sorted(entries, key=place)
        results = [result for entry in entries for result in entry.results]
        return DecodingSummary(
            spec=self.spec,
            entries=entries,
            comparisons=comparisons(settings_of(results, usual=self.spec.sampling)),
            matched=[row for entry in entries if (row := self._matched(entry))],
            results=lambda: results,
            **counts,
        )

    def _matched(self, entry: CompleteTrial) -> dict[str, Any] | None:
        """Return the threshold of a point that names a ratio, and the ratio that it reached."""
        if RATIO not in (point := entry.point or {}):
            return None
        taus = stored_taus(self.spec, self.folder, entry.pair)
        tau = taus.get((entry.results[0].decoding.criterion, point[RATIO]))
        if tau is None:  # its file was moved away
            return None
        replaced, tokens = (
            sum(int(getattr(result, name).sum()) for result in entry.results) for name in ("n_replaced", "n_tokens")
        )
        ratios = {"wanted": tau.wanted, "expected": tau.expected, "reached": replaced / max(1, tokens)}
        return {"pair": entry.pair, "criterion": tau.criterion, "tau": tau.tau, **ratios}

    # The confirmation

    def confirm(
        self, best: CompleteTrial, summary: Any, seeds: Sequence[int], tasks: Sequence[str] | None, limit: int | None,
        run: SweepRun,
    ) -> Iterator[Confirmation]:  # fmt: skip
        """Decode the winner, base, RL and its control; `limit` takes the first of the unused problems.

        The winner is compared with RL and its control; RL itself, which has neither, with base.
        """
        from rlvr_dir.evals import evaluate

        spec, winner = self.spec, best.results[0].decoding
        benchmarks = preflight(tasks or spec.tasks, spec.data_dir, spec)
        parts = {benchmark.name: unused(spec, benchmark) for benchmark in benchmarks.values()}
        base, rl = Decoding(mode="base"), Decoding(mode="rl")
        decodings = list(dict.fromkeys([base, rl, winner.control(), winner]))
        controls = [control for control in dict.fromkeys([rl, winner.control()]) if control != winner] or [base]
        results: list[EvalResult] = []
        make_folder(self.folder.path / "confirm")
        for seed, part in product(seeds, dict.fromkeys(parts.values())):
            chosen = tuple(task for task, benchmark in benchmarks.items() if parts[benchmark.name] == part)
            same = spec.limit if part == spec.part else None  # nothing new is left, so no more than the sweep had
            changes = {"tasks": chosen, "part": part, "limit": limit or same}
            evaluation = spec.evaluation(best.pair, decodings, sampling=spec.sampling.replace(seed=seed), **changes)
            results += evaluate(evaluation, engine=self._open(best.pair), records=self.store)
        self.close()
        for result in results:
            result.write(self.folder.path / "confirm")
            run.child(result)
            self.say(f"{result.benchmark}  {result.label}  seed {result.sampling.seed}  {score(result)}")
        settings = {(setting.task, setting.decoding): setting for setting in settings_of(results)}
        own = {benchmark.name for benchmark in preflight_of(spec).values()}
        for task in dict.fromkeys(result.task for result in results):
            setting = settings[task, winner]
            kind = "the same {}" if parts[setting.first.task] == spec.part else "{} others"
            problems = (kind if setting.first.task in own else "{} of another benchmark").format(len(setting.units))
            for control in controls:
                yield Confirmation(setting, settings[task, control], problems)

    # The engine

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _taus(self, pair: str) -> Taus:
        """Return the thresholds of a pair; where the sweep asks for ratios, those that are missing are found."""
        taus = stored_taus(self.spec, self.folder, pair)
        if not wanted(self.spec).keys() <= taus.keys():
            taus = find_taus(self.spec, self.folder, pair, self._open(pair), self.store, progress=self.progress)
        return taus

    def _open(self, pair: str) -> "Engine":
        """Return the pair's engine; its weights are loaded when something has to be decoded."""
        if self._engine is None or self._loaded != pair:
            from rlvr_dir.decode import open_engine

            self.close()
            self._engine = open_engine(checkpoints(self.spec.pairs[pair]), self.spec.engine, lazily=True)
            self._loaded = pair
        return self._engine


def _is_of(result: EvalResult, benchmark: Benchmark) -> bool:
    """Tell whether a result is of a benchmark and a grader as they are now."""
    provenance = result.provenance
    if provenance.get("data") not in (None, benchmark.data):
        return False
    return provenance.get("grader") == grader_name(benchmark.grader)


def metrics(spec: SweepSpec, results: Sequence[EvalResult]) -> dict[str, float]:
    """Return every metric of a trial by its name in sweeps: the unweighted mean over its benchmarks, and its errors.

    Metrics of more samples than there are have no value: greedy decoding has one.
    """
    by_benchmark: list[dict[str, Any]] = []
    for result in results:
        values = {name.replace("@", "_at_"): value for name, value in result.metrics().items()}
        name = spec.metric.name
        if name.startswith("pass_at_") and name not in values and int(name[8:]) <= result.samples:
            values[name] = result.pass_at(int(name.removeprefix("pass_at_")))
        by_benchmark.append(values)
    means: dict[str, float] = {}
    for name in by_benchmark[0]:
        if all(name in values for values in by_benchmark):
            terms = [float(values[name]) for values in by_benchmark]
            means[name] = hypot(*terms) / len(terms) if _ERROR.fullmatch(name) else fmean(terms)
    return {name: value for name, value in means.items() if isfinite(value)}  # one sample has no sampling error


def unused(spec: SweepSpec, benchmark: Benchmark) -> ProblemPart:
    """Return the problems of a benchmark on which the winner was not chosen; the sweep's own where there are none."""
    if benchmark.name not in {swept.name for swept in preflight_of(spec).values()}:
        return ProblemPart()
    part = spec.part.replace(held_out=True) if spec.confirm is not None else ProblemPart(skip=spec.limit or 0)
    ids, families = [row["id"] for row in benchmark.problems], benchmark.facts.families
    return part if 0 < len(part.select(ids, families)) < len(ids) else spec.part

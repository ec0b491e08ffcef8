"""Sweeps of decodings: a list of decodings given to the loop, pair by pair, in one stream of one engine."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from math import hypot, isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness import stats
from harness.evals import EvalResult
from harness.evals.benchmark import Benchmark
from harness.evals.compare import comparisons
from harness.evals.data import preflight, preflight_of
from harness.evals.settings import Setting, settings_of
from harness.evals.show import score
from harness.files import make_folder
from harness.grading import grader_name
from harness.report.sweep import CompleteTrial, DecodingSummary
from harness.spec import Decoding, ProblemPart, Sampling
from harness.spec.search import LISTED
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.base import Again, Sweep
from harness.sweep.decodings import decoding_of, references, sampling_of
from harness.sweep.estimate import DecodingEstimate, estimate
from harness.sweep.points import Point, key, listed_points
from harness.sweep.taus import Taus, find_taus, stored_taus, wanted
from harness.sweep.track import SweepRun
from harness.sweep.trials import Trial
from harness.tiny import checkpoints

if TYPE_CHECKING:  # which brings torch, and a sweep that is only looked at does not wait for it
    from harness.decode import Engine

PointsByDecoding = dict[Decoding, list[Point]]  # points may be other words for one


_ERROR = re.compile(r"avg_at_\d+_se(_sampling)?")  # standard errors, of benchmarks that share no problem
_ORDER = ("base", "rl", "replace", "veto", "extrapolate", "resample")  # of references


class Decodings(Sweep[SweepSpec]):
    """Gives the loop lists of decodings, in an engine that is changed only with the pair."""

    _engine: "Engine | None" = None
    _loaded = ""

    @cached_property
    def _decodings(self) -> dict[str, Decoding]:
        """The decodings of points, by key."""
        return {}

    @property
    def store(self) -> Path:
        """The folder of records."""
        return self.places.records

    @property
    def seeds(self) -> Sequence[int]:
        """That of the sampling."""
        return (self.spec.sampling.seed,)

    @property
    def at_once(self) -> int:
        """All points where they are known, else a batch."""
        return len(listed_points(self.spec)) if self.spec.method in LISTED else self.spec.batch

    def check(self) -> None:
        """Refuse tasks that cannot be had, and those of lm-eval's.

        Raises:
            UserError: naming the task and what would be accepted.
        """
        from harness.evals.loop import refuse_lm_eval_tasks

        refuse_lm_eval_tasks(preflight_of(self.spec), "swept")

    def estimate(self) -> DecodingEstimate:
        """Estimate from the records."""
        return estimate(self.spec, self.places.out, self.places.records)

    def references(self, points: Sequence[Point]) -> list[Point]:
        """Return base, RL, controls, and what else is asked for, of each pair."""
        found: list[Point] = []
        for pair in self.spec.pairs:
            taus, decodings = self._taus(pair), list[Decoding]()
            for point in points:
                if point["pair"] == pair:
                    name = key(point)  # its decoding is made once: a search asks again after each of its points
                    self._decodings[name] = self._decodings.get(name) or decoding_of(self.spec, point, taus)
                    decodings.append(self._decodings[name])
            found += references(self.spec, pair, decodings)
        return found

    def run(self, points: Sequence[Point]) -> None:
        """Decode what is missing of all points in one stream, and complete each when its last benchmark is there.

        Raises:
            UserError: what the engine or the record store refuses; points that are complete by then stay so.
        """
        from harness.evals import evaluate

        spec, pair = self.spec, points[0]["pair"]
        engine, taus = self._open(pair), self._taus(pair)
        by: dict[Sampling, PointsByDecoding] = {spec.sampling: {}}
        for point in points:
            by.setdefault(sampling_of(spec, point), {}).setdefault(decoding_of(spec, point, taus), []).append(point)
        tasks = len(preflight_of(spec))
        for sampling, asked in by.items():
            found: dict[Decoding, list[EvalResult]] = {decoding: [] for decoding in asked}

            def have(result: EvalResult, asked: PointsByDecoding, found: dict[Decoding, list[EvalResult]]) -> None:
                mine = found[result.decoding]
                mine.append(result)
                if len(mine) == tasks:
                    files = [each.write(self.folder.results).name for each in mine]
                    for point in asked[result.decoding]:
                        self.complete(point, mine, files, metrics(spec, mine))

            if asked:
                evaluation = spec.evaluation(pair, list(asked), sampling=sampling)
                told = partial(have, asked=asked, found=found)
                evaluate(evaluation, engine=engine, records=self.store, progress=self.progress, on_result=told)

    def results(self, trial: Trial) -> list[EvalResult] | None:
        """Return the results of a trial."""
        return self.folder.results_of(trial.results)

    def is_current(self, trial: Trial) -> bool:
        """Tell whether results are there, and of the benchmarks, graders and criteria as they are now."""
        now = {each.name: each for each in preflight_of(self.spec).values()}
        results, point = self.results(trial), trial.point
        for each in results or ():
            tau = each.decoding.tau if RATIO in point else None
            if "reference" not in point and each.decoding != self.spec.decoding(point, tau):  # its own file has changed
                return False
        return results is not None and all(_is_of(each, now[each.task]) for each in results)

    def entry(
        self, point: Point, results: Sequence[EvalResult], number: int, metrics: dict[str, float]
    ) -> CompleteTrial:
        """Return a point or a reference with its label, and how it is drawn otherwise than the sweep."""
        drawn = sampling_of(self.spec, point).unlike(self.spec.sampling)
        label = results[0].decoding.label() + (f" ({drawn})" if drawn else "")
        about = {
            "decoding": results[0].decoding.model_dump(mode="json"),
            "results": {result.task: result.config_hash for result in results},
        }
        asked = None if "reference" in point else point
        return CompleteTrial(point["pair"], number, asked, label, tuple(results), metrics, drawn=drawn, about=about)

    def scores(self, entry: CompleteTrial) -> list[stats.Scores]:
        """Return what a point scored by the sweep's metric."""
        return [Setting.of([result]) for result in entry.results]

    def summarise(self, entries: list[CompleteTrial], **told: Any) -> DecodingSummary:
        """Return the summary, references first."""

        def place(entry: CompleteTrial) -> tuple[bool, bool, int]:
            mode = entry.results[0].decoding.mode
            return (
                entry.point is not None,
                bool(entry.drawn),
                _ORDER.index(mode) if entry.point is None else entry.number,
            )

        entries = sorted(entries, key=place)
        matched = []
        for entry in (entry for entry in entries if RATIO in (entry.point or {})):
            found = self._taus(entry.pair)[entry.results[0].decoding.criterion, (entry.point or {})[RATIO]]
            replaced, tokens = (
                sum(int(getattr(r, n).sum()) for r in entry.results) for n in ("n_replaced", "n_tokens")
            )
            shares = {"wanted": found.wanted, "expected": found.expected, "reached": replaced / max(1, tokens)}
            matched.append({"pair": entry.pair, "criterion": found.criterion, "tau": found.tau, **shares})
        found = [result for entry in entries for result in entry.results]
        compared = comparisons(settings_of(found, usual=self.spec.sampling))
        return DecodingSummary(
            spec=self.spec, entries=entries, comparisons=compared, matched=matched, results=lambda: found, **told
        )

    def log(self, run: SweepRun, result: EvalResult) -> None:
        """Log a result as a run of its own."""
        from harness.tracking import log_result

        if (made := log_result(result, run.where, run.experiment)) is not None:
            run.adopt(made)

    def params(self) -> dict[str, str]:
        """Return the pairs and the benchmarks."""
        return {"pair": ", ".join(self.spec.pairs), "tasks": ", ".join(self.spec.tasks)}

    def again(
        self, best: CompleteTrial, made: Any, seeds: Sequence[int], tasks: Sequence[str] | None, limit: int | None,
        run: SweepRun,
    ) -> Iterator[Again]:  # fmt: skip
        """Decode the winner, base, RL and its control; `limit` takes the first of the unused problems.

        The winner is compared with RL and its control; RL itself, which has neither, with base.
        """
        from harness.evals import evaluate

        spec, winner = self.spec, best.results[0].decoding
        found = preflight(tasks or spec.tasks, spec.data_dir, spec)
        parts = {each.name: unused(spec, each) for each in found.values()}
        base, rl = Decoding(mode="base"), Decoding(mode="rl")
        decodings = list(dict.fromkeys([base, rl, winner.control(), winner]))
        controls = [each for each in dict.fromkeys([rl, winner.control()]) if each != winner] or [base]
        results: list[EvalResult] = []
        make_folder(self.folder.path / "confirm")
        for seed, part in product(seeds, dict.fromkeys(parts.values())):
            chosen = tuple(task for task, each in found.items() if parts[each.name] == part)
            same = spec.limit if part == spec.part else None  # nothing new is left, so no more than the sweep had
            changes = {"tasks": chosen, "part": part, "limit": limit or same}
            asked = spec.evaluation(best.pair, decodings, sampling=spec.sampling.replace(seed=seed), **changes)
            results += evaluate(asked, engine=self._open(best.pair), records=self.store)
        self.close()
        for result in results:
            result.write(self.folder.path / "confirm")
            run.child(result)
            self.say(f"{result.benchmark}  {result.label}  seed {result.sampling.seed}  {score(result)}")
        by = {(setting.task, setting.decoding): setting for setting in settings_of(results)}
        mine = {each.name for each in preflight_of(spec).values()}
        for task in dict.fromkeys(result.task for result in results):
            one = by[task, winner]
            kind = "the same {}" if parts[one.first.task] == spec.part else "{} others"
            said = (kind if one.first.task in mine else "{} of another benchmark").format(len(one.units))
            for control in controls:
                yield Again(one, by[task, control], said)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _taus(self, pair: str) -> Taus:
        """Return the thresholds of a pair; where the sweep asks for ratios, they are found when it runs."""
        taus = stored_taus(self.spec, self.folder, pair)
        if self.study is not None and any(each not in taus for each in wanted(self.spec)):
            taus = find_taus(self.spec, self.folder, pair, self._open(pair), self.store, progress=self.progress)
        return taus

    def _open(self, pair: str) -> "Engine":
        """Return the pair's engine; its weights are loaded when something has to be decoded."""
        if self._engine is None or self._loaded != pair:
            from harness.decode import open_engine

            self.close()
            self._engine = open_engine(checkpoints(self.spec.pairs[pair]), self.spec.engine, lazily=True)
            self._loaded = pair
        return self._engine


def _is_of(result: EvalResult, now: Benchmark) -> bool:
    """Tell whether a result is of a benchmark and a grader as they are now."""
    told = result.provenance
    if told.get("data") not in (None, now.data):
        return False
    return told.get("grader") == grader_name(now.grader)


def metrics(spec: SweepSpec, results: Sequence[EvalResult]) -> dict[str, float]:
    """Return every metric of a trial by its name in sweeps: the unweighted mean over its benchmarks, and its errors.

    Metrics of more samples than there are have no value: greedy decoding has one.
    """
    every: list[dict[str, Any]] = []
    for result in results:
        values = {name.replace("@", "_at_"): value for name, value in result.metrics().items()}
        name = spec.metric.name
        if name.startswith("pass_at_") and name not in values and int(name[8:]) <= result.samples:
            values[name] = result.pass_at(int(name.removeprefix("pass_at_")))
        every.append(values)
    names = [name for name in every[0] if all(name in values for values in every)]
    each = {name: [float(values[name]) for values in every] for name in names}
    means = {name: hypot(*mine) / len(mine) if _ERROR.fullmatch(name) else fmean(mine) for name, mine in each.items()}
    return {name: value for name, value in means.items() if isfinite(value)}  # one sample has no sampling error


def unused(spec: SweepSpec, benchmark: Benchmark) -> ProblemPart:
    """Return the problems of a benchmark on which the winner was not chosen; the sweep's own where there are none."""
    if benchmark.name not in {each.name for each in preflight_of(spec).values()}:
        return ProblemPart()
    if spec.confirm is not None:
        return spec.part.replace(held_out=True)
    if spec.limit is not None and spec.limit < len(benchmark.problems):
        return ProblemPart(skip=spec.limit)
    return spec.part

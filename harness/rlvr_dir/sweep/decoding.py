"""Decode the points of a sweep: a list of decodings, pair by pair, in one stream of one engine."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import hypot, isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, ProblemPart, Sampling
from rlvr_dir.config.pair import places_of
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.errors import UserError
from rlvr_dir.evals.plan import Gpus
from rlvr_dir.files import make_folder
from rlvr_dir.grading import grader_name
from rlvr_dir.problems.benchmark import GROUPS, Benchmark
from rlvr_dir.problems.data import preflight, preflight_of
from rlvr_dir.records.store import stored_spreads
from rlvr_dir.report.sweep import CompleteTrial, DecodingSummary
from rlvr_dir.results import EvalResult
from rlvr_dir.results.compare import comparisons
from rlvr_dir.results.result import refuse_lm_eval_tasks
from rlvr_dir.results.settings import Setting, settings_of
from rlvr_dir.results.show import score
from rlvr_dir.sweep.entries import Drawn, Entry, entries_of
from rlvr_dir.sweep.estimate import SweepPlan, estimate
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Confirmation, Places
from rlvr_dir.sweep.points import Point, listed_points
from rlvr_dir.sweep.taus import find_taus, stored_taus, wanted
from rlvr_dir.sweep.track import SweepRun

if TYPE_CHECKING:  # importing it imports torch, which commands that only show a sweep do not need
    from rlvr_dir.decode import Engine

_ORDER = ("base", "rl", "replace", "reject", "veto", "extrapolate", "resample")  # of references
Complete = Callable[[Entry[Drawn], Sequence[EvalResult]], None]
Fail = Callable[[Entry[Drawn], str], None]
_ERROR = re.compile(r"avg_at_\d+_se(_sampling)?")  # standard errors, for benchmarks without common problems


class DecodingObjective:
    """Run lists of decodings with one engine, which is only replaced when the pair changes."""

    def __init__(self, spec: SweepSpec, places: Places, *, progress: bool = False) -> None:
        self.spec, self.places, self.progress = spec, places, progress
        self.store, self.folder = places.records, SweepFolder.of(spec, places.out)
        self._engine: Engine | None = None
        self._loaded = ""  # the engine's pair
        self._results: list[EvalResult] | None = None

    def check(self) -> None:
        """Reject tasks that are not available, and those of lm-eval.

        Raises:
            UserError: A task is not accepted; the error names it.
        """
        refuse_lm_eval_tasks(preflight_of(self.spec), "swept")

    def estimate(self, *, gpus: Gpus | None = None, memory: bool = False) -> SweepPlan:
        """Plan the sweep from the records, or without them if benchmarks are not on this machine.

        Raises:
            UserError: A task is one of lm-eval's.
        """
        benchmarks: dict[str, Benchmark] = {}
        with suppress(UserError):
            benchmarks = preflight_of(self.spec)
        refuse_lm_eval_tasks(benchmarks, "swept")
        return estimate(self.spec, self.places.out, self.places.records, gpus=gpus, memory=memory)

    def probe(self) -> None:
        """Generate responses of the first entries of each pair for two minutes, and store them and the speed."""
        from rlvr_dir.evals.loop import probe

        own = self.spec.sampling
        for pair in self.spec.pairs:
            drawn = [entry.item for entry in self.entries(listed_points(self.spec)) if entry.pair == pair]
            decodings = list(dict.fromkeys(decoding for decoding, sampling in drawn if sampling == own))
            probe(self.spec.evaluation(pair, decodings), self.store, engine=self._open(pair))
        self.close()

    # What there is to run

    def prepare(self, points: Sequence[Point]) -> None:
        """Find the thresholds for the requested ratios of some points, unless they have been found already."""
        for pair in dict.fromkeys(point["pair"] for point in points):
            if not wanted(self.spec).keys() <= stored_taus(self.spec, self.folder, pair).keys():
                find_taus(self.spec, self.folder, pair, self._open(pair), self.store, progress=self.progress)

    def entries(self, points: Sequence[Point]) -> list[Entry[Drawn]]:
        """Return the points and their references, without points whose threshold has not been found yet."""
        taus = {pair: stored_taus(self.spec, self.folder, pair) for pair in self.spec.pairs}
        return entries_of(self.spec, points, taus)

    def run(self, entries: Sequence[Entry[Drawn]], complete: Complete, fail: Fail) -> None:
        """Decode entries in one stream for each pair and sampling; each is complete with its last benchmark.

        Its result files are written together, when it is complete.

        Raises:
            UserError: The engine or the record store reports an error. Complete entries stay complete.
        """
        from rlvr_dir.evals import evaluate

        tasks, streams = len(preflight_of(self.spec)), dict[tuple[str, Sampling], dict[Decoding, list[Entry[Drawn]]]]()
        for entry in entries:  # several points may be the same decoding
            decoding, sampling = entry.item
            streams.setdefault((entry.pair, sampling), {}).setdefault(decoding, []).append(entry)
        for (pair, sampling), own in streams.items():
            of_decoding: dict[Decoding, list[EvalResult]] = {decoding: [] for decoding in own}

            def done(result: EvalResult, own: Any = own, of_decoding: Any = of_decoding) -> None:
                results = of_decoding[result.decoding]
                results.append(result)
                if len(results) == tasks:
                    for complete_result in results:
                        complete_result.write(self.folder.results)
                    for entry in own[result.decoding]:
                        complete(entry, results)

            evaluation = self.spec.evaluation(pair, list(own), sampling=sampling)
            try:
                engine = self._open(pair)
                evaluate(evaluation, engine=engine, records=self.store, progress=self.progress, on_result=done)
            except UserError:
                self.close()  # it may be decoding other responses
                raise

    def stored(self, entry: Entry[Drawn], *, current: bool) -> list[EvalResult] | None:
        """Return the results of an entry, in the order of the benchmarks; None if one is missing.

        With `current`, all must be of the benchmarks, graders and criteria as they are now. Without, no benchmark is
        read.
        """
        if self._results is None:
            self._results = self.folder.read_results()
        several, models = len(self.spec.pairs) > 1, resolve(self.spec.pairs[entry.pair]).model_dump()
        own = {
            result.task: result
            for result in self._results
            if (result.decoding, result.sampling) == entry.item and (not several or result.models == places_of(models))
        }
        if not current:
            results = [own[name] for name in _names(self.spec.tasks) if name in own]
            return results if len(results) == len(_names(self.spec.tasks)) else None
        benchmarks = preflight_of(self.spec).values()
        context = self.spec.engine.max_model_len
        results = [
            own[b.name]
            for b in benchmarks
            if b.name in own and _is_of(own[b.name], b) and not _cut(own[b.name], context)
        ]
        return results if len(results) == len(benchmarks) else None

    # The summary

    def trial(self, entry: Entry[Drawn], results: Sequence[EvalResult]) -> CompleteTrial:
        """Return a complete point or reference, with its label and how its sampling differs from the sweep's."""
        drawn = entry.item[1].difference_from(self.spec.sampling)
        label = results[0].decoding.label() + (f" ({drawn})" if drawn else "")
        details = {
            "decoding": results[0].decoding.model_dump(mode="json"),
            "results": {result.task: result.config_hash for result in results},
        }
        more: dict[str, Any] = {
            "scores": [Setting.of([result]) for result in results],
            "drawn": drawn,
            "details": details,
        }
        means = metrics(self.spec, results)
        return CompleteTrial(entry.pair, entry.number, entry.point, label, tuple(results), means, **more)

    def summary(self, trials: list[CompleteTrial], **counts: Any) -> DecodingSummary:
        """Return the summary of complete trials, references first."""

        def place(trial: CompleteTrial) -> tuple[bool, bool, int]:
            mode, point = trial.results[0].decoding.mode, trial.point is not None
            order = _ORDER.index(mode) if mode in _ORDER else len(_ORDER)
            return point, bool(trial.drawn), trial.number if point else order

        trials = sorted(trials, key=place)
        results = [result for trial in trials for result in trial.results]
        return DecodingSummary(
            spec=self.spec,
            entries=trials,
            comparisons=comparisons(settings_of(results, usual=self.spec.sampling)),
            matched=[row for trial in trials if (row := self._matched(trial))],
            within_floor=[trial.label for trial in trials if self._within_floor(trial)],
            results=lambda: results,
            **counts,
        )

    def _matched(self, entry: CompleteTrial) -> dict[str, Any] | None:
        """Return the threshold of a point that gives a ratio, and the ratio that it reached."""
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
        inside = self._within_floor(entry)
        marks = {} if inside is None else {"within_floor": inside}
        return {"pair": entry.pair, "criterion": tau.criterion, "tau": tau.tau, **ratios, **marks}

    def _within_floor(self, trial: CompleteTrial) -> bool | None:
        """Return whether rounding alone moves the criterion beyond τ; None if no audit has measured its floor."""
        [result, *_], weights = trial.results, trial.results[0].provenance.get("weights") or {}
        key = f"{weights.get('base')} {result.engine.get('dtype')}"
        spread = stored_spreads(self.store).get(key, {}).get((result.decoding.criterion or "").partition(" ")[0])
        tau = result.decoding.tau
        return None if spread is None or tau is None else abs(tau) < spread

    # The confirmation

    def confirm(
        self, best: CompleteTrial, summary: Any, seeds: Sequence[int], tasks: Sequence[str] | None, limit: int | None,
        run: SweepRun, say: Callable[[str], None],
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
            same = spec.limit if part == spec.part else None  # no problem is left, so use as many as the sweep had
            changes = {"tasks": chosen, "part": part, "limit": limit or same}
            evaluation = spec.evaluation(best.pair, decodings, sampling=spec.sampling.replace(seed=seed), **changes)
            results += evaluate(evaluation, engine=self._open(best.pair), records=self.store)
        self.close()
        for result in results:
            result.write(self.folder.path / "confirm")
            run.child(result)
            say(f"{result.benchmark}  {result.label}  seed {result.sampling.seed}  {score(result)}")
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

    def _open(self, pair: str) -> "Engine":
        """Return the pair's engine; its weights are loaded when something must be decoded."""
        if self._engine is None or self._loaded != pair:
            from rlvr_dir.decode import open_engine

            self.close()
            self._engine = open_engine(resolve(self.spec.pairs[pair]), self.spec.engine, lazily=True)
            self._loaded = pair
        return self._engine


def _names(tasks: Sequence[str]) -> list[str]:
    """Return the names of the benchmarks of some tasks, whose files need not exist here."""
    names = [name for task in tasks for name in GROUPS.get(task, (task,))]
    return list(dict.fromkeys(Path(name.partition("=")[0]).stem if name.endswith(".jsonl") else name for name in names))


def _is_of(result: EvalResult, benchmark: Benchmark) -> bool:
    """Return whether a result has the current benchmark and grader."""
    provenance = result.provenance
    if provenance.get("data") not in (None, benchmark.data):
        return False
    return provenance.get("grader") == grader_name(benchmark.grader)


def _cut(result: EvalResult, context: int | None) -> bool:
    """Return whether a context other than `context` ended a response before its maximum of tokens."""
    cut = result.truncated & (result.n_tokens < result.sampling.max_tokens)
    return bool(cut.any()) and result.engine.get("max_model_len") != context


def metrics(spec: SweepSpec, results: Sequence[EvalResult]) -> dict[str, float]:
    """Return every metric of a trial by its name in sweeps: the unweighted mean over its benchmarks, and its errors.

    Metrics of more samples than there are have no value; greedy decoding has one sample.
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
    """Return the problems of a benchmark on which the best point was not selected; if there are none, the sweep's
    own."""
    if benchmark.name not in {swept.name for swept in preflight_of(spec).values()}:
        return ProblemPart()
    part = spec.part.replace(held_out=True) if spec.confirm is not None else ProblemPart(skip=spec.limit or 0)
    ids, families = [row["id"] for row in benchmark.problems], benchmark.metadata.families
    return part if 0 < len(part.select(ids, families)) < len(ids) else spec.part

"""Gathers what an audit reads of one pair: traces, weights, points and scores, held in the store or decoded now.

Everything goes through the loop of evaluations. So an interrupted audit resumes where it stopped, more samples decode
only what is missing, and an evaluation or a sweep that was there before is used.
"""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas

from rlvr_dir.analysis.expected import expected_replacements
from rlvr_dir.analysis.records import once
from rlvr_dir.analysis.result import Analysis
from rlvr_dir.analysis.score import score
from rlvr_dir.analysis.traced import token_statistics
from rlvr_dir.audit.claim import GROUPS, TEXTS, Frame
from rlvr_dir.audit.interventions import AT, SHARES, WAYS, point_frame, points_at
from rlvr_dir.audit.outcomes import rank_name
from rlvr_dir.audit.tokens import TOP, traced_tokens
from rlvr_dir.audit.weights import weight_changes
from rlvr_dir.checkpoints.low_rank import write_low_rank
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.checkpoints.rewrite import quantised_as
from rlvr_dir.checkpoints.weights import INDEX, tensors_of
from rlvr_dir.config import Decoding, EvalSpec, Pair
from rlvr_dir.config.base import read_jsonl
from rlvr_dir.decode import Engine, open_engine
from rlvr_dir.decode.trace import columns
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.loop import evaluate, opened, run_jobs
from rlvr_dir.evals.plan import PlanRow
from rlvr_dir.evals.plan_jobs import rows_of
from rlvr_dir.evals.traces import criterion_values, rollouts
from rlvr_dir.files import write_file
from rlvr_dir.problems.benchmark import Benchmark, named, presentation_beside, problems_of
from rlvr_dir.problems.data import preflight_of
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark
from rlvr_dir.progress import phase, showing
from rlvr_dir.records import RecordStore, Row, fingerprint
from rlvr_dir.records.store import SPREADS, stored_spreads
from rlvr_dir.results import EvalResult, frame
from rlvr_dir.results.replacements import Replacements
from rlvr_dir.sweep.matched import is_uniform
from rlvr_dir.sweep.taus import gate_of

DEQUANTISED = (
    "RL is quantised ({}). Its weights were dequantised before anything was measured; activations are not quantised "
    "here, although a server of this checkpoint may quantise them too."
)
ROUNDED = "One checkpoint is stored in {0}, the other in a finer type. Both were rounded to {0} to compare weights."
ALONE = (Decoding(mode="base"), Decoding(mode="rl"))


@dataclass(slots=True)
class Evidence:
    """Hold what is known of one pair: a frame by what claims read, and why others are not to be had, by group.

    `same` is True if both models are one. `speed` is in tokens a second; it is None if nothing was decoded. `notes` are
    sentences that a reader of the numbers needs. For the audited pair, if rows of tokens are asked for, `tokens` are
    the token statistics, `replaced` the tokens that change where RL writes base's tokens, and `floors` the frames of
    traces of the same weights, by column.
    """

    pair: Pair
    frames: dict[str, Frame] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    same: bool = False
    speed: float | None = None
    tokens: Analysis | None = None
    replaced: Replacements | None = None
    floors: dict[str, Frame] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Questions:
    """The benchmarks of an audit by task; `unanswered` are those whose right answers are not known."""

    benchmarks: Mapping[str, Benchmark]
    unanswered: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: EvalSpec) -> "Questions":
        """Find the benchmarks of a spec; the lines of a JSONL may lack `answer`, then all of them.

        Raises:
            UserError: what `preflight` refuses.
        """
        own = {task: Path(file) for task in spec.tasks for file in [named(task)[1]] if file is not None}
        bare = {task: rows for task, path in own.items() if (rows := _without_answers(path))}
        answered = tuple(task for task in spec.tasks if task not in bare)
        benchmarks = preflight_of(spec.model_copy(update={"tasks": answered})) if answered or not bare else {}
        for task, rows in bare.items():
            presentation = spec.applied_to(presentation_beside(own[task]))
            benchmarks[task] = Benchmark(named(task)[0], problems_of(rows, task), presentation, str(own[task]))
        foreign = [task for task, benchmark in benchmarks.items() if isinstance(benchmark, LmEvalBenchmark)]
        return cls(benchmarks, (*bare, *foreign))

    def jobs(self, spec: EvalSpec, engine: Engine, store: RecordStore, *, trace: int | None = None) -> list[Job]:
        """Return the jobs of a spec; nothing grades those of tasks without right answers."""
        bare = {self.benchmarks[task].name for task in self.unanswered}
        jobs = jobs_of(spec, engine, trace=trace, benchmarks=self.benchmarks, store=store)
        return [replace(job, golds={}) if job.task in bare else job for job in jobs]


def _without_answers(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Return the problems of a file none of whose lines has an answer, each with its place; else none."""
    rows = read_jsonl(path, ("problem",))
    if any("answer" in row for _, row in rows):
        return []
    return [(f"{path} line {number}", {**row, "answer": "not known"}) for number, row in rows]


def gather(
    spec: EvalSpec,
    groups: Collection[str],
    questions: Questions,
    records: Path,
    *,
    low_rank: Sequence[int] = (),
    models: Path,
    texts: Path | None = None,
    counted: bool = False,
    floor: bool = False,
    progress: bool = True,
) -> Evidence:
    """Return what the claims of some groups read of one pair; decode what the records do not hold.

    Args:
        spec: the pair, the tasks, and how responses are drawn; its decodings do not count.
        groups: of `GROUPS`.
        low_rank: ranks of ΔW whose models are scored, with outcomes.
        models: folder that receives these models.
        texts: a file of given texts, which both models score.
        counted: whether the statistics of tokens are made, too.
        floor: whether base scores the responses beside itself, too.

    Raises:
        UserError: another process writes a record, or the disk is full.
    """
    pair = resolve(spec.pair)
    evidence = Evidence(pair, same=pair.models["base"] == pair.models["rl"])
    if (method := quantised_as(*pair.models["rl"])) is not None:
        evidence.notes.append(DEQUANTISED.format(method))
    if "weights" in groups:
        try:
            with showing(progress), phase("comparing weights"):
                evidence.frames["weights"] = weights = weight_changes(pair)
                evidence.same |= bool((weights.equal == weights.numbers).all())
                rounded = weights.rounded.dropna().unique() if "rounded" in weights else ()
                evidence.notes += [ROUNDED.format(dtype) for dtype in rounded]
        except UserError as error:
            evidence.missing["weights"] = str(error)
    if texts is not None:
        evidence.frames[TEXTS] = score(pair, texts, out=records.parent / "scored", engine=spec.engine)
    decoded = decoded_groups(groups, questions, evidence)
    if not decoded:
        return evidence
    try:
        engine = open_engine(pair, spec.engine, lazily=True)
    except UserError as error:
        evidence.missing |= dict.fromkeys(decoded, str(error))
        return evidence
    results: list[EvalResult] = []
    jobs: list[Job] = []
    right: dict[tuple[str, str, int], bool] = {}
    with showing(progress), closing(engine):
        decoded = traceable_groups(decoded, engine, evidence)
        if {"tokens", "interventions"} & {*decoded}:
            store = RecordStore(records)
            jobs = traced_jobs(spec, engine, questions, store)
            for done in run_jobs(engine, jobs, store, progress=progress):
                evidence.speed = done.tokens_per_second or evidence.speed
                right |= {(done.job.decoding.mode, *key): verdict.correct for key, verdict in done.verdicts.items()}
        if "tokens" in decoded:
            with phase("reading traces"):
                rows = {mode.mode: _rows(jobs, mode, records) for mode in ALONE}
                marks = {*engine.eos_token_ids, *engine.tokenizer.all_special_ids}
                evidence.frames["traces"] = traced_tokens(rows, _families(jobs), right, marks)
                if counted:
                    _count_tokens(evidence, jobs, records, engine)
        if "interventions" in decoded:
            points = intervention_points(spec, engine, records, progress=progress)
            results = _evaluated(spec, [*ALONE, *(decoding for *_, decoding in points)], engine, records, progress)
            by_decoding = {decoding: _responses(results, decoding) for decoding in (*ALONE, *(d for *_, d in points))}
            evidence.frames["points"] = point_frame(points, by_decoding)
        elif "outcomes" in decoded:
            results = _evaluated(spec, ALONE, engine, records, progress)
    if "tokens" in decoded and floor:
        from rlvr_dir.audit.floor import floors, spreads  # which bring torch

        rows = {mode.mode: _rows(jobs, mode, records) for mode in ALONE}
        try:
            with showing(progress), phase("scoring base beside itself"):
                temperature = jobs[0].sampling.temperature or 1.0
                evidence.floors = floors(pair, engine.dtype, spec.engine.device, rows, temperature)
            spread = {f"{fingerprint(*pair.models['base'])} {engine.dtype}": spreads(evidence.floors.values())}
            write_file(records.parent / SPREADS, json.dumps(stored_spreads(records) | spread, indent=1).encode())
        except UserError as error:
            evidence.notes.append(f"The floor was not measured: {error}")
    if "outcomes" in decoded:
        alone = [_responses(results, decoding) for decoding in ALONE]
        ranked = [
            _of_rank(spec, pair, rank, models, records, rescale=rescale, progress=progress)
            for rank in low_rank
            for rescale in (False, True)
        ]
        evidence.frames["scores"] = pandas.concat([*alone, *ranked], ignore_index=True)
    evidence.speed = _speed(results) or evidence.speed
    return evidence


def _count_tokens(evidence: Evidence, jobs: Sequence[Job], records: Path, engine: Engine) -> None:
    """Make the statistics of tokens, and the table of what RL would write in place of base's tokens."""
    tasks = ", ".join(dict.fromkeys(job.task for job in jobs))
    title = f"Base's responses to {tasks}, the {100 * AT:g} % of tokens with the lowest Δ log p"
    evidence.replaced = expected_replacements(lambda: _rows(once(jobs), ALONE[0], records), title, AT, engine.tokenizer)
    with suppress(UserError):  # tasks that are sampled in different ways are not counted together
        evidence.tokens = token_statistics(jobs, records, engine.tokenizer, engine.info()["pair"])


def decoded_groups(groups: Collection[str], questions: Questions, evidence: Evidence) -> list[str]:
    """Return the groups that need responses; note of those that need right answers why they cannot be had."""
    decoded = [group for group in GROUPS if group in groups and group != "weights"]
    if questions.unanswered:
        names = ", ".join(questions.unanswered)
        reason = f"no right answers of {names} are known here; accepted: a JSONL with an `answer` in each line"
        evidence.missing |= {group: reason for group in decoded if group != "tokens"}
        decoded = [group for group in decoded if group == "tokens"]
    return decoded


def traceable_groups(decoded: Sequence[str], engine: Engine, evidence: Evidence) -> list[str]:
    """Return the groups that this pair's answers can be traced for; note of the others why not."""
    shared, size = engine.checkpoints.shared, engine.checkpoints.vocab_size
    if shared == size > columns(TOP):
        return [*decoded]
    why = f"RL has {size - shared} tokens that base does not know, which have no divergence" if shared < size else ""
    why = why or f"a vocabulary of {size} tokens is too small for the {TOP} most likely ones"
    evidence.missing |= {group: f"{why}; accepted: another pair" for group in decoded if group != "outcomes"}
    return [group for group in decoded if group == "outcomes"]


def traced_jobs(spec: EvalSpec, engine: Engine, questions: Questions, store: RecordStore) -> list[Job]:
    """Return the jobs of base's and RL's own answers, traced."""
    return questions.jobs(spec.model_copy(update={"decodings": ALONE}), engine, store, trace=TOP)


def intervention_points(
    spec: EvalSpec, engine: Engine, records: Path, *, progress: bool
) -> list[tuple[str, float, Decoding]]:
    """Return every way at every share, its threshold found on base's and RL's own answers, which are traced."""
    alone = spec.model_copy(update={"decodings": ALONE})
    gates = [gate for way in WAYS if not is_uniform(gate := gate_of(way))]
    return points_at(criterion_values(alone, records, gates=gates, engine=engine, progress=progress))


def _rows(jobs: Sequence[Job], decoding: Decoding, records: Path) -> Iterator[Row]:
    return (row for job in jobs if job.decoding == decoding for row in rollouts(job, records))


def _families(jobs: Sequence[Job]) -> dict[str, str]:
    """Return the family of each problem that has one, both named after their tasks."""
    return {
        f"{job.record_task}/{problem}": f"{job.record_task}/{family}"
        for job in jobs
        for problem, family in (job.benchmark.families or {}).items()
    }


def _responses(results: Sequence[EvalResult], decoding: Decoding) -> Frame:
    """Return the responses of a decoding, with the number of its answer in each problem (`vote`)."""
    chosen = [result for result in results if result.decoding == decoding]
    votes = [np.full(result.n_tokens.shape, -1) if result.votes is None else result.votes for result in chosen]
    return frame(chosen).assign(vote=np.concatenate([of_result.ravel() for of_result in votes]))


def _evaluated(
    spec: EvalSpec, decodings: Sequence[Decoding], engine: Engine, records: Path, progress: bool
) -> list[EvalResult]:
    evaluation = spec.model_copy(update={"decodings": tuple(dict.fromkeys(decodings))})
    return evaluate(evaluation, engine=engine, records=records, progress=progress)


def _of_rank(
    spec: EvalSpec, pair: Pair, rank: int, models: Path, records: Path, *, rescale: bool, progress: bool
) -> Frame:
    """Return the responses of base with the part of ΔW of a rank, written where it is not there yet."""
    weights = digest_of([fingerprint(*model) for model in pair.models.values()])
    folder = models / f"{rank_name(rank, rescale).replace(' ', '-')}-{weights}"
    if not (folder / INDEX).is_file() or {t.dtype for t in tensors_of(str(folder)).values()} & {"BF16", "F16"}:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier version: rounded, so of no low rank
        with showing(progress), phase(f"writing rank {rank}"):
            write_low_rank(pair, rank, folder, rescale=rescale)
    engine = spec.engine.model_copy(update={"dtype": "float32"})  # rounded, its change would have full rank
    of_rank = spec.model_copy(update={"pair": pair.replace(rl=str(folder), rl_revision=None), "engine": engine})
    with showing(progress), opened(of_rank) as engine:
        results = _evaluated(of_rank, ALONE[1:], engine, records, progress)
    return frame(results).assign(decoding=rank_name(rank, rescale))


def _speed(results: Sequence[EvalResult]) -> float | None:
    """Return the tokens a second of those results that were decoded now."""
    timed = [result for result in results if result.seconds]
    return sum(float(result.n_tokens.sum()) for result in timed) / sum(r.seconds for r in timed) if timed else None


# What is left to decode


def planned(spec: EvalSpec, groups: Collection[str], questions: Questions, records: Path) -> list[PlanRow]:
    """Return what each decoding of one pair needs and has; load no weights, decode nothing.

    Raises:
        UserError: the two models do not fit together.
    """
    evidence = Evidence(resolve(spec.pair))
    decoded = decoded_groups(groups, questions, evidence)
    if not decoded:
        return []
    store = RecordStore(records)
    with closing(open_engine(evidence.pair, spec.engine, lazily=True)) as engine:
        decoded = traceable_groups(decoded, engine, evidence)
        alone = spec.model_copy(update={"decodings": ALONE})
        jobs = questions.jobs(alone, engine, store, trace=None if decoded == ["outcomes"] else TOP)
        rows = rows_of(jobs, engine, store)
        if "interventions" not in decoded:
            return rows
        if any(row.missing for row in rows):  # by which thresholds are found
            each, most = rows[0].responses, max(job.sampling.max_tokens for job in jobs)
            count = len(WAYS) * len(SHARES) * each
            label = f"{len(WAYS) * len(SHARES)} interventions, whose thresholds the rows above give"
            return [*rows, PlanRow("", label, count, 0, count * min(most, engine.context.length))]
        points = intervention_points(spec, engine, records, progress=False)
        decodings = tuple(dict.fromkeys(decoding for *_, decoding in points))
        jobs = questions.jobs(spec.model_copy(update={"decodings": decodings}), engine, store)
        return rows + rows_of(jobs, engine, store)

"""Compute a result from a record and a grader. Any grader can be used later, without an engine.

A record contains its verdicts, so its own result needs nothing else. Gold answers are only needed for another judge, or
for responses that were never graded.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.config import Presentation
from rlvr_dir.config.evaluation import is_task_file
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.grading import DEFAULT_GRADER, Gold, grader_name
from rlvr_dir.problems.benchmark import LM_EVAL, TWINS, Benchmark, BenchmarkMetadata
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import Record, RecordStore, judge_name
from rlvr_dir.records.commands import counts, findings_of, summary_of
from rlvr_dir.records.verdicts import versions
from rlvr_dir.results.result import EvalResult, NoResultError, lm_eval_refusal, result_from

_RECORD = re.compile(r"[0-9a-f]{16}/[A-Za-z0-9_][A-Za-z0-9._-]*")  # below its store, anywhere in the path


def results_of_record(record: Record, **options: Any) -> list[EvalResult]:
    """Return the result of each task that a record was judged for; see `result_of_record`."""
    return [result_of_record(record, task=task, **options) for task in _tasks(record)]


def _tasks(record: Record) -> list[str]:
    """Return the tasks that a record was judged for, of the possible ones: its own, and others that grade its
    responses."""
    judged = [task for task in record.tasks if TWINS.get(task) == record.task]
    return [record.task, *judged] if record.task in record.tasks or not judged else judged


def result_of_record(
    record: Record,
    *,
    task: str | None = None,
    grader: str | None = None,
    data_dir: str | None = None,
    partial: bool = False,
    problems: Sequence[str] | None = None,
    samples: int | None = None,
    judge: str | None = None,
) -> EvalResult:
    """Return the result of a record, by its verdicts. Responses without one are graded now. Nothing is changed.

    `task` None is the record's own; another one grades its responses by its own answers. `grader` None is the grader
    that was requested last. `judge` is an exact judge, with its version; then nothing is graded now.

    `problems` (ids) and `samples` select a part. By default it is everything that its commands finished. If that is not
    the same number of samples for every problem, it is the last request. Responses that an interrupted command left are
    not used, because they finished early and are short. With `partial`, an unfinished record gives the first k samples
    of every problem of the last request, with the largest possible k. This does not bias the result, because which
    samples come first does not depend on what was decoded. The result's `partial` describes the part.

    Raises:
        UserError: Samples are missing and `partial` was not requested (or not one sample of every problem exists), or
            something must be graded and the gold answers are not known (`NoResultError`).
    """
    if record.config is None:
        raise DamagedError(f"record {record.name}: {'; '.join(record.damage)}; run its command again")
    task = task or record.task
    if record.metadata.grader == LM_EVAL:
        raise lm_eval_refusal(task, "compared")
    names, width, part = _extent(record, problems, samples, partial)
    stored_only, keys = judge is not None, [(name, k) for name in names for k in range(width)]
    grader = judge.split("+")[0] if judge else grader_name(grader or record.metadata.grader or DEFAULT_GRADER)
    judge = judge or judge_name(grader, task, record.task)
    if (stored := record.verdicts(judge)).keys() >= {*keys}:
        verdicts = {key: stored[key].verdict for key in keys}
    elif stored_only:
        raise UserError(f"did not grade every response of record {record.name}", argument="grader", value=judge)
    else:
        verdicts = record.grade(_golds(record, task, data_dir), judge, keys)
    benchmark, graded_with = _benchmark_metadata(record, task, data_dir), record.metadata.graded_with.get(judge)
    made = provenance(record, benchmark, grader, graded_with)
    made |= {"partial": part} if part else {}
    result = result_from(record, task, names, width, verdicts=verdicts, provenance=made)
    assert isinstance(result, EvalResult)
    return result


def provenance(
    record: Record, benchmark: BenchmarkMetadata, grader: str, graded_with: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return how the responses of a record were made, and who graded them, with which versions."""
    config, metadata = record.config, record.metadata
    assert config is not None
    stored = {} if record.in_memory else {"record": record.name, "records": str(record.folder.parents[1].resolve())}
    fields = {
        "settings": record.record_hash,
        **config.provenance,
        **stored,
        "chat": metadata.chat,
        **benchmark.provenance(),
        "engine": {**config.engine, "pair": {"base": None, "rl": None, **metadata.models}},
        "grader": grader,
        "graded_with": graded_with or versions(grader),
    }
    return {name: value for name, value in fields.items() if value is not None}


def judged(record: Record, judge: str) -> dict[str, Any]:
    """Return the scores of a record by one judge.

    Raises:
        UserError: It is incomplete, or not completely graded.
    """
    result = result_of_record(record, task=judge.partition("+")[2] or None, judge=judge)
    scores: dict[str, Any] = {**result.metrics(), "problems": len(result.problem_ids)}
    return {name: value for name, value in scores.items() if math.isfinite(value)}  # one sample has no sampling error


def show_record(store: str | Path, name: str) -> dict[str, Any]:
    """Return everything about one record except its responses: settings, sizes, damage, and each grader's scores."""
    record, scores = RecordStore(store).record(name), dict[str, Any]()
    for judge in record.judges:
        try:
            scores[judge] = judged(record, judge)
        except UserError as error:  # incomplete, or not completely graded: report it, never average
            scores[judge] = str(error)
    return {
        **summary_of(record),
        "config": record.config.model_dump(mode="json") if record.config else None,
        "about": record.metadata.model_dump(mode="json", exclude={"config"}, exclude_none=True),
        "counts": counts(record),
        "scores": scores,
        "damage": findings_of(record.read(whole=True)),
    }


def record_of(result: EvalResult) -> Record | None:
    """Return the record that a result was made from; None if there was none, or if it is gone."""
    folder, name = result.provenance.get("records"), str(result.provenance.get("record"))
    if not folder or not _RECORD.fullmatch(name):
        return None
    try:
        return RecordStore(folder).read(*name.split("/", 1))
    except UserError:
        return None


def regraded(result: EvalResult, *, grader: str | None = None, data_dir: str | None = None, **_: Any) -> EvalResult:
    """Return a result by the requested grader; None means its own.

    Raises:
        UserError: It is another grader, and the responses are not available.
    """
    own = result.provenance.get("grader")
    if grader is None or grader_name(grader) == own:
        return result
    if (record := record_of(result)) is None:
        raise UserError(
            (
                f"{result.task}, {result.label}: graded by {own}, and its responses are not available to "
                f"be graded by {grader}: it has no record"
            ),
            accepted="its own grader",
        )
    kwargs: dict[str, Any] = {"task": result.task, "grader": grader, "data_dir": data_dir}
    regraded_result = result_of_record(record, **kwargs, problems=result.problem_ids, samples=result.samples)
    return (
        regraded_result.replace(provenance={**regraded_result.provenance, "partial": result.partial})
        if result.partial
        else regraded_result
    )


def _benchmark_metadata(record: Record, task: str, data_dir: str | None) -> BenchmarkMetadata:
    """Return what a record contains about its benchmark."""
    metadata, config = record.metadata, record.config
    if config is None:
        return BenchmarkMetadata()
    presentation = metadata.presentation.model_dump(mode="json", exclude_none=True) if metadata.presentation else None
    try:
        data = config.data if task == record.task else benchmark_of(record, task, data_dir=data_dir).data
    except NoResultError:  # the verdicts are stored nevertheless
        data = None
    return BenchmarkMetadata(data, metadata.problems, metadata.file, presentation, metadata.grader or DEFAULT_GRADER)


def _extent(
    record: Record, problems: Sequence[str] | None, samples: int | None, partial: bool
) -> tuple[list[str], int, str | None]:
    """Return the problems, how many samples of each, and a description of the part if they are not all."""
    requested, first, done = record.metadata.asked, record.first, record.complete
    wanted = samples or (requested.samples if requested else 1)
    if problems is not None:
        latest = [name if name in first else f"{record.task}/{name}" for name in problems]
    elif requested is None:
        raise NoResultError(
            f"record {record.name} holds nothing that was asked to be scored (`rlvr-dir view` decodes to look only); "
            "run its command"
        )
    else:
        latest, width = list(requested.names), min(done.values(), default=0)
        if set(latest) <= done.keys() and width >= wanted:
            return list(dict.fromkeys((*latest, *done))), samples or width, None
    width = min((first.get(name, 0) for name in latest), default=0)
    if latest and width >= wanted:
        return latest, wanted, None
    if not partial or problems is not None:
        available = sum(sample < wanted for name, sample in record.rows if name in set(latest))
        raise NoResultError(
            f"record {record.name} has {available} of {len(latest) * wanted} rollouts, and an average of them would be "
            "of the short ones; run its command again, or ask for partial results (--partial), which are marked"
        )
    if not width:
        lacking = sum(not first.get(name) for name in latest)
        raise NoResultError(
            f"record {record.name} has no sample yet of {lacking} of {len(latest)} problems, so not even a partial "
            "result; run its command again"
        )
    return latest, width, f"first {width} of {wanted} samples"


def grade_again(
    record: Record, *, grader: str = DEFAULT_GRADER, data_dir: str | None = None
) -> list[tuple[str, int, list[dict[str, Any]]]]:
    """Grade everything in a record, for each task that it was judged for, and store the verdicts. It is read once.

    Returns:
        For each task the judge, the number of verdicts, and the changed ones (`problem`, `sample`, `gold`, `answer`,
            and the kinds `before`, None if there was none, and `now`). They are compared with the last verdicts of any
            version of the judge; those of older versions are kept.

    Raises:
        UserError: The gold answers are not known, the grader is unknown, another process writes the record, or the disk
            is full.
    """
    graded = []
    with record.lock():
        for task in _tasks(record):
            gold, judge = _golds(record, task, data_dir), judge_name(grader_name(grader), task, record.task)
            before, now = record.latest_verdicts(judge), record.grade(gold, judge)
            changes = []
            for (problem, sample), verdict in sorted(now.items()):
                kind = before[problem, sample].kind if (problem, sample) in before else None
                change = {"problem": problem, "sample": sample, "gold": gold[problem], "answer": verdict.answer}
                changes += [{**change, "before": kind, "now": verdict.kind}] if kind != verdict.kind else []
            graded.append((judge, len(now), changes))
    return graded


def _golds(record: Record, task: str, data_dir: str | None) -> Mapping[str, Gold]:
    """Return the gold answers to a record's problems: the benchmark's, or else those in the verdicts."""
    verdicts = [record.verdicts(judge) for judge in record.judges if ("+" in judge) == (task != record.task)]
    kept = {verdict.problem: verdict.gold for by_key in verdicts for verdict in by_key.values()}
    try:
        benchmark = benchmark_of(record, task, data_dir=data_dir)
    except NoResultError:
        if not {problem for problem, _ in record.rows} <= kept.keys():
            raise
        return kept
    return {f"{record.task}/{key}": gold for key, gold in benchmark.golds.items()}


def benchmark_of(record: Record, task: str | None = None, *, data_dir: str | None = None) -> Benchmark:
    """Return the benchmark that a record was decoded from, or another `task` with the same questions.

    A user's own file is read if it is below the current folder, or in `data_dir`. Other files are not read just because
    a record, possibly of unknown origin, names them.

    Raises:
        NoResultError: It is not available, differs from the one that the record was decoded from, or would run code.
    """
    task, config, file = task or record.task, record.config, record.metadata.file
    if is_task_file(str(file or task)):
        raise NoResultError(f"record {record.name}: no code is run because a record names it; run its command again")
    try:
        name = f"{task}={place}" if file and (place := _place(task, file, data_dir)) else task
        presentation = record.metadata.presentation
        benchmark = find_benchmark(
            name, data_dir, Presentation.from_record(presentation.model_dump(mode="json") if presentation else {})
        )
    except UserError as error:
        raise NoResultError(f"record {record.name}: its right answers are not available ({error})") from None
    here = benchmark.metadata.of_data or benchmark.data
    if config is not None and config.data not in (None, here):
        raise NoResultError(
            f"record {record.name} was decoded from other questions of {task} than are here (data {config.data} and "
            f"{here}), so these gold answers are not its own; give the folder of its data as --data-dir"
        )
    return benchmark


def _place(task: str, file: str, data_dir: str | None) -> Path | None:
    """Return the path of the file that a record names; None: by the name of the task.

    Raises:
        UserError: It is not below the current folder.
    """
    if data_dir:
        folder = Path(data_dir).expanduser()
        path = folder / Path(file).name
        return path if path.is_file() and not (folder / f"{task}.jsonl").is_file() else None
    here = Path.cwd()
    path = Path(os.path.normpath(here / file))
    if path.is_relative_to(here) and path.resolve().is_relative_to(here.resolve()):
        return path
    raise UserError(
        f"The record names {file}, which is not read because it is not below the current folder",
        hint="Pass its folder as --data-dir.",
    )

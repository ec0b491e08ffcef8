"""Choose what a report shows token by token: some problems of each benchmark, up to five decodings side by side."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rlvr_dir.errors import UserError
from rlvr_dir.records import Record
from rlvr_dir.report.groups import grouped
from rlvr_dir.report.viewer import changed_first, stored_answers, viewer_data, viewer_fragment
from rlvr_dir.results.from_records import record_of, result_of_record
from rlvr_dir.results.replacements import Replacements, all_replacements
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.trainings import called, of_training, run_of

MODES = ("base", "rl", "replace", "reject", "veto", "resample", "extrapolate")  # in this order


def token_viewers(
    results: Sequence[EvalResult], problems: int, tokenizer: Callable[[Sequence[Record]], Any]
) -> list[tuple[str, str]]:
    """Return (title, HTML) of a viewer for each pair and benchmark whose records are available.

    Base, RL, and the best gated decoding of each mode are shown. Problems whose first responses are partly right come
    first, and of these the problems with a changed token. Of a training's seeds the first is shown. `tokenizer` returns
    the tokenizer of some records, or None.
    """
    viewers: list[tuple[str, str]] = []
    for group in grouped(_without_seeds(results)) if problems else ():
        for task in dict.fromkeys(result.task for result in group.results):
            chosen = _chosen([result for result in group.results if result.task == task])
            pairs = [(result, record) for result in chosen if (record := record_of(result)) is not None]
            if not pairs:
                continue
            stored = [record for _, record in pairs]
            keys = _differing_problems([result for result, _ in pairs], changed_first(stored))[:problems]
            if not keys:
                continue
            data = viewer_data(stored_answers(stored, keys, task=task), tokenizer(stored))
            name = f"tokens-{len(viewers)}"
            viewers.append((f"{task}, {group.pair}", viewer_fragment(data, name, assets=not viewers)))
    return viewers


def replacements_shown(
    results: Sequence[EvalResult], tokenizer: Callable[[Sequence[Record]], Any]
) -> list[Replacements]:
    """Return the replacements of the gated results that `token_viewers` shows."""
    chosen = [
        result
        for group in grouped(_without_seeds(results))
        for task in dict.fromkeys(result.task for result in group.results)
        for result in _chosen([result for result in group.results if result.task == task])
    ]
    return all_replacements(chosen, tokenizer)


def shown_records(records: Sequence[Record], most: int = 6) -> list[Record]:
    """Return the records of one task that are shown side by side: those that match the newest one, base and RL first.

    Records match if their models, problems, sampling and seed are the same. If there are more than `most`, the best
    decoding of each mode is chosen.
    """
    newest = max(records, key=lambda record: record.path.stat().st_mtime)
    alike = [record for record in records if _compared(record) == _compared(newest)]
    alike.sort(key=lambda record: MODES.index(record.config.decoding.mode) if record.config else len(MODES))
    if len(alike) <= most:
        return alike
    results = {}
    for record in alike:
        with suppress(UserError):  # incomplete, or never graded
            results[record.name] = result_of_record(record, partial=True)
    kept = {id(result) for result in _chosen([*results.values()])}
    return [record for record in alike if id(results.get(record.name)) in kept] or alike[:most]


def _compared(record: Record) -> object:
    """Return what two records must have in common to be shown side by side."""
    config = record.config
    return None if config is None else (config.weights, config.provenance["shared"], config.sampling.seed)


def _without_seeds(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Return the results, but only the first seed of each training."""
    first: dict[str, int | str] = {}
    for result in results:
        first.setdefault(called(result), run_of(result))
    return [result for result in results if not of_training(result) or run_of(result) == first[called(result)]]


def _chosen(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Choose one result per mode; of several the best."""
    best: dict[str, EvalResult] = {}
    for result in results:
        mode = result.decoding.mode
        if mode not in best or result.avg > best[mode].avg:
            best[mode] = result
    return [best[mode] for mode in MODES if mode in best]


def _differing_problems(results: Sequence[EvalResult], problems: Sequence[str]) -> list[str]:
    """Return the problems, beginning with those of which some first answers are right and others wrong."""
    right = [dict(zip(result.problem_ids, result.correct[:, 0].tolist(), strict=True)) for result in results]
    keys = {problem: problem.partition("/")[2] for problem in problems}
    return sorted(problems, key=lambda problem: len({row.get(keys[problem]) for row in right}) < 2)

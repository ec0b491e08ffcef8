"""What a report shows token by token: some problems of each benchmark, up to five ways of decoding side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from rlvr_dir.records import Record
from rlvr_dir.report.groups import grouped
from rlvr_dir.report.viewer import common_problems, stored_answers, viewer_data, viewer_fragment
from rlvr_dir.results.from_records import record_of
from rlvr_dir.results.replacements import Replacements, all_replacements
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.trainings import called, of_training, run_of


def token_viewers(
    results: Sequence[EvalResult], problems: int, tokenizer: Callable[[Sequence[Record]], Any]
) -> list[tuple[str, str]]:
    """Return (title, HTML) of a viewer for each pair and benchmark whose records are at hand.

    Base, RL, and of each kind of gated decoding the best; first the problems whose first answers differ in
    being right. Of a training's seeds the first is shown. `tokenizer` gives that of some records, or None.
    """
    viewers: list[tuple[str, str]] = []
    for group in grouped(_without_seeds(results)) if problems else ():
        for task in dict.fromkeys(result.task for result in group.results):
            chosen = _chosen([result for result in group.results if result.task == task])
            pairs = [(result, record) for result in chosen if (record := record_of(result)) is not None]
            if not pairs:
                continue
            stored = [record for _, record in pairs]
            keys = _differing_problems([result for result, _ in pairs], common_problems(stored))[:problems]
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


def _without_seeds(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Return the results, of each training those of the first seed alone."""
    first: dict[str, int | str] = {}
    for result in results:
        first.setdefault(called(result), run_of(result))
    return [result for result in results if not of_training(result) or run_of(result) == first[called(result)]]


def _chosen(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Choose one result a mode, of several the best."""
    best: dict[str, EvalResult] = {}
    for result in results:
        mode = result.decoding.mode
        if mode not in best or result.avg > best[mode].avg:
            best[mode] = result
    return [
        best[mode] for mode in ("base", "rl", "replace", "reject", "veto", "resample", "extrapolate") if mode in best
    ]


def _differing_problems(results: Sequence[EvalResult], problems: Sequence[str]) -> list[str]:
    """Return the problems, those first on which the first answers differ in being right."""
    right = [dict(zip(result.problem_ids, result.correct[:, 0].tolist(), strict=True)) for result in results]
    keys = {problem: problem.partition("/")[2] for problem in problems}
    return sorted(problems, key=lambda problem: len({row.get(keys[problem]) for row in right}) < 2)

"""Comparing finished results: paired differences with intervals, p values corrected over the whole table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import stats
from harness.errors import UserError
from harness.evals.from_records import result_of_record
from harness.evals.result import EvalResult, asked_hash
from harness.evals.show import markdown_table
from harness.records import RecordStore
from harness.records.store import is_record


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: `result` minus `reference` on the same problems. `holm_p` is corrected over the rows of its table."""

    result: EvalResult
    reference: EvalResult
    difference: stats.PairedDifference
    holm_p: float


def read_results(
    places: Sequence[str | Path],
    store: str | Path | None = None,
    *,
    run: Callable[[str], EvalResult] | None = None,
    **how: Any,
) -> list[EvalResult]:
    """Results from files and folders that `rlvr-dir eval` and `demo` wrote, from records, and from runs.

    A place is a result file, a folder of them, a record's folder, a store of records, the beginning of a record's hash
    (with or without `/TASK`) in `store`, or `run:ID`, which `run` looks up. `how` goes to `result_of_record`.

    Raises:
        UserError: a place that is none of these, a file that is no result, or a record that is not complete.
    """
    found = [result for place in places for result in _read(str(place), store, run, how)]
    if not found:
        raise UserError("results: nothing to read there; accepted: files or folders that eval has written, or records")
    return found


def _read(
    place: str, store: str | Path | None, run: Callable[[str], EvalResult] | None, how: dict[str, Any]
) -> list[EvalResult]:
    path = Path(place).expanduser()
    if place.startswith("run:") and run is not None:
        return [run(place.removeprefix("run:"))]
    if path.is_file():
        return [_of_file(path)]
    if path.is_dir():
        if is_record(path):
            return [result_of_record(RecordStore(path.parents[1]).read(path.parent.name, path.name), **how)]
        if files := sorted(path.glob("*.json"), key=lambda file: (file.stat().st_mtime, file.name)):
            return _newest([_of_file(file) for file in files])
        names = [*RecordStore(path).names(), *RecordStore(path / "records").names()]
        at = path if RecordStore(path).names() else path / "records"
        return [result_of_record(RecordStore(at).read(*name), **how) for name in names]
    if store is not None and RecordStore(store).names():
        return [result_of_record(RecordStore(store).read(*name), **how) for name in RecordStore(store).find(place)]
    raise UserError(f"results: {place!r} does not exist; accepted: result files or folders of them, records, or run:ID")


def _newest(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Without what a newer one was graded in place of: results that differ in the version of the grader only."""
    kept: dict[str, EvalResult] = {}
    for result in results:
        by_name = {**result.provenance, "graded_with": result.provenance.get("grader")}
        asked = asked_hash(result.task, result.decoding, result.sampling, result.problem_ids, by_name)
        kept.pop(asked, None)
        kept[asked] = result
    return list(kept.values())


def _of_file(file: Path) -> EvalResult:
    try:
        return EvalResult.from_json(file.read_text())
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"results: {str(file)!r} is not a result of rlvr-dir ({type(error).__name__})") from None


def compare(results: Sequence[EvalResult], reference: str | None = None) -> list[Comparison]:
    """Each result minus the one whose decoding's label (or mode) is `reference`, benchmark by benchmark.

    None takes `rl` where every benchmark has one such result, else the first result of each benchmark; and each
    extrapolation minus its own gamma = 0 control as well, where that is among the results.

    Holm's correction runs over all rows returned: they are one table.

    Raises:
        UserError: no or several results of a benchmark are the reference, or problems or samplings do not match.
    """
    rows: list[_Row] = []
    tasks = list(dict.fromkeys(result.task for result in results))
    default = reference is None
    if default and all(sum(r.decoding.mode == "rl" for r in results if r.task == t) == 1 for t in tasks):
        reference = "rl"
    for task in tasks:
        mine = [result for result in results if result.task == task]
        if reference is None:
            rows += [_pair(result, mine[0]) for result in mine[1:]]
            rows += _controlled(mine, mine[0])
            continue
        chosen = [result for result in mine if reference in (result.decoding.label(), result.decoding.mode)]
        exact = [result for result in mine if result.decoding.label() == reference] or chosen
        if len(exact) != 1:
            labels = ", ".join(repr(result.decoding.label()) for result in mine)
            count = "no" if not exact else str(len(exact))
            raise UserError(f"against={reference!r} names {count} result of {task}; accepted: one of {labels}")
        rows += [_pair(result, exact[0]) for result in mine if result is not exact[0]]
        rows += _controlled(mine, exact[0]) if default else []
    if not rows:
        raise UserError("results: only the reference is there; give at least two results of one benchmark")
    corrected = stats.holm([difference.p for _, _, difference in rows])
    return [Comparison(*row, holm_p=float(p)) for row, p in zip(rows, corrected, strict=True)]


_Row = tuple[EvalResult, EvalResult, stats.PairedDifference]


def _controlled(results: Sequence[EvalResult], reference: EvalResult) -> list[_Row]:
    """Each extrapolation minus its gamma = 0 control, unless that is the reference anyway."""
    by = {result.decoding: result for result in results}
    pairs = [(r, by.get(r.decoding.control())) for r in results if r.decoding.mode == "extrapolate"]
    return [_pair(extra, control) for extra, control in pairs if control is not None and control is not reference]


def _pair(result: EvalResult, reference: EvalResult) -> _Row:
    _same_sampling(result, reference)
    return result, reference, result.minus(reference)


def _same_sampling(one: EvalResult, other: EvalResult) -> None:
    """Refuses to compare what was drawn differently; more samples or another seed are no difference of method."""
    for name in ("temperature", "top_p", "max_tokens"):
        ours, theirs = getattr(one.sampling, name), getattr(other.sampling, name)
        if ours != theirs:
            raise UserError(f"{name} of {one.task} differs ({ours} and {theirs}); such results cannot be compared")


def markdown(rows: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table, in percentage points."""
    cells = []
    for row in rows:
        d = row.difference
        cells.append(
            [
                row.result.task,
                row.result.label,
                f"{row.reference.label} ({100 * row.reference.avg:.2f})",
                f"{100 * row.result.avg:.2f}",
                f"{100 * d.mean:+.2f}",
                f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]",
                f"{d.p:.3g}",
                f"{row.holm_p:.3g}",
            ]
        )
    head = ["benchmark", "decoding", "minus", "Avg", "difference", "95 % t interval", "p", "p (Holm)"]
    lines = [markdown_table(head, cells, left=3), ""]
    lines += [f"Paired by problem; Holm's correction over these {len(rows)} comparisons."]
    if any(result.partial for row in rows for result in (row.result, row.reference)):
        lines += ["Partial results are in it: they are marked, and will change when the rest is decoded."]
    return "\n".join(lines)

"""Comparing finished results: paired differences with intervals, p values corrected over the whole table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import stats
from harness.errors import UserError
from harness.evals.result import EvalResult


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: `result` minus `reference` on the same problems. `holm_p` is corrected over the rows of its table."""

    result: EvalResult
    reference: EvalResult
    difference: stats.PairedDifference
    holm_p: float


def read_results(paths: Sequence[Path]) -> list[EvalResult]:
    """The results that `rlvr-dir eval` and `demo` wrote, from files or from all JSON files of folders.

    Raises:
        UserError: a path that does not exist, or a file that is no result.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("*.json"))
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"results: {str(path)!r} does not exist; accepted: files or folders that eval has written")
    found = []
    for file in files:
        try:
            found.append(EvalResult.from_json(file.read_text()))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"results: {str(file)!r} is not a result of rlvr-dir ({type(error).__name__})") from None
    if not found:
        raise UserError("results: nothing to read there; accepted: files or folders that eval has written")
    return found


def compare(results: Sequence[EvalResult], reference: str) -> list[Comparison]:
    """Each result minus the one whose decoding's label (or mode) is `reference`, benchmark by benchmark.

    Holm's correction runs over all rows returned: they are one table.

    Raises:
        UserError: no or several results of a benchmark are the reference, or problems or samplings do not match.
    """
    rows: list[tuple[EvalResult, EvalResult, stats.PairedDifference]] = []
    for task in dict.fromkeys(result.task for result in results):
        mine = [result for result in results if result.task == task]
        chosen = [result for result in mine if reference in (result.decoding.label(), result.decoding.mode)]
        exact = [result for result in mine if result.decoding.label() == reference] or chosen
        if len(exact) != 1:
            labels = ", ".join(repr(result.decoding.label()) for result in mine)
            count = "no" if not exact else str(len(exact))
            raise UserError(f"against={reference!r} names {count} result of {task}; accepted: one of {labels}")
        for result in mine:
            if result is not exact[0]:
                _same_sampling(result, exact[0])
                rows.append((result, exact[0], result.minus(exact[0])))
    if not rows:
        raise UserError("results: only the reference is there; give at least two results of one benchmark")
    corrected = stats.holm([difference.p for _, _, difference in rows])
    return [Comparison(*row, holm_p=float(p)) for row, p in zip(rows, corrected, strict=True)]


def _same_sampling(one: EvalResult, other: EvalResult) -> None:
    """Refuses to compare what was drawn differently; more samples or another seed are no difference of method."""
    for name in ("temperature", "top_p", "max_tokens"):
        ours, theirs = getattr(one.sampling, name), getattr(other.sampling, name)
        if ours != theirs:
            raise UserError(f"{name} of {one.task} differs ({ours} and {theirs}); such results cannot be compared")


def markdown(rows: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table, in percentage points."""
    lines = [
        "| benchmark | decoding | Avg | minus | difference | 95 % t interval | p | p (Holm) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        d = row.difference
        lines.append(
            f"| {row.result.task} | {row.result.decoding.label()} | {100 * row.result.avg:.2f} "
            f"| {row.reference.decoding.label()} ({100 * row.reference.avg:.2f}) | {100 * d.mean:+.2f} "
            f"| [{100 * d.low:+.2f}, {100 * d.high:+.2f}] | {d.p:.3g} | {row.holm_p:.3g} |"
        )
    lines += ["", f"Paired by problem; Holm's correction over these {len(rows)} comparisons."]
    return "\n".join(lines)

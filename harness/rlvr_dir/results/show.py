"""Show results as text: one line, and one aligned Markdown table, in percent."""

from collections.abc import Mapping, Sequence

from rlvr_dir.markdown import markdown_table
from rlvr_dir.results.result import EvalResult, LmEvalResult, TaskResult
from rlvr_dir.stats.metrics import COLUMNS, Metric


def score(result: TaskResult) -> str:
    """Return Avg@n with its error over problems, in percent: `Avg@32 57.60 ± 5.43`; for lm-eval tasks their metrics."""
    if isinstance(result, LmEvalResult):
        return ", ".join(f"{name} {_own_units(result, name)}" for name in result.metric_names)
    assert isinstance(result, EvalResult)
    return f"Avg@{result.samples} {_with_error(100 * result.avg, 100 * result.standard_error, 2)}"


def percent(share: float | None, digits: int = 1, blank: str = "") -> str:
    """Return a share in percent as text; an unknown one is `blank`."""
    return blank if share is None else f"{100 * share:.{digits}f} %"


def _with_error(value: float, error: float, digits: int) -> str:
    """Return a score with its error. A single problem has no error."""
    return f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if error == error else "")


def _own_units(result: LmEvalResult, name: str) -> str:
    """Return a metric of lm-eval with the error next to it."""
    metric, stroke, named = name.partition("/")
    return _with_error(result.scores[name], result.scores.get(f"{metric}_stderr{stroke}{named}", float("nan")), 4)


def tables(results: Sequence[EvalResult | LmEvalResult]) -> str:
    """Return a table of our benchmarks, in percent, and one of lm-eval tasks, in their units; leave out empty ones."""
    ours = [result for result in results if isinstance(result, EvalResult)]
    others = [result for result in results if isinstance(result, LmEvalResult)]
    return "\n\n".join([*([table(ours)] if ours else []), *([lm_eval_table(others)] if others else [])])


NAMED = 3  # results that a warning names; further ones are counted


def warnings(results: Sequence[TaskResult]) -> list[str]:
    """Return a warning if at least half of a result's responses have no answer or are cut, with what to try."""
    return [f"warning: {sentence}" for sentence in shortfalls(results)]


def shortfalls(results: Sequence[TaskResult]) -> list[str]:
    """Return these warnings for a page, the results with the largest shares first."""
    cases = [
        ("no_box_share", "contain no final answer", "show its form by --examples or --prompt (`rlvr-dir eval --help`)"),
        ("truncated_share", "are cut", "allow longer ones (--max-tokens; model argument max_tokens=N of lm_eval)"),
    ]
    sentences = []
    for name, fault, advice in cases:
        by_label = {f"{result.label} on {result.benchmark}": result.metrics().get(name, 0.0) for result in results}
        largest = sorted(((share, label) for label, share in by_label.items() if share >= 0.5), key=lambda row: -row[0])
        if words := [f"{share:.0%} ({label})" for share, label in largest[:NAMED]]:
            further = f" (and half or more in {len(largest) - NAMED} further results)" if len(largest) > NAMED else ""
            sentences.append(f"{', '.join(words)} of the responses{further} {fault}: {advice}")
    return sentences


def _row(result: TaskResult, first: TaskResult) -> dict[str, str]:
    """Return the cells that all tables have. The label contains the sampling if it differs from that of `first`."""
    s, usual, metrics = result.sampling, first.sampling, result.metrics()
    drawn = [s.difference_from(usual), "" if s.samples == usual.samples else f"{s.samples} samples"]
    note = ", ".join(filter(None, drawn))
    return {
        "decoding": result.label + (f" ({note})" if note else ""),
        **{metric.column: _fact(metric, metrics.get(metric.name)) for metric in COLUMNS},
    }


def _fact(metric: Metric, value: float | None) -> str:
    """Return a metric that is not a score: a share in percent with one decimal, a length without decimals."""
    return percent(value) if metric.unit == 100 else "" if value is None else f"{value:.0f}"


def _written(rows: Sequence[Mapping[str, str]], head: Sequence[str], left: int, optional: str) -> str:
    """Return rows under some of their columns; the optional one only if it is not empty."""
    names = [name for name in head if name != optional or any(row[name] for row in rows)]
    return markdown_table(names, [[row[name] for name in names] for row in rows], left=left)


def lm_eval_table(results: Sequence[LmEvalResult]) -> str:
    """Return a row per metric of each result, as lm-eval computed them, in its own units."""
    rows = [
        {
            "task": result.task + (f" ({result.limited})" if result.limited else ""),
            **_row(result, results[0]),
            "metric": name,
            "lm-eval's score ± s.e.": _own_units(result, name),
            "better": "lower" if name in result.lower_is_better else "",
        }
        for result in results
        for name in result.metric_names
    ]
    head = ["task", "decoding", "metric", "lm-eval's score ± s.e.", "better", "flagged", "changed", "tokens", "cut"]
    return _written(rows, head, 3, "better")


def table(results: Sequence[EvalResult]) -> str:
    """Return one row per result. Empty columns (ungraded answers) are left out.

    The row of a result with another number of samples or another sampling than the first contains these.
    """
    n = results[0].samples
    k = max(1, n // 2)
    rows = [
        {
            "benchmark": result.benchmark,
            **_row(result, results[0]),
            f"Avg@{n} ± s.e.": _with_error(100 * result.avg, 100 * result.standard_error, 2),
            "s.e. sampling": f"{100 * error:.2f}" if (error := result.sampling_error) == error else "",
            f"Pass@{k}": f"{100 * result.pass_at(k):.2f}" if k <= result.samples else "",
            f"Maj@{n}": "" if result.maj is None else f"{100 * result.maj:.2f}",
            "ungraded": "" if result.ungraded is None else str(int(result.ungraded.sum())),
        }
        for result in results
    ]
    if all(row["ungraded"] in ("", "0") for row in rows):
        rows = [{**row, "ungraded": ""} for row in rows]
    head = ["benchmark", "decoding", f"Avg@{n} ± s.e.", "s.e. sampling", f"Pass@{k}", f"Maj@{n}"]
    return _written(rows, [*head, *(metric.column for metric in COLUMNS), "ungraded"], 2, "ungraded")

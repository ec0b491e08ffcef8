"""Results as text: one line, and one aligned Markdown table, in percent."""

from collections.abc import Sequence

from harness.evals.result import EvalResult
from harness.markdown import markdown_table


def score(result: EvalResult) -> str:
    """Write Avg@n with its error over problems, in percent: `Avg@32 57.60 ± 5.43`."""
    return f"Avg@{result.samples} {_with_error(result)}"


def _with_error(result: EvalResult) -> str:
    """Write Avg@n with its error; one problem says nothing of others, so its score has none."""
    error = 100 * result.standard_error
    return f"{100 * result.avg:.2f}" + (f" ± {error:.2f}" if error == error else "")


def table(results: Sequence[EvalResult]) -> str:
    """Write one row a result; columns with nothing to say (ungraded answers, other versions of the golds) are left out.

    Results with another number of samples than the first have it in their row.
    """
    n = results[0].samples
    k = max(1, n // 2)
    others = sorted({version for result in results for version in result.correct_by})
    ungraded = any(result.ungraded.any() for result in results)
    head = ["benchmark", "decoding", f"Avg@{n} ± s.e.", "s.e. sampling", f"Pass@{k}", f"Maj@{n}", "replaced"]
    head += ["tokens", "cut", "no box", *(["ungraded"] if ungraded else []), *(f"Avg@{n} by {v}" for v in others)]
    rows = []
    for result in results:
        metrics, m = result.metrics(), result.samples
        row = [result.benchmark, result.label + (f" ({m} samples)" if m != n else "")]
        row += [
            _with_error(result),
            f"{100 * result.sampling_error:.2f}" if m > 1 else "",
            f"{100 * result.pass_at(k):.2f}" if k <= m else "",
            "" if result.maj is None else f"{100 * result.maj:.2f}",
            f"{100 * result.replacement_ratio:.1f} %",
            f"{metrics['mean_tokens']:.0f}",
            f"{100 * metrics['truncated_share']:.1f} %",
            f"{100 * metrics['no_box_share']:.1f} %",
        ]
        row += [str(int(result.ungraded.sum()))] if ungraded else []
        row += [f"{100 * metrics[f'avg@{m}_{v}']:.2f}" if v in result.correct_by else "" for v in others]
        rows.append(row)
    return markdown_table(head, rows, left=2)

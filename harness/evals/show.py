"""Results as text: one line, and one aligned Markdown table, in percent."""

from collections.abc import Mapping, Sequence

from harness.evals.foreign import LmEvalResult
from harness.evals.result import EvalResult
from harness.markdown import markdown_table


def score(result: EvalResult) -> str:
    """Write Avg@n with its error over problems, in percent: `Avg@32 57.60 ± 5.43`; of lm-eval's tasks its metrics."""
    if isinstance(result, LmEvalResult):
        return ", ".join(f"{name} {_own_units(result, name)}" for name in result.metric_names)
    return f"Avg@{result.samples} {_with_error(result)}"


def percent(share: float | None, digits: int = 1, blank: str = "") -> str:
    """Write a share in percent; what is not known is `blank`."""
    return blank if share is None else f"{100 * share:.{digits}f} %"


def replaced(result: EvalResult, metrics: Mapping[str, float]) -> float | None:
    """Return the share of replaced tokens, out of its metrics; None where an imported result does not tell it."""
    return metrics.get("replacement_ratio", None if result.decoding.gated else 0.0)


def changed(result: EvalResult, metrics: Mapping[str, float]) -> float | None:
    """Return the share of tokens that are others than the proposed ones; None where an import does not tell it."""
    return metrics.get("changed_ratio", None if result.decoding.gated else 0.0)


def _with_error(result: EvalResult) -> str:
    """Write Avg@n with its error; one problem says nothing of others, so its score has none."""
    error = 100 * result.standard_error
    return f"{100 * result.avg:.2f}" + (f" ± {error:.2f}" if error == error else "")


def _own_units(result: LmEvalResult, name: str) -> str:
    """Write a metric of lm-eval's with its error over problems, where it is a mean over them."""
    each = [one for one in result.by_metric() if isinstance(one, LmEvalResult) and one.metric == name]
    error = each[0].standard_error if each else float("nan")
    return f"{result.scored.scores[name]:.4f}" + (f" ± {error:.4f}" if error == error else "")


def tables(results: Sequence[EvalResult]) -> str:
    """Write a table of our benchmarks, in percent, and one of lm-eval's tasks, in its units; the empty one is none."""
    theirs = [result for result in results if isinstance(result, LmEvalResult)]
    ours = [result for result in results if not isinstance(result, LmEvalResult)]
    return "\n\n".join([*([table(ours)] if ours else []), *([lm_eval_table(theirs)] if theirs else [])])


def _label(result: EvalResult, first: EvalResult) -> str:
    """Return a result's label, with what tells how it was drawn from the first of its table."""
    s, usual = result.sampling, first.sampling
    words = [s.unlike(usual), "" if s.samples == usual.samples else f"{s.samples} samples"]
    told = ", ".join(word for word in words if word)
    return result.label + (f" ({told})" if told else "")


def lm_eval_table(results: Sequence[LmEvalResult]) -> str:
    """Write one row a metric of each result: what lm-eval computed, in its own units."""
    rows = []
    for result in results:
        counts = result.metrics()
        for name in result.metric_names:
            asked = result.task + (f" ({result.limited})" if result.limited else "")
            row = [asked, _label(result, results[0]), name, _own_units(result, name)]
            row += ["lower" if name in result.scored.lower_is_better else ""]
            row += [percent(replaced(result, counts)), percent(changed(result, counts))]
            row += [f"{counts['mean_tokens']:.0f}"]
            rows.append([*row, percent(counts.get("truncated_share"))])
    head = ["task", "decoding", "metric", "lm-eval's score ± s.e.", "better", "replaced", "changed", "tokens", "cut"]
    if all(not row[4] for row in rows):
        head, rows = head[:4] + head[5:], [row[:4] + row[5:] for row in rows]
    return markdown_table(head, rows, left=3)


def table(results: Sequence[EvalResult]) -> str:
    """Write one row a result; columns with nothing to say (ungraded answers) are left out.

    Results with another number of samples than the first, or drawn otherwise, say so in their row.
    """
    n = results[0].samples
    k = max(1, n // 2)
    ungraded = any(result.ungraded.any() for result in results)
    head = ["benchmark", "decoding", f"Avg@{n} ± s.e.", "s.e. sampling", f"Pass@{k}", f"Maj@{n}", "replaced", "changed"]
    head += ["tokens", "cut", "no box", *(["ungraded"] if ungraded else [])]
    rows = []
    for result in results:
        metrics, m = result.metrics(), result.samples
        row = [result.benchmark, _label(result, results[0])]
        row += [
            _with_error(result),
            f"{100 * result.sampling_error:.2f}" if m > 1 else "",
            f"{100 * result.pass_at(k):.2f}" if k <= m else "",
            "" if result.maj is None else f"{100 * result.maj:.2f}",
            percent(replaced(result, metrics)),
            percent(changed(result, metrics)),
            f"{metrics['mean_tokens']:.0f}" if "mean_tokens" in metrics else "",
            percent(metrics.get("truncated_share")),
            percent(metrics.get("no_box_share")),
        ]
        row += [str(int(result.ungraded.sum()))] if ungraded else []
        rows.append(row)
    return markdown_table(head, rows, left=2)

"""Tasks of lm-eval's in a report: what lm-eval computed, in its own units, and paired differences by problem."""

import re
from collections.abc import Sequence

from harness.evals.compare import Comparison, comparison_kind
from harness.evals.result import EvalResult
from harness.evals.settings import Setting
from harness.markdown import interval
from harness.report import figures
from harness.report.groups import pair_title
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.report.scores import anchor
from harness.report.verdict import p_value


def lm_eval_section(results: Sequence[EvalResult], settings: Sequence[Setting], rows: Sequence[Comparison]) -> Section:
    """Put together every score of lm-eval's tasks, and the differences of those that are means over problems.

    Metrics are drawn one by one, since each has its own unit.
    """
    parts: list[Table | Figure] = [_scores(results, settings), *([_differences(rows)] if rows else [])]
    for subject in dict.fromkeys(one.task for one in settings):
        mine = [one for one in settings if one.task == subject]
        compared = [row for row in rows if row.task == subject]
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", subject)
        if sum(one.decoding.gated for one in mine) > 1:
            parts.append(figures.against_share(mine, f"changed-{name}", mine[0].benchmark))
            parts.append(figures.against_share(mine, f"ratio-{name}", mine[0].benchmark, "replaced"))
        if compared:
            parts.append(figures.differences(compared, f"differences-{name}"))
    return Section("Tasks of lm-eval", lm_eval_verdict(rows), tuple(parts))


def lm_eval_verdict(rows: Sequence[Comparison]) -> tuple[str, ...]:
    """Say in a sentence each how RL changed the metrics, with intervals."""
    said = []
    for row in rows:
        if comparison_kind(row) == "trained":
            d = row.difference
            within = interval(d.low, d.high, 4, sign=True, unit=1)
            said.append(
                f"RL changed {row.result.benchmark} by {d.mean:+.4f} {within} (95 %, paired by problem, Holm p "
                f"{p_value(row.holm_p)})."
            )
    return tuple(said)


def _scores(results: Sequence[EvalResult], settings: Sequence[Setting]) -> Table:
    """List every metric of every result; a mean over problems has its interval, of all seeds of its setting."""
    of = {(result.config_hash, one.task): one for one in settings for result in one.results}
    columns = [Column(name, words=True) for name in ("Pair", "Task", "Metric", "Decoding")]
    columns += [Column(name) for name in ("Seed", "Score", "95 % interval", "Replaced", "Changed", "Tokens", "Cut")]
    rows = []
    for result in results:
        counts = result.metrics()
        for name in result.metric_names:
            score, one = (result.scores or {})[name], of.get((result.config_hash, f"{result.task} {name}"))
            low, high = one.interval if one is not None and len(one.results) == 1 else (float("nan"), float("nan"))
            lower = " (lower is better)" if name in result.lower_is_better else ""
            cells = (
                Cell(pair_title(result.pair[1])),
                Cell(result.task + (f" ({result.limited})" if result.limited else "")),
                Cell(name + lower),
                Cell((f"{result.name}: " if result.name else "") + result.label, link=anchor(result)),
                Cell(str(result.sampling.seed), result.sampling.seed),
                Cell(f"{score:.4f}", score, link=anchor(result)),
                Cell(interval(low, high, 4, unit=1) or "–"),
                *(
                    Cell(f"{100 * share:.2f} %", 100 * share)
                    for share in (result.replacement_ratio, result.changed_ratio)
                ),
                Cell(f"{counts['mean_tokens']:.0f}", counts["mean_tokens"]),
                Cell(f"{100 * counts['truncated_share']:.1f} %", 100 * counts["truncated_share"]),
            )
            rows.append(Row(cells, "reference" if not result.decoding.gated else ""))
    notes = (
        "Each score is what lm-eval computed, in its own units; a metric that is not a mean over problems has no "
        "interval and is not compared.",
    )
    return Table("lm-eval", "Every score of lm-eval's tasks.", tuple(columns), tuple(rows), notes, sortable=True)


def _differences(rows: Sequence[Comparison]) -> Table:
    columns = [Column(name, words=True) for name in ("Task and metric", "Decoding", "minus")]
    columns += [Column(name) for name in ("Difference", "95 % interval", "p", "p (Holm)")]
    lines = []
    for row in rows:
        d = row.difference
        cells = (
            Cell(row.result.benchmark),
            Cell(row.result.label, link=anchor(row.result.first)),
            Cell(row.reference.label, link=anchor(row.reference.first)),
            Cell(f"{d.mean:+.4f}", d.mean),
            Cell(interval(d.low, d.high, 4, sign=True, unit=1) or "–"),
            Cell(p_value(d.p), d.p),
            Cell(p_value(row.holm_p), row.holm_p),
        )
        lines.append(Row(cells))
    note = f"In lm-eval's units, paired by problem; t intervals, sign-flip p; Holm's correction over {len(rows)} rows."
    caption = "Paired differences on lm-eval's tasks."
    return Table("lm-eval-differences", caption, tuple(columns), tuple(lines), (note,), sortable=True)

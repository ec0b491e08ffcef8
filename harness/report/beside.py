"""The paper's numbers beside ours, wherever the paper prints one for the same pair, benchmark and setting."""

from collections.abc import Sequence

from harness.evals.result import EvalResult
from harness.report import paper
from harness.report.groups import Group
from harness.report.model import Cell, Column, Row, Table
from harness.report.scores import anchor
from harness.report.shapes import title


def against_paper(groups: Sequence[Group]) -> Table | None:
    """Set results beside every number that the paper prints for the same pair, benchmark and setting, if any."""
    rows = []
    for group in groups:
        for label, theirs, result, ours in _matches(group):
            error = 100 * result.sampling_error
            allowed = 1.96 * 2**0.5 * error
            known = allowed == allowed
            within = "–" if not known else "yes" if abs(ours - theirs) <= allowed else "no"
            rows.append(
                Row(
                    (
                        Cell(label),
                        Cell(f"{theirs:.2f}", theirs),
                        Cell(f"{ours:.2f}", ours, link=anchor(result)),
                        Cell(f"{ours - theirs:+.2f}", ours - theirs),
                        Cell(f"±{allowed:.2f}" if known else "–"),
                        Cell(within),
                    )
                )
            )
    if not rows:
        return None
    titles = ("Paper", "Ours", "Difference", "Sampling error of both", "Within?")
    note = (
        "The problems are the same, so the error is that of sampling alone, ours for both: 1.96·√2 standard errors. "
        "The paper prints no error of its own."
    )
    return Table(
        "beside-the-paper", "The paper's numbers and ours.", (Column("", words=True), *(Column(t) for t in titles)),
        tuple(rows), (note,),
    )  # fmt: skip


def _matches(group: Group) -> list[tuple[str, float, EvalResult, float]]:
    """List (what, the paper's number, our result, our number); numbers in percent."""
    found: list[tuple[str, float, EvalResult, float]] = []
    pair, model = paper.name_of(group.rl), paper.model_of(group.base)
    for r in group.results:
        d = r.decoding
        if r.partial or r.limited:
            continue
        if pair is not None and r.task in ("aime24", "minerva"):
            found += [(f"{title(r.task)}, {d.label()}", value, r, 100 * r.avg) for value in _decoded(pair, r)]
        name = r.name if d.mode == "rl" else "Base"
        if model is not None and d.mode in ("base", "rl") and name:
            for method in [*paper.methods("main"), *paper.methods("reweighting"), *paper.methods("minerva")]:
                theirs = method.scores.get(r.task)
                if theirs is None or (method.model, method.name.lower()) != (model, name.lower()):
                    continue
                what = f"{title(r.task)}, {model}, {method.name}"
                found.append((f"{what}, Avg@{r.samples}", theirs.avg, r, 100 * r.avg))
    return list(dict.fromkeys(found))


def _decoded(pair: str, result: EvalResult) -> list[float]:
    """Return what the paper prints for a decoding of one of its pairs, in percent: usually one number, or none."""
    d, values = result.decoding, []
    grid = paper.grids(result.task).get(pair)
    if d.mode == "rl":
        values += [grid.rl.avg] if grid is not None and grid.rl else []
    elif d.gated and d.criterion == "delta_logp":
        key = (float(d.tau or 0), d.gamma)
        if d.primary == "base" and grid is not None and key in grid.scores:
            values.append(grid.scores[key].avg)
        on_rl = paper.on_rl()
        if d.primary == "rl" and pair == "dapo" and result.task == "aime24" and key in on_rl.scores:
            values.append(on_rl.scores[key].avg)
    return values

"""The section of a pair: methods x benchmarks, the tau x gamma grids, extrapolation on RL with its control, figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness import stats
from harness.analysis.contrasts import Contrast
from harness.analysis.problems import problems
from harness.evals.result import EvalResult
from harness.report import figures, paper
from harness.report.groups import Entry, Group
from harness.report.model import Figure, Section, Table
from harness.report.shapes import Grid, Method, OnRl, Score, avg_name, grid_table, methods_table, on_rl_table, title

ROWS = 6  # gated decodings that the table of methods shows one by one


def section(group: Group, rows: Sequence[Contrast], *, several: bool) -> Section:
    """All of a pair's tables and figures."""
    tables: list[Table] = [_methods(group, rows)]
    drawn: list[Figure] = []
    for task in group.tasks:
        mine = [result for result in group.results if result.task == task]
        where = f"{title(task)}, {group.pair}"
        if (grid := grid_of(mine, group.pair, task, rows)) is not None:
            tables.append(
                grid_table(
                    f"grid-{group.slug}{task}",
                    f"Threshold and strength on {where} ({avg_name(grid.scores.values())}).",
                    grid,
                    notes=[
                        *([f"RL: {grid.rl.avg:.2f} {grid.rl.interval}."] if grid.rl else []),
                        *_of_weights(mine),
                        "Under each score: its 95 % interval over problems; of extrapolations also the difference to "
                        "the γ = 0 row, paired by problem.",
                    ],
                    paper="tab:full_param_extra, tab:minerva_param_extra",
                )
            )
        if (on_rl := on_rl_of(mine, group.pair, task, rows)) is not None:
            tables.append(
                on_rl_table(
                    f"on-rl-{group.slug}{task}",
                    f"Extrapolating on the RL model itself, {where}.",
                    on_rl,
                    notes=[
                        "The gate alone draws a rejected token again from RL itself: what extrapolation adds is in the "
                        "last row, which the paper's table does not have.",
                        *_of_weights(mine),
                    ],
                    paper="tab:rl_extra",
                )
            )
        if sum(result.decoding.gated for result in mine) > 1:
            drawn.append(figures.against_ratio(_one_seed(mine), f"ratio-{group.slug}{task}", where))
        if (found := _problems(mine)) is not None:
            drawn.append(figures.per_problem(found, f"problems-{group.slug}{task}", where))
    return Section(f"Scores of the {group.pair}" if several else "Scores", (), (*tables, *drawn))


def _of_weights(results: Sequence[EvalResult]) -> list[str]:
    """What extrapolating the weights instead gives, for the note below a table of extrapolations."""
    found = [result for result in _one_seed(results) if result.decoding.mode == "expo"]
    lines = [f"γ {r.decoding.gamma:g}: {score(r).avg:.2f} {score(r).interval}" for r in found]
    return [f"Extrapolating RL's weights instead (ExPO), {'; '.join(lines)}."] if lines else []


def _one_seed(results: Sequence[EvalResult]) -> list[EvalResult]:
    """The first result of each decoding: a figure has one point for it."""
    return list({result.decoding: result for result in reversed(results)}.values())[::-1]


def score(result: EvalResult, beside: str = "", k: int | None = None) -> Score:
    """A result as a score in percent, with its interval and its source."""
    low, high = figures.interval(result)
    known = low == low  # one problem has no interval
    k = max(1, result.samples // 2) if k is None else k
    return Score(
        100 * result.avg,
        samples=result.samples,
        low=low if known else None,
        high=high if known else None,
        k=k if k <= result.samples else 0,
        passed=100 * result.pass_at(k) if k <= result.samples else None,
        error=100 * result.standard_error,
        beside=beside,
        link=anchor(result),
        sign="*" if result.partial else "",
    )


def anchor(result: EvalResult) -> str:
    """Where on the page a result's source is described."""
    return f"#r-{result.config_hash}"


def _methods(group: Group, rows: Sequence[Contrast]) -> Table:
    """Base, RL and the gated decodings; many of them are represented by the best, which is said."""
    samples = {result.samples for result in group.results}
    k = max(1, min(samples) // 2)
    model = paper.model_of(group.base) or group.pair
    by: dict[tuple[str, str], dict[str, EvalResult]] = {}
    for entry in _distinct(group.entries):
        label = entry.result.label
        if entry.result.decoding.mode == "base":
            label = "Base"
        elif entry.result.decoding.mode == "rl":
            label = entry.name or "RL"
        elif entry.name:
            label = f"{entry.name}: {label}"
        by.setdefault((label, entry.result.decoding.mode), {})[entry.result.task] = entry.result
    notes = ["In brackets: 95 % t intervals over problems. The average counts each benchmark once."]
    if len(samples) > 1:
        notes.append(
            f"Results differ in their number of samples: {', '.join(map(str, sorted(samples)))}. Where a decoding has "
            "several, the one with the most is shown."
        )
    chosen = dict(by)
    gated = [key for key in by if key[1] in ("replace", "extrapolate")]
    if len(gated) > ROWS:
        for key in gated:
            del chosen[key]
        for mode in ("replace", "extrapolate"):
            full = [key for key in gated if key[1] == mode and len(by[key]) == len(group.tasks)]
            if full:
                top = max(full, key=lambda key: sum(result.avg for result in by[key].values()))
                chosen[f"{top[0]} †", mode] = by[top]
        notes.append(
            f"† The best of its kind among {len(gated)} settings, picked on these data: expect less of it on others. "
            "All settings are in the last table."
        )
    methods = [
        Method(model, label, {task: score(r, k=k) for task, r in found.items()}, _mean(found, group, k))
        for (label, _), found in chosen.items()
    ]
    if any(result.partial for found in chosen.values() for result in found.values()):
        notes.append("* A part of the samples only: it will change when the rest is decoded.")
    return methods_table(
        f"main-{group.slug or 'scores'}".rstrip("-"), f"Ways of decoding the {group.pair}.", methods, notes=notes,
        paper="tab:main, tab:compare, tab:rl_minerva", unranked=("Base",),
    )  # fmt: skip


def _distinct(entries: Sequence[Entry]) -> list[Entry]:
    """The first entry of each decoding, benchmark and name: another seed is in the table of every result."""
    found: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        found.setdefault((entry.result.task, entry.result.decoding, entry.name), entry)
    return list(found.values())


def _mean(found: Mapping[str, EvalResult], group: Group, k: int) -> Score | None:
    """The average over all benchmarks of the group with its interval; None where one is missing."""
    if len(found) < len(group.tasks) or len(found) == 1:
        return None
    results = list(found.values())
    mean, error = stats.mean_over_benchmarks([(100 * r.avg, 100 * r.standard_error) for r in results])
    degrees = sum(len(r.problem_ids) - 1 for r in results)
    low, high = stats.t_interval(mean, error, degrees + 1)
    passed = sum(100 * r.pass_at(k) for r in results) / len(results)
    return Score(mean, results[0].samples, low, high, k, passed, error)


def grid_of(results: Sequence[EvalResult], pair: str, task: str, rows: Sequence[Contrast]) -> Grid | None:
    """The tau x gamma grid on base by delta log p; None where there are not two of either with a control."""
    cells = {
        (float(r.decoding.tau or 0), r.decoding.gamma): r
        for r in reversed(results)
        if r.decoding.gated and r.decoding.criterion == "delta_logp" and r.decoding.primary == "base"
    }
    taus = {tau for tau, gamma in cells if gamma} & {tau for tau, gamma in cells if not gamma}
    cells = {(tau, gamma): r for (tau, gamma), r in cells.items() if tau in taus}
    if len(cells) < 3 or len({gamma for _, gamma in cells}) < 2:
        return None
    rl = next((score(r) for r in results if r.decoding.mode == "rl"), None)
    ratios = {tau: 100 * cells[tau, 0.0].replacement_ratio for tau in taus}
    return Grid(pair, task, ratios, {key: score(r, _beside(r, rows)) for key, r in cells.items()}, rl)


def on_rl_of(results: Sequence[EvalResult], pair: str, task: str, rows: Sequence[Contrast]) -> OnRl | None:
    """Extrapolation with RL as primary and its control; None where there is no extrapolation."""
    cells = {
        (float(r.decoding.tau or 0), r.decoding.gamma): r
        for r in reversed(results)
        if r.decoding.gated and r.decoding.criterion == "delta_logp" and r.decoding.primary == "rl"
    }
    if not any(gamma for _, gamma in cells):
        return None
    rl = next((score(r) for r in results if r.decoding.mode == "rl"), None)
    ratios = {tau: 100 * r.replacement_ratio for (tau, _), r in sorted(cells.items(), reverse=True)}
    differences = {key: text for key, r in cells.items() if (text := _beside(r, rows))}
    return OnRl(pair, task, rl, ratios, {key: score(r) for key, r in cells.items()}, differences)


def _beside(result: EvalResult, rows: Sequence[Contrast]) -> str:
    """The difference of an extrapolation to its control: `+0.4 [−0.5, +1.2]`."""
    for row in rows:
        if row.kind == "against control" and row.result is result:
            d = row.difference
            return f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
    return ""


def _problems(results: Sequence[EvalResult]) -> Any:
    """Base and replacement by delta log p, problem by problem; None below two steps of replacement."""
    base = next((r for r in results if r.decoding.mode == "base"), None)
    steps = [
        r for r in _one_seed(results)
        if r.decoding.mode == "replace" and r.decoding.criterion == "delta_logp" and r.decoding.primary == "base"
        and base is not None and r.problem_ids == base.problem_ids
    ]  # fmt: skip
    if base is None or len(steps) < 2:
        return None
    rl = next((r for r in results if r.decoding.mode == "rl" and r.problem_ids == base.problem_ids), None)
    return problems(base, steps, rl)

"""The section of a pair: methods x benchmarks, the tau x gamma grids, extrapolation on RL with its control, figures."""

from collections.abc import Mapping, Sequence

from harness import stats
from harness.analysis.problems import Problems, problems
from harness.evals.compare import Comparison, comparison_kind
from harness.evals.result import EvalResult
from harness.evals.settings import Setting
from harness.markdown import interval
from harness.report import figures
from harness.report.groups import Group
from harness.report.known import model_of
from harness.report.model import Figure, Section, Table
from harness.report.shapes import Grid, MethodRow, OnRl, Score, avg_name, grid_table, methods_table, on_rl_table, title
from harness.report.verdict import p_value

ROWS = 6  # gated decodings that the table of methods shows one by one


def section(group: Group, rows: Sequence[Comparison], *, several: bool) -> Section:
    """Put together all of a pair's tables and figures."""
    tables: list[Table] = [_methods(group)]
    drawn: list[Figure] = []
    for task in group.tasks:
        mine = [setting for setting in group.settings if setting.task == task]
        where = f"{title(mine[0].benchmark)}, {group.pair}"
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
                        "the γ = 0 row, paired by problem, with its p (Holm, over all paired differences).",
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
        for primary, name, on in (("base", "ratio", ""), ("rl", "ratio-on-rl", ", RL proposing")):
            ways = [one for one in mine if not one.decoding.gated or one.decoding.primary == primary]
            if sum(one.decoding.gated for one in ways) > 1:
                parts = figures.in_legible_parts(ways)
                for share, start in (("changed", name.replace("ratio", "changed")), ("replaced", name)):
                    drawn += [
                        figures.against_share(part, f"{start}-{word}{group.slug}{task}", where + on, share)
                        for word, part in parts
                    ]
        if (gammas := figures.against_gamma(mine, f"gamma-{group.slug}{task}", where)) is not None:
            drawn.append(gammas)
        if (found := _problems(mine)) is not None:
            drawn.append(figures.per_problem(found, f"problems-{group.slug}{task}", where))
    return Section(f"Scores of the {group.pair}" if several else "Scores", (), (*tables, *drawn))


def _of_weights(settings: Sequence[Setting]) -> list[str]:
    """Say what extrapolating the weights instead gives, for the note below a table of extrapolations."""
    found = [one for one in settings if one.decoding.mode == "expo"]
    lines = [f"γ {one.decoding.gamma:g}: {score(one).avg:.2f} {score(one).interval}" for one in found]
    return [f"Extrapolating RL's weights instead (ExPO), {'; '.join(lines)}."] if lines else []


def score(setting: Setting, beside: str = "", k: int | None = None) -> Score:
    """Return a setting as a score in percent, with its interval and its source."""
    low, high = setting.interval
    known = low == low  # one problem has no interval
    k = max(1, setting.samples // 2) if k is None else k
    return Score(
        100 * setting.avg,
        samples=setting.samples,
        low=100 * low if known else None,
        high=100 * high if known else None,
        k=k if k <= setting.samples else 0,
        passed=100 * setting.pass_at(k) if k <= setting.samples else None,
        error=100 * setting.standard_error,
        beside=beside,
        link=anchor(setting.first),
        sign="*" if setting.partial else "",
    )


def anchor(result: EvalResult) -> str:
    """Return the link to the place on the page where a result's source is described."""
    return f"#r-{result.config_hash}"


def _methods(group: Group) -> Table:
    """List base, RL and the gated decodings; many of them are represented by the best, which is said."""
    samples = {setting.samples for setting in group.settings}
    k = max(1, min(samples) // 2)
    model = model_of(group.base) or group.pair
    by: dict[tuple[str, str], dict[str, Setting]] = {}
    for setting in group.settings:
        mode, own = setting.decoding.mode, setting.decoding.label()
        name = "" if setting.first.name == model else setting.first.name  # which is there already
        label = {"base": "Base", "rl": name or "RL"}.get(mode, f"{name}: {own}" if name else own)
        by.setdefault((label + setting.label.removeprefix(own), mode), {})[setting.benchmark] = setting
    notes = ["In brackets: 95 % intervals over problems."]
    notes += ["The average counts each benchmark once."] if len(group.benchmarks) > 1 else []
    if len(samples) > 1:
        notes.append(f"Settings differ in their number of samples: {', '.join(map(str, sorted(samples)))}.")
    if any(len(setting.seeds) > 1 for setting in group.settings):
        notes.append("Where a setting has several seeds, its score is their mean; the last table has each.")
    chosen = dict(by)
    gated = [key for key in by if key[1] in ("replace", "extrapolate")]
    if len(gated) > ROWS:
        for key in gated:
            del chosen[key]
        for mode in ("replace", "extrapolate"):
            full = [key for key in gated if key[1] == mode and len(by[key]) == len(group.benchmarks)]
            if full:
                top = max(full, key=lambda key: sum(setting.avg for setting in by[key].values()))
                chosen[f"{top[0]} †", mode] = by[top]
        notes.append(
            f"† The best of its kind among {len(gated)} settings, picked on these data: expect less of it on others. "
            "All settings are in the last table."
        )
    methods = [
        MethodRow(
            model, label, {benchmark: score(one, k=k) for benchmark, one in found.items()}, _mean(found, group, k)
        )
        for (label, _), found in chosen.items()
    ]
    if any(one.partial for found in chosen.values() for one in found.values()):
        notes.append("* A part of the samples only: it will change when the rest is decoded.")
    return methods_table(
        f"main-{group.slug or 'scores'}".rstrip("-"), f"Ways of decoding the {group.pair}.", methods, notes=notes,
        paper="tab:main, tab:compare, tab:rl_minerva", unranked=("Base",),
    )  # fmt: skip


def _mean(found: Mapping[str, Setting], group: Group, k: int) -> Score | None:
    """Average over all benchmarks of the group, with an interval, in percent; return None where one is missing."""
    if len(found) < len(group.benchmarks) or len(found) == 1:
        return None
    settings = list(found.values())
    mean, error = stats.mean_over_benchmarks([(100 * one.avg, 100 * one.standard_error) for one in settings])
    low, high = (100 * end for end in stats.mean_interval([(one.avg, *one.interval) for one in settings]))
    passed = sum(100 * one.pass_at(k) for one in settings) / len(settings)
    return Score(mean, settings[0].samples, low, high, k, passed, error)


def grid_of(settings: Sequence[Setting], pair: str, task: str, rows: Sequence[Comparison]) -> Grid | None:
    """Return the tau x gamma grid on base by delta log p; None where there are not two of either with a control."""
    cells = _cells(settings, "base")
    taus = {tau for tau, gamma in cells if gamma} & {tau for tau, gamma in cells if not gamma}
    cells = {(tau, gamma): one for (tau, gamma), one in cells.items() if tau in taus}
    if len(cells) < 3 or len({gamma for _, gamma in cells}) < 2:
        return None
    rl = next((score(one) for one in settings if one.decoding.mode == "rl"), None)
    ratios = {tau: 100 * cells[tau, 0.0].replacement_ratio for tau in taus}
    changed = {tau: 100 * cells[tau, 0.0].changed_ratio for tau in taus}
    return Grid(pair, task, ratios, {key: score(one, _beside(one, rows)) for key, one in cells.items()}, rl, changed)


def on_rl_of(settings: Sequence[Setting], pair: str, task: str, rows: Sequence[Comparison]) -> OnRl | None:
    """Return extrapolation with RL as primary and its control; None where there is no extrapolation."""
    cells = _cells(settings, "rl")
    if not any(gamma for _, gamma in cells):
        return None
    rl = next((score(one) for one in settings if one.decoding.mode == "rl"), None)
    ratios, changed = (
        {tau: 100 * getattr(one, name) for (tau, _), one in sorted(cells.items(), reverse=True)}
        for name in ("replacement_ratio", "changed_ratio")
    )
    differences = {key: text for key, one in cells.items() if (text := _beside(one, rows))}
    return OnRl(pair, task, rl, ratios, {key: score(one) for key, one in cells.items()}, differences, changed)


def _cells(settings: Sequence[Setting], primary: str) -> dict[tuple[float, float], Setting]:
    """Return the settings gated by delta log p, by (tau, gamma); of several the first."""
    found: dict[tuple[float, float], Setting] = {}
    for one in settings:
        if one.decoding.criterion == "delta_logp" and one.decoding.primary == primary:
            found.setdefault((float(one.decoding.tau or 0), one.decoding.gamma), one)
    return found


def _beside(setting: Setting, rows: Sequence[Comparison]) -> str:
    """Write the difference of an extrapolation to its control, in points: `+0.4 [−0.5, +1.2] p 1.000` (Holm's p)."""
    for row in rows:
        if row.result is setting and comparison_kind(row) == "against control":
            d = row.difference
            p = f" p {p_value(row.holm_p)}" if row.holm_p == row.holm_p else ""
            return f"{100 * d.mean:+.1f} {interval(d.low, d.high, sign=True)}".rstrip() + p
    return ""


def _problems(settings: Sequence[Setting]) -> Problems | None:
    """Compare base and replacement by delta log p problem by problem; return None below two steps of replacement."""
    base = next((one for one in settings if one.decoding.mode == "base"), None)
    steps = [one for (_, gamma), one in _cells(settings, "base").items() if not gamma]
    if base is None or len(steps) < 2:
        return None
    return problems(base, steps, next((one for one in settings if one.decoding.mode == "rl"), None))

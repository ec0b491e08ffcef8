"""The figures made of results: accuracy against shares of tokens, differences with intervals, problem by problem."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness import stats
from harness.analysis.problems import PROBLEM_KINDS, Problems
from harness.evals.compare import Comparison, comparison_kind
from harness.evals.result import EvalResult
from harness.evals.settings import Setting
from harness.policy.gates import gates
from harness.report.draw import BASE, COLOURS, COUPLING, EXPO, MARKS, RL, canvas, root_axis, styled, svg
from harness.report.model import Figure
from harness.report.verdict import extrapolates
from harness.text import visible

COUNTED = ("n_changed", "n_replaced")
SHARES = {
    "changed": ("n_changed", "changed tokens", "positions where another token was drawn than the proposed one"),
    "replaced": ("n_replaced", "replaced tokens", "positions where the criterion held; some are drawn as they were"),
}
MOST = 40  # rows that a figure of differences can hold


@styled
def against_share(
    settings: Sequence[Setting], name: str, title: str, share: str = "changed", *, every: bool = False
) -> Figure:
    """Draw Avg against a share of tokens: a line a criterion and gamma, 95 % intervals, base and RL as levels.

    `share` is "changed", positions where another token was drawn than the proposed one, or "replaced", those where the
    criterion held: most of them may be drawn again as they were. Where base's tokens were coupled with RL's, a vertical
    line stands at the least share at which their distribution is RL's.

    Extrapolations beside replacements on base, ways on RL beside ways on base, and what has no gate beside gates are
    drawn only if `every` way is asked for.
    """
    figure, axes = canvas(5.6, 3.4)
    counted, said, meaning = SHARES[share]

    def at(one: Setting) -> float:
        return one.share(counted).value

    unit, avg = _unit(settings[0].first, {one.samples for one in settings})
    what = "Accuracy" if unit == 100 else avg
    if not every and any(one.decoding.gated and one.decoding.primary == "base" for one in settings):
        settings = [one for one in settings if not one.decoding.gated or one.decoding.primary == "base"]
        if any(one.decoding.mode == "replace" for one in settings):
            settings = [one for one in settings if one.decoding.mode != "extrapolate"]
        if any(one.decoding.gated and not one.decoding.everywhere for one in settings):
            settings = [one for one in settings if not one.decoding.everywhere]
    lines: dict[tuple[Any, ...], list[Setting]] = {}
    order = list(gates())
    for one in settings:
        if (gate := (way := one.decoding).gate) is not None:
            # landmarks that are not the paper's have a look of their own, and take none of the others'
            place = (
                len(order) if gate.landmark and not gate.paper else order.index(gate.name) if gate.name in order else -1
            )
            lines.setdefault((place, way.primary, way.caption, way.gamma, way.plausibility), []).append(one)
            if gate.redraws and (way.mode, way.primary) == ("replace", "base"):
                axes.axvline(100 * at(one), color=COUPLING, linewidth=0.8, linestyle=(0, (1, 3)))
    data = []
    for i, way in enumerate(sorted(lines, key=lambda key: (key[1], key[0], *key[2:]))):
        _, primary, caption, gamma, guard = way
        mine = sorted(lines[way], key=at)
        asked: Any = mine[0].decoding.gate
        label = caption + (f", γ = {gamma:g}" if gamma else "")
        label += f", p ≥ {guard:g} of RL's largest" if guard else ""
        label += " on RL" if primary == "rl" else ""
        spans = [_interval(one, unit) for one in mine]
        look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)], "markersize": 4}
        if asked.landmark and not asked.paper:
            look = {"color": EXPO, "marker": "s", "markersize": 4}
        if asked.redraws:
            look = {"color": COUPLING, "marker": "*", "markersize": 8}
        how = {"linewidth": 1.2, "linestyle": "--" if asked.statistic == "random" else "-", **look}
        _line(axes, [100 * at(one) for one in mine], [unit * one.avg for one in mine], spans, label, how)
        for one, (low, high) in zip(mine, spans, strict=True):
            shares = [_percent(end) for counted in COUNTED for end in _ends(one.share(counted))]
            data.append((label, one.decoding.tau, *shares, unit * one.avg, low, high, one.samples))
    for one in settings:
        if not one.decoding.gated:
            low, high = _level(axes, one, unit)
            data.append((one.decoding.label(), None, *(0.0,) * 6, unit * one.avg, low, high, one.samples))
    root_axis(axes)
    axes.set_xlabel(f"{said}, % (square-root scale)")
    axes.set_ylabel(f"{avg}, %" if unit == 100 else avg)
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    samples = sorted({one.samples for one in settings})
    mixed = f"; points have {' or '.join(map(str, samples))} samples a problem" if len(samples) > 1 else ""
    return Figure(
        name,
        f"{what} against the share of {said} on {title}; bars are 95 % intervals over problems{mixed}. "
        f"{said.capitalize()}: {meaning}.",
        f"Line chart: {avg} on {title} against the share of {said}, one line for each of "
        f"{len(lines)} ways; base and RL are dotted levels. The data are in the CSV file.",
        svg(figure, name),
        (
            "line", "tau", "changed_percent", "changed_low", "changed_high", "replaced_percent", "replaced_low",
            "replaced_high", "avg", "low", "high", "samples",
        ),
        tuple(data),
        "fig:teaser (c), fig:replace, fig:kl_ablation",
    )  # fmt: skip


def in_legible_parts(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Part what `against_share` draws: where there are too many gates for one figure, the paper's seven, then others.

    Each part has a word for its name, and base and RL; `landmark` gates are in both.
    """
    asked = {one.decoding.criterion for one in settings if one.decoding.gated and not one.decoding.everywhere}
    if len(asked) <= len(COLOURS) + 1:
        return [("", list(settings))]
    plain = [one for one in settings if one.decoding.mode in ("base", "rl")]
    gated = [(one, one.decoding.gate) for one in settings if one.decoding.gate is not None]
    both = [one for one, gate in gated if gate.landmark and one.decoding.criterion == gate.name]
    left = [one for one, _ in gated if one not in both]
    papers = [one for one, gate in gated if one in left and gate.paper and one.decoding.criterion == gate.name]
    return [("", plain + both + papers), ("controls-", plain + both + [one for one in left if one not in papers])]


@styled
def against_gamma(settings: Sequence[Setting], name: str, title: str) -> Figure | None:
    """Draw Avg against gamma where every token is drawn from the target: from base (-1) over RL (0) beyond it.

    Extrapolated weights stand beside it at their gamma. None where fewer than three gammas were drawn so.
    """
    lines: dict[str, list[Setting]] = {}
    for one in sorted(settings, key=lambda one: one.decoding.gamma):
        way = one.decoding
        if way.everywhere:
            guard = f", p ≥ {way.plausibility:g} of RL's largest" if way.plausibility else ""
            lines.setdefault(f"every token{guard}", []).append(one)
        elif way.mode == "expo":
            lines.setdefault("weights (ExPO)", []).append(one)
    if max((len(mine) for line, mine in lines.items() if line.startswith("every")), default=0) < 3:
        return None
    figure, axes = canvas(5.6, 3.2)
    unit, avg = _unit(settings[0].first, {one.samples for one in settings})
    data = []
    for i, (line, mine) in enumerate(sorted(lines.items())):
        spans = [_interval(one, unit) for one in mine]
        means = [unit * one.avg for one in mine]
        how = {"color": COLOURS[i], "marker": MARKS[i], "markersize": 4, "linewidth": 1.2}
        _line(axes, [one.decoding.gamma for one in mine], means, spans, line, how)
        data += [
            (line, one.decoding.gamma, mean, low, high, one.samples)
            for one, mean, (low, high) in zip(mine, means, spans, strict=True)
        ]
    for one in settings:
        if one.decoding.mode in ("base", "rl"):
            low, high = _level(axes, one, unit)
            data.append((one.decoding.label(), None, unit * one.avg, low, high, one.samples))
    axes.set_xlabel("γ: −1 is base, 0 is RL, above it beyond RL")
    axes.set_ylabel(f"{avg}, %" if unit == 100 else avg)
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return Figure(
        name,
        f"{'Accuracy' if unit == 100 else avg} against γ on {title}, every token drawn from the target; bars are 95 % "
        "intervals over problems.",
        f"Line chart: {avg} on {title} against γ for {len(lines)} ways of going from base over RL beyond it; base and "
        "RL are dotted levels. The data are in the CSV file.",
        svg(figure, name),
        ("line", "gamma", "avg", "low", "high", "samples"),
        tuple(data),
    )


def _ends(one: stats.Share) -> tuple[float | None, float | None, float | None]:
    return one.value, one.low, one.high


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _line(
    axes: Any, x: Sequence[float], means: Sequence[float], spans: Sequence[tuple[float, float]], label: str, how: Any
) -> None:
    """Draw points with their intervals, and a line through them."""
    pairs = list(zip(means, spans, strict=True))
    error = [[mean - low for mean, (low, _) in pairs], [high - mean for mean, (_, high) in pairs]]
    axes.errorbar(x, means, yerr=error, elinewidth=0.6, capsize=1.5, label=label, **how)


def _level(axes: Any, one: Setting, unit: float) -> tuple[float, float]:
    """Draw what replaces nothing as a dotted level in its interval; return the interval."""
    low, high = _interval(one, unit)
    colour = {"rl": RL, "base": BASE}.get(one.decoding.mode, EXPO)
    axes.axhline(unit * one.avg, color=colour, linewidth=1, linestyle=":", label=one.decoding.label())
    axes.axhspan(low, high, color=colour, alpha=0.08, linewidth=0)
    return low, high


@styled
def heat_map(cells: Mapping[tuple[float, float], EvalResult], rl: EvalResult | None, name: str, title: str) -> Figure:
    """Draw Avg by threshold and gamma, the colours centred on RL where it is known: red above, blue below."""
    first = next(iter(cells.values()))
    unit, avg = _unit(first, {first.samples})
    digits = 1 if unit == 100 else 3
    taus, gammas = sorted({tau for tau, _ in cells}), sorted({gamma for _, gamma in cells})
    grid = np.full((len(gammas), len(taus)), np.nan)
    for (tau, gamma), result in cells.items():
        grid[gammas.index(gamma), taus.index(tau)] = unit * result.avg
    figure, axes = canvas(1.6 + 0.95 * len(taus), 1.3 + 0.55 * len(gammas))
    middle = unit * rl.avg if rl else float(np.nanmean(grid))
    span = max(unit / 100, float(np.nanmax(np.abs(grid - middle))))
    axes.imshow(grid, cmap="RdBu_r", vmin=middle - span, vmax=middle + span, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            dark = abs(value - middle) > 0.6 * span
            colour = "white" if dark else "black"
            axes.text(column, row, f"{value:.{digits}f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(taus)), [f"{tau:g}" for tau in taus])
    axes.set_yticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set_xlabel("τ")
    axes.set_ylabel("γ")
    axes.set_title(f"{title}: {avg}" + (f", rl {middle:.{digits}f}" if rl else ""))
    return Figure(
        name,
        f"{avg} on {title} by threshold τ and strength γ; colours are centred on " + ("RL." if rl else "the mean."),
        f"Heat map: {avg} on {title} for {len(taus)} thresholds and {len(gammas)} strengths, as printed in the cells.",
        svg(figure, name),
        ("tau", "gamma", "avg"),
        tuple((tau, gamma, unit * result.avg) for (tau, gamma), result in sorted(cells.items())),
    )


def _unit(first: EvalResult, samples: set[int]) -> tuple[float, str]:
    """Return what scores are multiplied with to be shown, and their name: percent of Avg, or a metric of lm-eval's."""
    if not first.shares:
        return 1.0, first.metric
    return 100.0, f"Avg@{min(samples)}" if len(samples) == 1 else "Avg"


def _interval(setting: Setting, unit: float) -> tuple[float, float]:
    """Return the 95 % interval over problems."""
    low, high = setting.interval
    return unit * low, unit * high


@styled
def differences(rows: Sequence[Comparison], name: str = "differences") -> Figure:
    """Draw extrapolations minus RL beside the same minus their own gate, else all paired differences; a line each.

    All are in one unit.
    """
    unit, avg = _unit(rows[0].result.first, {row.result.samples for row in rows})
    points = "points" if unit == 100 else avg
    controlled = [row for row in rows if extrapolates(row)]
    shown = sorted(controlled or rows, key=lambda row: row.result.task)[:MOST]
    over_rl = {id(row.result): row for row in rows if comparison_kind(row) == "against rl"}
    panels: dict[str, Sequence[Comparison | None]] = {}
    if controlled and any(beside := [over_rl.get(id(row.result)) for row in shown]):
        panels[f"{points}, minus RL"] = beside
    panels[points + (", minus the γ = 0 control" if controlled else "")] = shown
    width = 6.4 if len(panels) == 1 else 8.4
    figure, grid = canvas(width, 0.9 + 0.24 * len(shown), 1, len(panels), sharey=True, squeeze=False)
    colours = {"trained": COLOURS[6], "against rl": COLOURS[0], "against control": COLOURS[1]}
    data = []
    for axes, (what, mine) in zip(grid.flat, panels.items(), strict=True):
        for at, row in enumerate(mine):
            if row is None:
                continue
            d, kind = row.difference, comparison_kind(row)
            low, mean, high = unit * d.low, unit * d.mean, unit * d.high
            axes.plot([low, high], [at, at], color=colours[kind], linewidth=1.2)
            axes.plot([mean], [at], marker="o", markersize=4, color=colours[kind])
            told = kind, row.result.benchmark, row.result.label, row.reference.label
            data.append((*told, mean, low, high, d.p, row.holm_p))
        axes.axvline(0, color="#808080", linewidth=0.8)
        axes.set_xlabel(what)
    labels = [
        visible(f"{row.result.benchmark}: {row.result.label}" + ("" if controlled else f" − {row.reference.label}"), 60)
        for row in shown
    ]
    grid.flat[0].set_yticks(range(len(shown)), labels, fontsize=8)
    grid.flat[0].set_ylim(len(shown) - 0.5, -0.5)  # from the top down
    return Figure(
        name,
        "What extrapolation adds to RL (blue), and to its own gate (γ = 0, orange), with 95 % intervals; all "
        "differences are in the table."
        if len(panels) > 1
        else "What extrapolation adds to its own gate (γ = 0), with 95 % intervals; all differences are in the table."
        if controlled
        else "Paired differences with 95 % intervals: gated decoding against RL (blue), RL against base (grey).",
        f"Interval plot of {len(data)} paired differences of {'accuracy' if unit == 100 else avg} around a line at "
        "zero. The data are in the CSV.",
        svg(figure, name),
        ("kind", "task", "decoding", "minus", "difference", "low", "high", "p", "p_holm"),
        tuple(data),
        "fig:extrapolate, fig:extra_minerva",
    )


@styled
def per_problem(found: Problems, name: str, title: str) -> Figure:
    """Draw a heat map: a row a problem, sorted by kind, a column a replacement ratio; RL beside it."""
    order = sorted(
        range(len(found.problem_ids)), key=lambda i: (PROBLEM_KINDS.index(found.kinds[i]), found.accuracy[i].mean(), i)
    )
    columns = ["base", *(f"{100 * ratio:.2g} %" for ratio in found.ratios[1:])]
    columns += ["RL"] if found.rl is not None else []
    table = found.accuracy if found.rl is None else np.column_stack([found.accuracy, found.rl])
    figure, axes = canvas(5.4, min(9.0, 1.3 + max(2.0, 0.055 * len(order))))
    image = axes.imshow(100 * table[order], aspect="auto", cmap="cividis", vmin=0, vmax=100, interpolation="nearest")
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_xlabel("replaced tokens")
    edges, names, at = [], [], 0
    for each in PROBLEM_KINDS:
        count = found.counts[each]
        if count:
            edges.append(at + (count - 1) / 2)
            names.append(f"{each} ({count})")
            at += count
            if at < len(order):
                axes.axhline(at - 0.5, color="#ffffff", linewidth=0.8)
    axes.set_yticks(edges, names)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label(f"right of {found.samples} samples, %")
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items() if count)
    return Figure(
        name,
        f"Accuracy of each problem of {title} as more tokens are replaced (Δ log p); problems by kind: {counts}. A "
        f"change counts beyond two standard errors of {found.samples} samples: a few in a hundred are chance. "
        f"Never (always) solved: by not one (by all) of the {found.seen} samples of a problem that are shown.",
        f"Heat map, one row for each of {len(order)} problems: {counts}. The data are in the CSV file.",
        svg(figure, name),
        ("problem", "kind", *(f"replaced_{column}" for column in columns)),
        tuple((found.problem_ids[i], found.kinds[i], *(float(x) for x in table[i])) for i in order),
        "fig:per_problem_acc",
    )

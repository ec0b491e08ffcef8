"""The figures of a sweep as SVG: accuracy against replacement ratio with intervals, and the tau x gamma heat map.

The same results give the same bytes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import stats
from harness.evals import EvalResult

if TYPE_CHECKING:
    from harness.sweep.summary import Summary

# Colours that also differ in lightness and to colour-blind eyes (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "rlvr-dir", "font.family": "sans-serif", "font.size": 9}


def draw(made: "Summary", folder: Path) -> list[str]:
    """Draws what there is to be drawn; the files' names."""
    from harness.sweep.summary import cells_of

    names = []
    for pair in made.spec.pairs:
        entries = made.of(pair)
        for task in dict.fromkeys(result.task for entry in entries for result in entry.results):
            results = [result for entry in entries for result in entry.results if result.task == task]
            if sum(result.decoding.gated for result in results) > 1:
                names.append(save(_against_ratio(results, f"{pair}, {task}"), folder / f"ratio-{pair}-{task}.svg"))
            cells = cells_of(made, pair, task)
            if min(len({tau for tau, _ in cells}), len({gamma for _, gamma in cells})) > 1:
                rl = next((r for r in results if r.decoding.mode == "rl"), None)
                names.append(save(_heat(cells, rl, f"{pair}, {task}"), folder / f"heat-{pair}-{task}.svg"))
    return names


def canvas(width: float, height: float) -> tuple[Any, Any]:
    """An empty figure in our style, in inches, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def save(drawn: Any, path: Path) -> str:
    """Writes a figure as SVG; the file's name."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        drawn.savefig(path, format="svg", metadata={"Date": None})
    return path.name


def _against_ratio(results: list[EvalResult], title: str) -> Any:
    """Avg against replacement ratio: a line a criterion (and gamma), 95 % t intervals over problems, base and RL."""
    figure, axes = canvas(7.2, 4.0)
    lines: dict[tuple[Any, ...], list[EvalResult]] = {}
    for result in results:
        d = result.decoding
        if d.gated:
            lines.setdefault((d.primary, d.criterion, d.gamma), []).append(result)
    several = len({criterion for _, criterion, _ in lines}) > 1
    for i, ((primary, criterion, gamma), mine) in enumerate(sorted(lines.items())):
        mine.sort(key=lambda result: result.replacement_ratio)
        means = [100 * result.avg for result in mine]
        spans = [_interval(result) for result in mine]
        errors = [[mean - low for mean, (low, _) in zip(means, spans, strict=True)]]
        errors += [[high - mean for mean, (_, high) in zip(means, spans, strict=True)]]
        words = [criterion] if several else []
        words += [f"γ {gamma:g}"] if not several or gamma else []
        words += ["on rl"] if primary == "rl" else []
        axes.errorbar(
            [100 * result.replacement_ratio for result in mine],
            means,
            yerr=errors,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKS[i % len(MARKS)],
            markersize=4,
            linewidth=1.2,
            elinewidth=0.7,
            capsize=2,
            label=" ".join(words),
        )
    for result in results:
        if not result.decoding.gated:
            low, high = _interval(result)
            colour = "#000000" if result.decoding.mode == "rl" else "#8c8c8c"
            axes.axhline(100 * result.avg, color=colour, linewidth=1, linestyle="--", label=result.decoding.mode)
            axes.axhspan(low, high, color=colour, alpha=0.06, linewidth=0)
    axes.set_xlabel("replaced tokens, %")
    axes.set_ylabel(f"Avg@{results[0].samples}, %")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _interval(result: EvalResult) -> tuple[float, float]:
    low, high = stats.t_interval(result.avg, result.standard_error, len(result.problem_ids))
    return 100 * low, 100 * high


def _heat(cells: dict[tuple[float, float], EvalResult], rl: EvalResult | None, title: str) -> Any:
    """Avg by threshold and gamma, the colours centred on RL where it is known: red above, blue below."""
    import numpy as np

    taus, gammas = sorted({tau for tau, _ in cells}), sorted({gamma for _, gamma in cells})
    grid = np.full((len(gammas), len(taus)), np.nan)
    for (tau, gamma), result in cells.items():
        grid[gammas.index(gamma), taus.index(tau)] = 100 * result.avg
    figure, axes = canvas(1.6 + 0.95 * len(taus), 1.3 + 0.55 * len(gammas))
    middle = 100 * rl.avg if rl else float(np.nanmean(grid))
    span = max(1.0, float(np.nanmax(np.abs(grid - middle))))
    axes.imshow(grid, cmap="RdBu_r", vmin=middle - span, vmax=middle + span, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            dark = abs(value - middle) > 0.6 * span
            text = f"{value:.1f}"
            axes.text(column, row, text, ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(len(taus)), [f"{tau:g}" for tau in taus])
    axes.set_yticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set_xlabel("τ")
    axes.set_ylabel("γ")
    axes.set_title(f"{title}: Avg@{next(iter(cells.values())).samples}" + (f", rl {middle:.1f}" if rl else ""))
    return figure

"""The sections of other analyses: Theorem 1 by numbers, and training curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.report.draw import COLOURS, MARKS, canvas, percent_axis, styled, svg
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.report.shapes import title
from harness.stats import SPLITS
from harness.text import visible


def theorem_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show the expected reward of a bandit by gamma, and what noise in the rewards does to it."""
    text = (
        "Theorem 1 says that some γ > 0 does no worse than γ = 0 for a tabular softmax policy trained by natural "
        "policy gradient with exact advantages. In fact the extrapolated policy is that of step (1 + γ)t: no γ does "
        "worse. Where the rewards were noisy the direction holds the noise as well: individual problems lose."
    )
    return Section("Theorem 1 by numbers", (text,), (_theorem(data, f"theorem{f'-{number}' if number else ''}"),))


@styled
def _theorem(data: Mapping[str, Any], name: str) -> Figure:
    figure, (left, right) = canvas(6.4, 3.1, 1, 2)
    gammas, rows = data["gammas"], []
    for i, trial in enumerate(data["trials"]):
        mean, error = np.asarray(trial["mean"]), np.asarray(trial["error"])
        how = {"color": COLOURS[i], "marker": MARKS[i], "markersize": 3.5, "linewidth": 1.2}
        left.errorbar(gammas, mean, yerr=1.96 * error, elinewidth=0.6, label=f"noise {trial['noise']:g}", **how)
        right.plot(gammas, 100 * np.asarray(trial["losing"]), **how)
        rows += [
            (trial["noise"], g, m, e, share)
            for g, m, e, share in zip(gammas, mean.tolist(), error.tolist(), trial["losing"], strict=True)
        ]
    for axes in (left, right):
        axes.set_xscale("symlog", linthresh=0.25)
        axes.set_xticks([0, 0.5, 2, 8, 32], ["0", "0.5", "2", "8", "32"])
        axes.minorticks_off()
        axes.set_xlabel("γ")
    left.set_ylabel("expected true reward")
    right.set_ylabel("bandits worse than at γ = 0, %")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(data["trials"]))
    return Figure(
        name,
        f"Expected true reward of {data['bandits']} random bandits against γ, by the noise in the rewards they were "
        "trained on (standard deviation; true rewards are 0 or 1), and the share of bandits that lose. Bars: 1.96 "
        "standard errors.",
        "Two line charts against γ: the mean expected reward, and the share of bandits that lose, one line a level of "
        "noise. The data are in the CSV file.",
        svg(figure, name), ("noise", "gamma", "expected_reward", "standard_error", "share_losing"), tuple(rows),
        "theorem:extra",
    )  # fmt: skip


TITLES = {
    "rollout_accuracy": "accuracy of rollouts",
    "accuracy": "accuracy or reward of rollouts",  # analyses written before 2026-11-22 did not tell which
    "reward": "reward of rollouts",
    "entropy": "entropy, nats",
    "length": "tokens a rollout",
}


MOST_NAMED = 6  # methods in the title of a section


def training_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Draw validations, and what was seen of the rollouts; several runs of a method as thin lines and their mean."""
    slug, said, parts = f"-{number}" if number else "", [], list[Figure | Table]()
    benchmarks, top_p = data.get("validation") or [], data.get("rollout_top_p") or {}
    known = [what for what in TITLES if data["curves"].get(what)]
    if "reward" in known and set(data["curves"]["reward"]) <= set(data["curves"].get("rollout_accuracy", ())):
        known.remove("reward")  # it says no more
    if len({value for values in top_p.values() for value in values}) > 1:
        known = [what for what in known if what not in ("rollout_accuracy", "accuracy", "reward")]
        drawn = ", ".join(f"{method}: {' and '.join(f'{p:g}' for p in values)}" for method, values in top_p.items())
        said.append(
            f"The accuracy of the rollouts is not drawn: they were drawn at different top-p ({drawn}), and a stronger "
            "filter makes rollouts of one model right more often. Validations are drawn alike."
        )
    if benchmarks:
        parts.append(_validations(benchmarks, f"validation{slug}"))
    if any(each["choices"] for each in benchmarks):
        parts.append(_choices(benchmarks, f"choosing{slug}"))
    if known:
        parts.append(_curves(data, known, f"training{slug}"))
    parts += [_mass(data["gradient"], f"training-gradient{slug}")] if data.get("gradient") else []
    methods = list(dict.fromkeys(method for curve in data["curves"].values() for method in curve))
    named = ", ".join(methods[:MOST_NAMED]) + (" and others" if len(methods) > MOST_NAMED else "")
    return Section(f"Training: {named}" if named else "Training", tuple(said), tuple(parts))


def _benchmark(one: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """Name a benchmark, with how it was drawn where the same is there drawn in another way."""
    same = [other for other in among if other["task"] == one["task"]]
    words = [word for word in (one["limited"], one["drawn"] if len(same) > 1 else "") if word]
    name = title(one["task"]) + (f" ({'; '.join(words)})" if words else "")
    return f"{name}, Avg@{one['samples']}" if one["samples"] else name


def _panels(count: int, **how: Any) -> tuple[Any, list[Any]]:
    columns = min(count, 3)
    rows = -(-count // columns)
    figure, grid = canvas(6.4, 2.7 * rows, rows, columns, squeeze=False, **how)
    panels = list(grid.flat)
    for panel in panels[count:]:
        panel.set_visible(False)
    return figure, panels[:count]


@styled
def _validations(benchmarks: Sequence[Mapping[str, Any]], name: str) -> Figure:
    figure, panels = _panels(len(benchmarks))
    methods = list(dict.fromkeys(method for one in benchmarks for method in one["means"]))
    rows: list[tuple[Any, ...]] = []
    for axes, one in zip(panels, benchmarks, strict=True):
        label = _benchmark(one, benchmarks)
        for method, points in one["means"].items():
            colour, runs = COLOURS[methods.index(method) % len(COLOURS)], one["runs"][method]
            for i, run in enumerate(runs, 1):
                if len(runs) > 1:
                    axes.plot(*zip(*run, strict=True), color=colour, linewidth=0.6, alpha=0.5)
                rows += [(label, method, i, step, value, None, None) for step, value in run]
            if not points:
                continue  # runs without a step in common
            steps, means, lows, highs = zip(*points, strict=True)
            shown = visible(method, 30) + (f", mean of {len(runs)}" if len(runs) > 1 else "")
            axes.plot(steps, means, color=colour, linewidth=1.6, marker="o", markersize=2.5, label=shown)
            if all(low is not None for low in lows):
                axes.fill_between(steps, lows, highs, color=colour, alpha=0.15, linewidth=0)
            rows += [(label, method, "mean", *point) for point in points]
        axes.set_title(visible(label, 60))
        axes.set_xlabel("step")
        percent_axis(axes.yaxis)
        if axes is panels[0] and axes.get_legend_handles_labels()[0]:
            axes.legend()
    drawn = "; ".join(dict.fromkeys(one["drawn"] for one in benchmarks if one["drawn"]))
    return Figure(
        name,
        "Validations over training"
        + (f", drawn at {drawn}" if drawn else "")
        + ". Step 0 is the base. Thin lines are runs, thick ones the mean of a method's runs; shaded its 95 % interval "
        "over problems and, of several runs, over seeds.",
        f"Line charts of the accuracy on {len(benchmarks)} benchmarks over training steps for {len(methods)} methods.",
        svg(figure, name), ("benchmark", "method", "run", "step", "avg", "low", "high"), tuple(rows),
        "fig:training_curve, fig:replicate, fig:probs (c)",
    )  # fmt: skip


def _choices(benchmarks: Sequence[Mapping[str, Any]], name: str) -> Table:
    """Set the last checkpoint, the mean of the last few and the best side by side, and what the choice is worth."""
    heads = ("Last", "Mean of last", "Best of N", "Chosen elsewhere", "Choosing is worth")
    columns = [Column("Benchmark", words=True), Column("Method", words=True), *(Column(head) for head in heads)]
    rows = []
    for one in benchmarks:
        for method, c in one["choices"].items():
            steps, many = sorted(c["steps"]), len(one["runs"][method])
            at = f"step {steps[0]:g}" if len(set(steps)) == 1 else f"steps {steps[0]:g}–{steps[-1]:g}"
            numbers = [c["last"], c["last_mean"], c["best"], c["elsewhere"]]
            worth = None if c["elsewhere"] is None else c["best"] - c["elsewhere"]
            small = [f"step {c['last_step']:g}", f"of {c['averaged']}", f"of {c['validations']}, {at}", ""]
            cells = [
                Cell("–") if value is None else Cell(f"{100 * value:.2f}", 100 * value, (word,) if word else ())
                for value, word in zip(numbers, small, strict=True)
            ]
            cells.append(Cell("–") if worth is None else Cell(f"{100 * worth:+.2f}", 100 * worth))
            shown = method + (f" ({many} seeds)" if many > 1 else "")
            rows.append(Row((Cell(_benchmark(one, benchmarks)), Cell(shown), *cells)))
    note = (
        "Validations of one training, in percent; of several seeds the mean over them. Best of N is chosen by the very "
        "scores it is reported with, and so is too high. Chosen elsewhere: the problems are split in halves at random "
        f"({SPLITS:,} times), the best checkpoint by one half is scored on the other. Choosing is worth the difference."
    )
    return Table(name, "How the checkpoint is chosen.", tuple(columns), tuple(rows), (note,))


@styled
def _curves(data: Mapping[str, Any], known: Sequence[str], name: str) -> Figure:
    figure, panels = _panels(len(known))
    rows: list[tuple[Any, ...]] = []
    methods = list(dict.fromkeys(method for what in known for method in data["curves"][what]))
    for axes, what in zip(panels, known, strict=True):
        for method, runs in data["curves"][what].items():
            colour = COLOURS[methods.index(method) % len(COLOURS)]
            for i, run in enumerate(runs, 1):
                x, y = zip(*run, strict=True)
                alone = len(runs) == 1
                label = visible(method, 30) if alone else None
                axes.plot(x, y, color=colour, linewidth=1.3 if alone else 0.6, alpha=1 if alone else 0.6, label=label)
                rows += [(what, method, i, step, value) for step, value in run]
            if len(runs) > 1:
                shared = sorted(set.intersection(*({step for step, _ in run} for run in runs)))
                mean = [float(np.mean([dict(map(tuple, run))[step] for run in runs])) for step in shared]
                axes.plot(
                    shared, mean, color=colour, linewidth=1.6, label=visible(f"{method}, mean of {len(runs)}", 40)
                )
        axes.set_xlabel("step")
        axes.set_ylabel(TITLES[what])
    panels[0].legend()
    titles = ", ".join(TITLES[what] for what in known)
    return Figure(
        name,
        f"Rollouts during training, on the training's own problems: {titles}. Thin lines are runs, thick ones the mean "
        "of a method's runs.",
        f"Line charts of {titles} over training steps for {len(methods)} methods.",
        svg(figure, name), ("curve", "method", "run", "step", "value"), tuple(rows),
        "fig:training_curve",
    )  # fmt: skip


@styled
def _mass(data: Mapping[str, Any], name: str) -> Figure:
    """Draw who owns the gradient of the training itself, by probability."""
    figure, grid = canvas(1.2 + 2.4 * len(data), 2.7, 1, len(data), squeeze=False, sharey=True)
    rows: list[tuple[Any, ...]] = []
    for axes, (method, one) in zip(grid[0], data.items(), strict=True):
        bins = len(one["token_share"])
        at = np.arange(bins)
        axes.bar(at - 0.2, one["token_share"], 0.38, color=COLOURS[6], label="tokens")
        axes.bar(at + 0.2, one["gradient_share"], 0.38, color=COLOURS[0], label="gradient mass")
        axes.set_xticks(np.arange(bins + 1) - 0.5, [f"{i / bins:g}" for i in range(bins + 1)], fontsize=7)
        axes.set_title(visible(method, 30))
        axes.set_xlabel("p of the token")
        percent_axis(axes.yaxis)
        both = zip(one["token_share"], one["gradient_share"], strict=True)
        rows += [(method, i / bins, (i + 1) / bins, tokens, mass) for i, (tokens, mass) in enumerate(both)]
    steps = {one.get("step") for one in data.values()} - {None}
    when = f"step {steps.pop()}" if steps else "mean over the steps"
    grid[0][0].set_ylabel("share")
    grid[0][0].legend()
    return Figure(
        name,
        f"Share of tokens and of gradient mass 2|r A|(1 − π) during training, by probability; {when} of each method's "
        "first run.",
        f"Bar charts of token and gradient shares by probability for {len(data)} methods.",
        svg(figure, name), ("method", "p_from", "p_to", "token_share", "gradient_share"), tuple(rows), "fig:probs (a)",
    )  # fmt: skip

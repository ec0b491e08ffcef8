"""The chapters of trainings: validations and rollouts by step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.analysis.result import Analysis, Frame
from harness.report.draw import BASE, COLOURS, drawing, percent_axis
from harness.report.model import Chapter, Section, cell, frame
from harness.report.rows import estimate
from harness.report.shapes import benchmark_title
from harness.stats import SPLITS, Estimate
from harness.text import visible

TITLES = {
    "rollout_accuracy": "accuracy of rollouts",
    "reward": "reward of rollouts",
    "entropy": "entropy, nats",
    "length": "tokens a rollout",
}
MOST_NAMED = 6  # methods in the title of a chapter


def training_chapter(found: Analysis, slug: str = "") -> Chapter:
    """Draw validations, and what was seen of the rollouts; several runs of a method as thin lines and their mean."""
    said: list[str] = []
    sections: list[Section] = []
    curves, top_p = [*found.tables["curves"]], found.facts["rollout_top_p"]
    methods_of = {what: {row["method"] for row in curves if row["curve"] == what} for what in TITLES}
    known = [what for what, methods in methods_of.items() if methods]
    if "reward" in known and methods_of["reward"] <= methods_of["rollout_accuracy"]:
        known.remove("reward")  # it says no more
    if len({value for values in top_p.values() for value in values}) > 1:
        known = [what for what in known if what not in ("rollout_accuracy", "reward")]
        told = ", ".join(f"{method}: {' and '.join(f'{p:g}' for p in values)}" for method, values in top_p.items())
        said.append(
            f"The accuracy of the rollouts is not drawn: they were drawn at different top-p ({told}), and a stronger "
            "filter makes rollouts of one model right more often. Validations are drawn alike."
        )
    if found.tables["runs"]:
        sections.append(_validations(found, f"validation{slug}"))
    if found.tables["choices"]:
        sections.append(_choices(found, f"choosing{slug}"))
    if known:
        sections.append(_rollouts(found, known, f"training{slug}"))
    if found.tables["gradient"]:
        sections.append(_mass(found, f"training-gradient{slug}"))
    methods = list(dict.fromkeys(str(row["method"]) for table in ("curves", "runs") for row in found.tables[table]))
    named = ", ".join(methods[:MOST_NAMED]) + (" and others" if len(methods) > MOST_NAMED else "")
    return Chapter(f"Training: {named}" if named else "Training", tuple(said), tuple(sections))


def _benchmark(one: Any) -> str:
    name = benchmark_title(str(one["benchmark"]))
    return f"{name}, Avg@{one['samples']}" if one["samples"] else name


def _curves(
    name: str, panels: dict[str, tuple[Frame, list[tuple[str, list[Any], list[Estimate]]]]], value: str
) -> tuple[Any, list[str]]:
    """Draw panels of curves: the runs of each method thin, and means by method with their bands; return it."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    methods = list(dict.fromkeys(method for runs, _ in panels.values() for method in runs["method"]))
    with drawing(name, 6.4, 2.7 * rows, rows, columns) as made:
        for axes in list(made.axes.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, (runs, means)) in zip(made.axes.flat, panels.items(), strict=False):
            drawn_means = {method for method, *_ in means}
            for (method, _), run in runs.groupby(["method", "run"], sort=False):
                alone = (runs["method"] == method).sum() == len(run)
                how = {"color": COLOURS[methods.index(method) % len(COLOURS)]}
                if not alone or method not in drawn_means:
                    shown = visible(method, 30) if alone else None
                    axes.plot(list(run["step"]), list(run[value]), linewidth=0.6, alpha=0.6, label=shown, **how)
            for method, steps, many in means:
                colour = COLOURS[methods.index(method) % len(COLOURS)]
                count = runs[runs["method"] == method]["run"].nunique()
                label = visible(method, 30) + (f", mean of {count}" if count > 1 else "")
                axes.plot(steps, [one.value for one in many], color=colour, linewidth=1.6, label=label)
                if all(one.low is not None for one in many):
                    low, high = ([getattr(one, end) for one in many] for end in ("low", "high"))
                    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(visible(title, 60))
            axes.set_xlabel("step")
            if value == "avg" and runs["samples"].all():
                percent_axis(axes.yaxis)
        if (named := made.axes[0, 0].get_legend_handles_labels())[0]:
            made.figure.legend(*named, loc="outside upper center", ncols=min(4, len(named[0])))
    return made, methods


def _validations(found: Analysis, name: str) -> Section:
    runs, keys = found.frame("runs"), ["benchmark", "samples", "drawn"]
    panels = {}
    for key, mine in runs.groupby(keys, sort=False):
        lines: dict[str, tuple[list[Any], list[Estimate]]] = {}
        for row in found.tables["means"]:
            if tuple(row[name] for name in keys) == key:
                steps, many = lines.setdefault(row["method"], ([], []))
                steps.append(row["step"])
                many.append(estimate(row, "avg"))
        panels[_benchmark(mine.iloc[0])] = (mine, [(method, *line) for method, line in lines.items()])
    made, methods = _curves(name, panels, "avg")
    told = "; ".join(dict.fromkeys(each for each in runs["drawn"] if each))
    rows = [
        {"benchmark": _benchmark(one), "method": one["method"], "run": one.get("run", "mean"), "step": one["step"]}
        | {"avg": one["avg"], "low": one.get("avg_low"), "high": one.get("avg_high")}
        for one in (*found.tables["runs"], *found.tables["means"])
    ]
    title = f"Validations over training{f', drawn at {told}' if told else ''}"
    note = (
        "Step 0 is the base. Thin lines are runs, thick ones the mean of a method's runs; shaded its 95 % interval "
        "over problems and, of several runs, over seeds."
    )
    alt = f"Line charts of the accuracy on {len(panels)} benchmarks over training steps for {len(methods)} methods."
    paper = "fig:training_curve, fig:replicate, fig:probs (c)"
    return Section(name, title, frame(rows), (note,), made.svg, alt, paper)


def _choices(found: Analysis, name: str) -> Section:
    """Set the last checkpoint, the mean of the last few and the best side by side, and what the choice is worth."""
    rows = []
    for one in found.tables["choices"]:
        first, last = one["first_best_step"], one["last_best_step"]
        at = f"step {first:g}" if first == last else f"steps {first:g}–{last:g}"
        best, elsewhere = Estimate(one["best"]), one["elsewhere"]
        worth = None if elsewhere is None else (best.value or 0.0) - elsewhere
        rows.append(
            {
                "Benchmark": _benchmark(one),
                "Method": f"{one['method']}" + (f" ({one['runs']} seeds)" if one["runs"] > 1 else ""),
                "Last": cell(one["last"], beside=[f"step {one['last_step']:g}"]),
                "Mean of last": cell(one["last_mean"], beside=[f"of {one['averaged']}"]),
                "Best of N": cell(best, beside=[f"of {one['validations']}, {at}"]),
                "Chosen elsewhere": cell(elsewhere),
                "Choosing is worth": cell(worth, plus=True),
            }
        )
    note = (
        "Validations of one training, in percent; of several seeds the mean over them. Best of N is chosen by the very "
        "scores it is reported with, and so is too high. Chosen elsewhere: the problems are split in halves at random "
        f"({SPLITS:,} times), the best checkpoint by one half is scored on the other. Choosing is worth the difference."
    )
    return Section(name, "How the checkpoint is chosen.", frame(rows), (note,))


def _rollouts(found: Analysis, known: Sequence[str], name: str) -> Section:
    curves, panels = found.frame("curves"), {}
    for what in known:
        mine = curves[curves["curve"] == what]
        means = []
        for method, each in mine.groupby("method", sort=False):
            steps = each.groupby("step")["value"].agg(["mean", "count"])
            shared = steps[steps["count"] == each["run"].nunique()]
            means.append((method, list(shared.index), [Estimate(value) for value in shared["mean"]]))
        panels[TITLES[what]] = (mine, means)
    made, methods = _curves(name, panels, "value")
    titles = ", ".join(panels)
    note = "On the training's own problems. Thin lines are runs, thick ones the mean of a method's runs."
    if part := found.facts.get("learned_from"):
        note += f" Of {', '.join(part)} only those rollouts that were learned from, whose groups are right in part."
    alt = f"Line charts of {titles} over training steps for {len(methods)} methods."
    data = curves[curves["curve"].isin(list(known))].reset_index(drop=True)
    return Section(name, f"Rollouts during training: {titles}", data, (note,), made.svg, alt, "fig:training_curve")


def _mass(found: Analysis, name: str) -> Section:
    """Draw who owns the gradient of the training itself, by probability."""
    data = found.frame("gradient")
    methods = dict(list(data.groupby("method", sort=False)))
    with drawing(name, 1.2 + 2.4 * len(methods), 2.7, 1, len(methods), sharey=True) as made:
        for axes, (method, mine) in zip(made.axes[0], methods.items(), strict=True):
            at = np.arange(len(mine))
            axes.bar(at - 0.2, list(mine["token_share"]), 0.38, color=BASE, label="tokens")
            axes.bar(at + 0.2, list(mine["gradient_share"]), 0.38, color=COLOURS[0], label="gradient mass")
            edges = [*mine["p_from"], 1.0]
            axes.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:g}" for edge in edges], fontsize=7)
            axes.set_title(visible(method, 30))
            axes.set_xlabel("p of the token")
            percent_axis(axes.yaxis)
        made.axes[0, 0].set_ylabel("share")
        made.axes[0, 0].legend()
    when = "mean over the steps" if found.facts["step"] is None else f"step {found.facts['step']}"
    title = "Share of tokens and of gradient mass 2|r A|(1 − π) during training, by probability"
    alt = f"Bar charts of token and gradient shares by probability for {len(methods)} methods."
    note = f"{when.capitalize()} of each method's first run."
    return Section(name, title, data, (note,), made.svg, alt, "fig:probs (a)")

"""Make the chapters about trainings: validations and rollouts by step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.report.draw import BASE, COLOURS, drawing, percent_axis
from rlvr_dir.report.layouts import benchmark_title
from rlvr_dir.report.model import Chapter, Section, cell, frame
from rlvr_dir.report.rows import estimate
from rlvr_dir.stats import SPLITS, Estimate
from rlvr_dir.text import visible

TITLES = {
    "rollout_accuracy": "accuracy of rollouts",
    "reward": "reward of rollouts",
    "entropy": "entropy, nats",
    "length": "tokens a rollout",
}
MOST_NAMED = 6  # the most methods in the title of a chapter


def training_chapter(analysis: Analysis, slug: str = "") -> Chapter:
    """Draw validations and statistics of the rollouts; several runs of a method as thin lines and their mean."""
    paragraphs: list[str] = []
    sections: list[Section] = []
    curves, top_p = [*analysis.tables["curves"]], analysis.context["rollout_top_p"]
    methods_of = {curve: {row["method"] for row in curves if row["curve"] == curve} for curve in TITLES}
    nonempty = [curve for curve, methods in methods_of.items() if methods]
    if "reward" in nonempty and methods_of["reward"] <= methods_of["rollout_accuracy"]:
        nonempty.remove("reward")  # it adds nothing
    if len({value for values in top_p.values() for value in values}) > 1:
        nonempty = [curve for curve in nonempty if curve not in ("rollout_accuracy", "reward")]
        drawn_at = ", ".join(f"{method}: {' and '.join(f'{p:g}' for p in values)}" for method, values in top_p.items())
        paragraphs.append(
            f"The accuracy of the rollouts is not drawn: they were drawn at different top-p ({drawn_at}), and a "
            "stronger filter makes rollouts of one model right more often. Validations are drawn alike."
        )
    if analysis.tables["runs"]:
        sections.append(_validations(analysis, f"validation{slug}"))
    if analysis.tables["choices"]:
        sections.append(_choices(analysis, f"choosing{slug}"))
    if nonempty:
        sections.append(_rollouts(analysis, nonempty, f"training{slug}"))
    if analysis.tables["gradient"]:
        sections.append(_mass(analysis, f"training-gradient{slug}"))
    methods = list(dict.fromkeys(str(row["method"]) for table in ("curves", "runs") for row in analysis.tables[table]))
    named = ", ".join(methods[:MOST_NAMED]) + (" and others" if len(methods) > MOST_NAMED else "")
    return Chapter(f"Training: {named}" if named else "Training", tuple(paragraphs), tuple(sections))


def _benchmark(row: Any) -> str:
    name = benchmark_title(str(row["benchmark"]))
    return f"{name}, Avg@{row['samples']}" if row["samples"] else name


def _curves(
    name: str, panels: dict[str, tuple[Frame, list[tuple[str, list[Any], list[Estimate]]]]], value: str
) -> tuple[Any, list[str]]:
    """Draw panels of curves: the runs of each method thin, and means by method with their bands; return the figure."""
    methods = list(dict.fromkeys(method for runs, _ in panels.values() for method in runs["method"]))
    with drawing(name, 2.4, len(panels)) as drawn:
        for axes, (title, (runs, means)) in zip(drawn.axes, panels.items(), strict=True):
            drawn_means = {method for method, *_ in means}
            for (method, _), run in runs.groupby(["method", "run"], sort=False):
                alone = (runs["method"] == method).sum() == len(run)
                style = {"color": COLOURS[methods.index(method) % len(COLOURS)]}
                if not alone or method not in drawn_means:
                    label_alone = visible(method, 30) if alone else None
                    axes.plot(list(run["step"]), list(run[value]), linewidth=0.6, alpha=0.6, label=label_alone, **style)
            for method, steps, many in means:
                colour = COLOURS[methods.index(method) % len(COLOURS)]
                count = runs[runs["method"] == method]["run"].nunique()
                label = visible(method, 30) + (f", mean of {count}" if count > 1 else "")
                axes.plot(steps, [mean.value for mean in many], color=colour, linewidth=1.6, label=label)
                if all(mean.low is not None for mean in many):
                    low, high = ([getattr(mean, end) for mean in many] for end in ("low", "high"))
                    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(visible(title, 60))
            axes.set_xlabel("step")
            if value == "avg" and runs["samples"].all():
                percent_axis(axes.yaxis)
        if (named := drawn.one.get_legend_handles_labels())[0]:
            drawn.figure.legend(*named, loc="outside upper center", ncols=min(2, len(named[0])))
    return drawn, methods


def _validations(analysis: Analysis, name: str) -> Section:
    runs, keys = analysis.frame("runs"), ["benchmark", "samples", "drawn"]
    panels = {}
    for key, panel in runs.groupby(keys, sort=False):
        lines: dict[str, tuple[list[Any], list[Estimate]]] = {}
        for row in analysis.tables["means"]:
            if tuple(row[name] for name in keys) == key:
                steps, many = lines.setdefault(row["method"], ([], []))
                steps.append(row["step"])
                many.append(estimate(row, "avg"))
        panels[_benchmark(panel.iloc[0])] = (panel, [(method, *line) for method, line in lines.items()])
    drawn, methods = _curves(name, panels, "avg")
    drawn_at = "; ".join(dict.fromkeys(words for words in runs["drawn"] if words))
    rows = [
        {"benchmark": _benchmark(row), "method": row["method"], "run": row.get("run", "mean"), "step": row["step"]}
        | {"avg": row["avg"], "low": row.get("avg_low"), "high": row.get("avg_high")}
        for row in (*analysis.tables["runs"], *analysis.tables["means"])
    ]
    title = f"Validations over training{f', drawn at {drawn_at}' if drawn_at else ''}"
    note = (
        "Step 0 is the base. Thin lines are runs, thick ones the mean of a method's runs; shaded its 95 % interval "
        "over problems and, of several runs, over seeds."
    )
    alt = f"Line charts of the accuracy on {len(panels)} benchmarks over training steps for {len(methods)} methods."
    paper = "fig:training_curve, fig:replicate, fig:probs (c)"
    return Section(name, title, frame(rows), (note,), drawn.svg, alt, paper)


def _choices(analysis: Analysis, name: str) -> Section:
    """Compare the last checkpoint, the mean of the last few and the best, and estimate what the choice is worth."""
    rows = []
    for choice in analysis.tables["choices"]:
        first, last = choice["first_best_step"], choice["last_best_step"]
        at = f"step {first:g}" if first == last else f"steps {first:g}–{last:g}"
        best, elsewhere = Estimate(choice["best"]), choice["elsewhere"]
        worth = None if elsewhere is None else (best.value or 0.0) - elsewhere
        rows.append(
            {
                "Benchmark": _benchmark(choice),
                "Method": f"{choice['method']}" + (f" ({choice['runs']} seeds)" if choice["runs"] > 1 else ""),
                "Last": cell(choice["last"], beside=[f"step {choice['last_step']:g}"]),
                "Mean of last": cell(choice["last_mean"], beside=[f"of {choice['averaged']}"]),
                "Best of N": cell(best, beside=[f"of {choice['validations']}, {at}"]),
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


def _rollouts(analysis: Analysis, names: Sequence[str], name: str) -> Section:
    curves, panels = analysis.frame("curves"), {}
    for curve in names:
        rows = curves[curves["curve"] == curve]
        means = []
        for method, by_method in rows.groupby("method", sort=False):
            steps = by_method.groupby("step")["value"].agg(["mean", "count"])
            shared = steps[steps["count"] == by_method["run"].nunique()]
            means.append((method, list(shared.index), [Estimate(value) for value in shared["mean"]]))
        panels[TITLES[curve]] = (rows, means)
    drawn, methods = _curves(name, panels, "value")
    titles = ", ".join(panels)
    note = "On the training's own problems. Thin lines are runs, thick ones the mean of a method's runs."
    if part := analysis.context.get("learned_from"):
        note += f" Of {', '.join(part)} only those rollouts that were learned from, whose groups are right in part."
    alt = f"Line charts of {titles} over training steps for {len(methods)} methods."
    data = curves[curves["curve"].isin(list(names))].reset_index(drop=True)
    return Section(name, f"Rollouts during training: {titles}", data, (note,), drawn.svg, alt, "fig:training_curve")


def _mass(analysis: Analysis, name: str) -> Section:
    """Draw the gradient of the training itself, by probability."""
    data = analysis.frame("gradient")
    methods = dict(list(data.groupby("method", sort=False)))
    with drawing(name, 2.4, len(methods)) as drawn:
        for axes, (method, bins) in zip(drawn.axes, methods.items(), strict=True):
            at = np.arange(len(bins))
            axes.bar(at - 0.2, list(bins["token_share"]), 0.38, color=BASE, label="tokens")
            axes.bar(at + 0.2, list(bins["gradient_share"]), 0.38, color=COLOURS[0], label="gradient mass")
            edges = [*bins["p_from"], 1.0]
            axes.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:g}" for edge in edges])
            axes.set_title(visible(method, 30))
            axes.set_xlabel("p of the token")
            axes.set_ylabel("share")
            percent_axis(axes.yaxis)
        drawn.one.legend()
    when = "mean over the steps" if analysis.context["step"] is None else f"step {analysis.context['step']}"
    title = "Share of tokens and of gradient mass 2|r A|(1 − π) during training, by probability"
    alt = f"Bar charts of token and gradient shares by probability for {len(methods)} methods."
    note = f"{when.capitalize()} of each method's first run."
    return Section(name, title, data, (note,), drawn.svg, alt, "fig:probs (a)")

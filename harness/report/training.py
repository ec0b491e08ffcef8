"""The chapters of trainings: validations and rollouts by step, and one training checkpoint by checkpoint."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from harness.analysis.result import Analysis, Frame
from harness.report.draw import BASE, COLOURS, MARKS, RL, drawing, line, look, percent_axis
from harness.report.groups import pair_title
from harness.report.model import SPLIT, Cell, Chapter, Section, cell, frame
from harness.report.responses import OVER
from harness.report.rows import drawn, estimate, estimates, tasks_of
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


# One training, checkpoint by checkpoint

WRITERS = {"base": ("base's text", BASE), "rl": ("the last RL's text", RL)}
SETS = {"all": "whole vocabulary", "top": "ten likeliest", "nucleus": "nucleus, 0.95"}


def trajectory_chapter(found: Analysis, slug: str = "") -> Chapter:
    """Show what a training did, checkpoint by checkpoint."""
    texts = found.frame("texts").set_index("writer")
    whose = pair_title(str(found.facts["pair"].get("rl")))
    each = ", ".join(f"{texts['tokens'][who]:,} tokens of {words}" for who, (words, _) in WRITERS.items())
    checkpoints = {row["checkpoint"] for row in found.tables["checkpoints"]}
    said = (
        f"{len(checkpoints)} checkpoints of one training, on {tasks_of(found)}: {drawn(found)}. Every checkpoint and "
        f"base scored the same text: {each} ({texts['problems']['base']} problems). Intervals are over problems."
    )
    sections = [
        _by_step(found, f"trajectory{slug}"),
        _accuracy(found, whose, f"trajectory-accuracy{slug}"),
        _changes(found, whose, f"trajectory-change{slug}"),
    ]
    if found.tables["extrapolated"]:
        data = found.frame("extrapolated")
        data.insert(0, "checkpoints", [visible(f"{r['early']}, {r['late']} → {r['real']}", 80) for r in found.tables["extrapolated"]])  # noqa: E501  # fmt: skip
        sections += [_extrapolated(data, f"extrapolated{slug}"), _logits(data, whose, f"extrapolated-logits{slug}")]
    return Chapter(f"A training by step: {whose}", (said,), tuple(sections))


def _by_step(found: Analysis, name: str) -> Section:
    """Draw accuracy, what the checkpoints think of given text, and the change of the weights, by step."""
    rows: list[dict[str, Any]] = []
    tau = found.facts["tau"]
    with drawing(name, 5.8, 6.6, 3, 2, sharex=True) as made:
        grid = made.axes

        def draw(
            axes: Any, what: str, of: str, points: Iterable[tuple[float, Estimate]], colour: str, mark: str
        ) -> None:
            steps, many = zip(*points, strict=True)
            line(axes, steps, many, of, color=colour, marker=mark)
            for step, one in zip(steps, many, strict=True):
                ends = {"value": one.value, "low": one.low, "high": one.high}
                rows.append({"what": what, "of": of, "step": step, **ends})

        for i, (task, mine) in enumerate(found.frame("scores").groupby("task", sort=False)):
            points = zip(mine["step"], estimates(mine, "accuracy"), strict=True)
            draw(grid[0, 0], "accuracy", str(task), points, COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)])
        text = found.frame("checkpoints")
        for axes, what, mark in (
            (grid[0, 1], "kl", "o"),
            (grid[1, 0], "delta_logp", "o"),
            (grid[1, 1], "above", "^"),
            (grid[1, 1], "below", "v"),
        ):
            for who, (words, colour) in WRITERS.items():
                mine = text[text["writer"] == who]  # base against itself: nothing differs
                points = [(0, Estimate(0.0)), *zip(mine["step"], estimates(mine, what), strict=True)]
                draw(axes, what, words, points, colour, mark)
        norm = _norm_of_base(found)
        for since, words, colour in (("base", "since base", 0), ("before", "since the checkpoint before", 2)):
            mine = [row for row in found.tables["weights"] if row["since"] == since]
            for axes, what in ((grid[2, 0], "moved"), (grid[2, 1], "norm")) if mine else ():
                points = [(row["step"], Estimate(_share(row, norm)[what])) for row in mine]
                draw(axes, f"weights {what}", words, points, COLOURS[colour], "o")
        titles = (
            "accuracy", "KL, mean of both ways, nats", "mean Δ log p, nats", f"tokens: ▲ Δ > {-tau:g}, ▼ Δ < {tau:g}",
            "weights moved by > 1e-5", "norm of the change, of base's",
        )  # fmt: skip
        for axes, title in zip(grid.flat, titles, strict=True):
            axes.set_title(title)
            handles, labels = axes.get_legend_handles_labels()
            if named := dict(zip(reversed(labels), reversed(handles), strict=True)):  # one of each name
                axes.legend(named.values(), named.keys(), fontsize=6)
        for axes in (grid[0, 0], grid[1, 1], grid[2, 0], grid[2, 1]):
            percent_axis(axes.yaxis)
        for axes in grid[2]:
            axes.set_xlabel("step of the training")
    title = (
        "A training by step: accuracy; what base and each checkpoint think of the same text; how far the weights are"
    )
    return Section(name, title, frame(rows), (f"Step 0 is base. {OVER}",), made.svg, "Six line charts by step.")


def _norm_of_base(found: Analysis) -> float:
    return next((row["norm"] for row in found.tables["weights"] if row["since"] == "base"), 0.0)


def _share(counted: Any, norm: float) -> dict[str, float]:
    """Return as shares what was counted of two checkpoints' weights; `norm` is base's."""
    return {
        "changed": counted["changed"] / counted["numbers"],
        "moved": counted["moved"] / counted["numbers"],
        "norm": counted["difference"] / norm if norm else 0.0,
    }


def _accuracy(found: Analysis, whose: str, name: str) -> Section:
    """List the accuracy of every checkpoint, and its differences to base and to the one before."""
    by = {(row["task"], row["label"], row["minus"]): row for row in found.tables["differences"]}
    before: dict[Any, Any] = {}
    rows = []
    for one in found.tables["scores"]:
        task, label = one["task"], one["checkpoint"]
        minus = {"− base": by.get((task, label, "base")), "− the checkpoint before": None}
        if (last := before.get(task)) not in (None, "base"):
            minus["− the checkpoint before"] = by.get((task, label, last))
        about = {"Checkpoint": str(label), "Benchmark": str(task), "Step": cell(one["step"], 0, unit=1)}
        rows.append({**about, "Avg": cell(estimate(one, "accuracy"), 1)})
        for title, row in minus.items():
            star = "*" if row is not None and (row["holm_p"] or 1.0) < 0.05 else ""
            rows[-1][title] = Cell("–") if row is None else cell(estimate(row, "difference"), 1, plus=True, sign=star)
        before[task] = label
    note = (
        "Percent and points, 95 % intervals over problems, differences paired by problem; a star: p < 0.05 after "
        f"Holm's correction over the {len(by)} differences here."
    )
    return Section(name, f"{whose}: accuracy by step.", frame(rows), (note,))


def _changes(found: Analysis, whose: str, name: str) -> Section:
    """List what changed since base, of log-probabilities and of weights, checkpoint by checkpoint."""
    tau, norm, rows = found.facts["tau"], _norm_of_base(found), []
    counted = {(row["checkpoint"], row["since"]): _share(row, norm) for row in found.tables["weights"]}
    writers = {row["checkpoint"]: row for row in reversed(found.tables["checkpoints"])}  # base's where it is there
    for checkpoint, one in reversed(list(writers.items())):
        weights = counted.get((checkpoint, "base"), {})
        rows.append(
            {
                "Checkpoint": str(checkpoint),
                "Mean Δ log p": cell(estimate(one, "delta_logp"), 4, unit=1),
                f"Δ log p < {tau:g}": cell(estimate(one, "below"), suffix=" %"),
                f"Δ log p > {-tau:g}": cell(estimate(one, "above"), suffix=" %"),
                "KL": cell(estimate(one, "kl"), 4, unit=1),
                "Entropy": cell(estimate(one, "entropy_rl"), 3, unit=1),
                "Weights changed": cell(weights.get("changed"), suffix=" %"),
                "> 1e-5": cell(weights.get("moved"), suffix=" %"),
                "Norm of the change, of base's": cell(weights.get("norm"), 3, suffix=" %"),
                "since the checkpoint before": cell(
                    counted.get((checkpoint, "before"), {}).get("norm"), 3, suffix=" %"
                ),
            }
        )
    note = (
        "Of the tokens of base's text, each checkpoint against base, in nats; KL is the mean of both ways. Brackets: "
        "95 % intervals over problems. The weights against base's."
    )
    return Section(name, f"{whose}: what changed by step.", frame(rows), (note,))


def _extrapolated(data: Frame, name: str) -> Section:
    """Draw which share of the change to a later checkpoint is extrapolated, and how far one should have gone."""
    data = data[data["what"].isin(["explained", "best_gamma"])].reset_index(drop=True)
    cases = list(dict.fromkeys(zip(data["checkpoints"], data["gamma"], strict=True)))
    with drawing(name, 6.6, 1.4 + 0.34 * len(cases), 1, 2, sharey=True) as made:
        left, right = made.axes[0]
        for i, (kind, words) in enumerate(SETS.items()):
            for axes, what in ((left, "explained"), (right, "best_gamma")):
                mine = data[(data["over"] == kind) & (data["what"] == what)].dropna(subset=["value", "low", "high"])
                rows = mine.to_dict("records")
                if rows:
                    units = [row["gamma"] if what == "best_gamma" else 1.0 for row in rows]
                    at = [cases.index((row["checkpoints"], row["gamma"])) + 0.2 * (i - 1) for row in rows]
                    values, low, high = ([row[end] / u for row, u in zip(rows, units, strict=True)] for end in ("value", "low", "high"))  # noqa: E501  # fmt: skip
                    spans = [np.subtract(values, low), np.subtract(high, values)]
                    how = look(i, markersize=3.5, linewidth=0, elinewidth=0.8, capsize=1.5)
                    axes.errorbar(values, at, xerr=spans, label=words, **how)
        left.set_yticks(range(len(cases)), [f"{names}, γ {gamma:.3g}" for names, gamma in cases])
        left.invert_yaxis()
        left.set_xlim(right=1.0)
        percent_axis(left.xaxis)
        left.set_xlabel("of the change explained")
        right.axvline(1.0, color=BASE, linewidth=0.8, linestyle=":")
        right.set_xlabel("best γ, over the γ of the steps")
        if right.get_legend_handles_labels()[1]:
            made.figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    title = "Logits extrapolated in a straight line from two checkpoints to a later one"
    note = (
        "Left: the share of the change since the second one that they get right (0: no better than staying there). "
        f"Right: the γ that fits best, over that of the steps (1: one speed). {OVER}"
    )
    shown = data[["checkpoints", "gamma", "over", "what", "value", "low", "high"]]
    return Section(name, title, shown, (note,), made.svg, "Two dot charts, a row for two checkpoints and a later one.")


def _logits(data: Frame, whose: str, name: str) -> Section:
    """List R² and KL of extrapolated logits beside those of the checkpoint that was extrapolated from."""
    rows = []
    for (names, gamma), mine in data.groupby(["checkpoints", "gamma"], sort=False):
        by = {
            (row["over"], row["what"]): Estimate(row["value"], row["low"], row["high"])
            for row in mine.to_dict("records")
        }
        row = {"Checkpoints": names, "γ": cell(gamma, 3, unit=1)}
        sides = {"as it is": "r2_late", "extrapolated": "r2"}
        for kind in ("all", "top"):
            row |= {f"R², {SETS[kind]}{SPLIT}{side}": cell(by[kind, what], 5, unit=1) for side, what in sides.items()}
        row |= {
            f"Change explained{SPLIT}{words}": cell(by[kind, "explained"], suffix=" %") for kind, words in SETS.items()
        }
        row |= {"Worse at": cell(by["all", "worse"], suffix=" %"), "Best γ": cell(by["all", "best_gamma"], unit=1)}
        for side, what in {"as it is": "kl_late", "extrapolated": "kl"}.items():
            row[f"KL to the later one{SPLIT}{side}"] = cell(by["all", what], 5, unit=1)
        rows.append(row)
    note = (
        f"At {data['positions'].iloc[0]:,} tokens of the text above, drawn once. R² of centred logits, mean "
        "over positions, of the second checkpoint as it is and of what it and the first extrapolate to; the change "
        "explained, 1 − Σ(real − extrapolated)² / Σ(real − second)², summed over positions; worse at: positions where "
        "the extrapolated logits are further from the real ones than the second checkpoint's. The ten likeliest and "
        "the nucleus are the later checkpoint's own. Brackets: 95 % intervals over problems."
    )
    return Section(name, f"{whose}: logits extrapolated to a later checkpoint.", frame(rows), (note,))

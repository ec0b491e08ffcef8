"""Draw figures of results: accuracy against shares of tokens, differences with intervals, problem by problem."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_dir.analysis.problems import PROBLEM_KINDS, Problems
from rlvr_dir.policy.gates import gates
from rlvr_dir.report.draw import (
    BASE,
    COLOURS,
    COUPLING,
    EXPO,
    NARROW,
    RL,
    beside,
    drawing,
    height_of,
    line,
    look,
    root_axis,
)  # fmt: skip
from rlvr_dir.report.model import Section, frame
from rlvr_dir.results.settings import Setting
from rlvr_dir.stats import Estimate

TOKEN_SHARES = {
    "changed": (
        "changed tokens",
        "positions where the written token differs from the proposed one, mean over problems",
    ),
    "replaced": (
        "flagged tokens",
        "positions that the gate flags, mean over problems; at some of them the same token is written again",
    ),
}
LIKE_PAPER = "fig:teaser (c), fig:replace, fig:kl_ablation"
LINES = {
    "reject": (0, (6, 2, 1, 2)),
    "veto": (0, (4, 2)),
    "resample": (0, (1, 2)),
}  # of controls, in the colour of their criterion


def avg_of(settings: Sequence[Setting]) -> str:
    """Return the name of the scores of some settings: Avg@n, if all have as many samples."""
    samples = {setting.samples for setting in settings}
    return f"Avg@{min(samples)}" if len(samples) == 1 else "Avg"


def _scaled(setting: Setting) -> Estimate:
    """Return a setting's score and its 95 % interval over problems, in percent."""
    low, high = setting.interval
    return Estimate(100 * setting.avg, 100 * low, 100 * high)


def _row(setting: Setting, label: str, score: Estimate) -> dict[str, Any]:
    gated = setting.decoding.gated
    ratios = [setting.share(f"n_{name}") if gated else Estimate(0, 0, 0) for name in TOKEN_SHARES]
    row: dict[str, Any] = {"line": label, "tau": setting.decoding.tau if gated else None}
    for name, share in zip(TOKEN_SHARES, ratios, strict=True):
        ends = (None if end is None else 100 * end for end in (share.value, share.low, share.high))
        row |= dict(zip((f"{name}_percent", f"{name}_low", f"{name}_high"), ends, strict=True))
    return {**row, "avg": score.value, "low": score.low, "high": score.high, "samples": setting.samples}


def _levels(axes: Any, settings: Sequence[Setting]) -> list[tuple[Setting, Estimate]]:
    """Draw decodings without a gate as dotted levels with their intervals; return them."""
    levels = []
    for setting in settings:
        score, colour = _scaled(setting), {"rl": RL, "base": BASE}.get(setting.decoding.mode, EXPO)
        axes.axhline(score.value, color=colour, linewidth=1, linestyle=":", label=setting.decoding.label())
        if score.low is not None:
            axes.axhspan(score.low, score.high, color=colour, alpha=0.08, linewidth=0)
        levels.append((setting, score))
    return levels


def against_share(settings: Sequence[Setting], name: str, title: str, share: str = "changed") -> Section:
    """Draw Avg against a share of tokens: a line per criterion and target, 95 % intervals, base and RL as levels.

    `share` is "changed" (tokens that differ from the proposed ones), or "replaced" (flagged tokens, which may be
    written unchanged). If base's tokens were coupled with RL's, a vertical line shows the least share at which their
    distribution is RL's.

    Some settings are left out: extrapolations if there are replacements on base, decodings on RL if there are some on
    base, those without a gate if there are gates, and controls of replacements except those of the paper's own
    criterion.
    """
    avg = avg_of(settings)
    settings = _of_one_kind(settings)
    ways = ways_of(settings)
    several = len({number for number, *_ in ways}) > 1  # criteria; with one, the legend names only the modes
    axis_title, meaning = TOKEN_SHARES[share]
    rows = []
    ungated = [setting for setting in settings if not setting.decoding.gated]
    with drawing(name, height_of(len(ways) + len(ungated))) as canvas:
        axes = canvas.one
        for (_, label, of_way), style in zip(ways, _looks(ways), strict=True):
            of_way = sorted(of_way, key=lambda setting: setting.share(f"n_{share}").value or 0.0)
            scores = [_scaled(setting) for setting in of_way]
            at = [100 * (setting.share(f"n_{share}").value or 0.0) for setting in of_way]
            line(axes, at, scores, label if several else of_way[0].decoding.label().split(" τ")[0], **style)
            for x, setting in zip(at, of_way, strict=True):
                way: Any = setting.decoding
                if way.gate.redraws and (way.mode, way.primary) == ("replace", "base"):
                    axes.axvline(x, color=COUPLING, linewidth=0.8, linestyle=(0, (1, 3)))
            rows += [_row(setting, label, score) for setting, score in zip(of_way, scores, strict=True)]
        levels = _levels(axes, ungated)
        rows += [_row(setting, setting.decoding.label(), score) for setting, score in levels]
        root_axis(axes)
        axes.set_xlabel(f"{axis_title}, %")
        axes.set_ylabel(f"{avg}, %")
        beside(axes)
    samples = sorted({setting.samples for setting in settings})
    mixed = f"; points have {' or '.join(map(str, samples))} samples a problem" if len(samples) > 1 else ""
    return Section(
        name,
        f"Accuracy against the share of {axis_title} on {title}",
        frame(rows),
        (
            f"Bars are 95 % intervals over problems{mixed}. {axis_title.capitalize()}: {meaning}; "
            "the axis is scaled by square roots.",
        ),
        canvas.svg,
        f"Line chart: {avg} on {title} against the share of {axis_title}, "
        f"{len(ways)} line{'s' * (len(ways) > 1)}; base and "
        "RL are dotted levels.",
        LIKE_PAPER,
        broad=True,
    )


def _of_one_kind(settings: Sequence[Setting]) -> Sequence[Setting]:
    """Leave out extrapolations next to replacements on base, decodings on RL next to those on base, and no gate next to
    gates."""
    if not any(setting.decoding.gated and setting.decoding.primary == "base" for setting in settings):
        return settings
    settings = [setting for setting in settings if not setting.decoding.gated or setting.decoding.primary == "base"]
    if any(setting.decoding.mode == "replace" for setting in settings):
        settings = [setting for setting in settings if setting.decoding.mode != "extrapolate"]
        settings = [
            setting
            for setting in settings
            if setting.decoding.mode not in LINES or _is_of_the_paper(setting.decoding.gate)
        ]
    if any(setting.decoding.gated and not setting.decoding.everywhere for setting in settings):
        settings = [setting for setting in settings if not setting.decoding.everywhere]
    return settings


def ways_of(settings: Sequence[Setting]) -> list[tuple[int, str, list[Setting]]]:
    """Return the gated settings of each criterion and target, with a number and a label, criteria in their usual order.

    Controls have the number of their replacement, which they follow.
    """
    by_way: dict[tuple[Any, ...], list[Setting]] = {}
    order = list(gates())
    for setting in settings:
        if (gate := (way := setting.decoding).gate) is not None:
            place = len(order) if _apart(gate) else order.index(gate.name) if gate.name in order else -1
            mode = way.mode if way.mode in LINES else ""
            mode = f"{way.decider} decides" if way.names_decider and way.mode in ("replace", "resample") else mode
            by_way.setdefault((way.primary, place, way.caption, mode, way.gamma), []).append(setting)
    ways: list[tuple[int, str, list[Setting]]] = []
    before, number = None, -1
    for (primary, _, caption, mode, gamma), of_way in sorted(by_way.items(), key=lambda item: item[0]):
        number += not mode or before != (primary, caption)
        before = primary, caption
        target = f"γ = {gamma:g}" if gamma and (not mode or (mode == "veto" and gamma != -1)) else ""
        mode = "veto by RL" if (mode, primary, gamma) == ("veto", "base", 0) else mode
        label = ", ".join(filter(None, (caption, mode, target)))
        ways.append((number, label + (" on RL" if primary == "rl" else ""), of_way))
    return ways


def look_of(decoding: Any, i: int) -> dict[str, Any]:
    """Return the style of a decoding's line for the i-th criterion of a figure; a control's is dashed with open
    markers."""
    gate, style = decoding.gate, look(i, markersize=4, linewidth=1.2)
    style |= {"color": EXPO, "marker": "P" if getattr(gate, "sign", None) else "s"} if _apart(gate) else {}
    style |= {"color": COUPLING, "marker": "*", "markersize": 8} if gate.redraws else {}
    style |= {"linestyle": ":"} if gate.statistic == "random" else {}
    return style | ({"linestyle": LINES[decoding.mode], "markerfacecolor": "white"} if decoding.mode in LINES else {})


def _looks(ways: Sequence[tuple[int, str, list[Setting]]]) -> list[dict[str, Any]]:
    """Return how each line of a figure is drawn: a colour for each criterion, or for each mode if there is one
    criterion.

    Lines that coincide stay visible, because their markers have different shapes and sizes.
    """
    if len({number for number, *_ in ways}) > 1:
        return [look_of(of_way[0].decoding, number) for number, _, of_way in ways]
    modes = [look(i, markersize=11 - 2 * i, linewidth=1.4) for i in range(len(ways))]
    return [style | {"markerfacecolor": "white" if i else style["color"]} for i, style in enumerate(modes)]


def _is_of_the_paper(gate: Any) -> bool:
    """Return whether a criterion is the one that the paper is about."""
    return gate.landmark and gate.paper


def _apart(gate: Any) -> bool:
    """Return whether a criterion is a landmark but not the paper's; such criteria have their own style."""
    return gate.landmark and not gate.paper


def in_legible_parts(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Divide what `against_share` draws. If there are too many gates for one figure, the paper's seven come first.

    Each part has a word for its name, and base and RL; `landmark` gates are in both.
    """
    criteria = {
        setting.decoding.criterion for setting in settings if setting.decoding.gated and not setting.decoding.everywhere
    }
    if len(criteria) <= len(COLOURS) + 1:
        return [("", list(settings))]
    plain = [setting for setting in settings if setting.decoding.mode in ("base", "rl")]
    gated = [(setting, setting.decoding.gate) for setting in settings if setting.decoding.gate is not None]
    both = [setting for setting, gate in gated if gate.landmark and setting.decoding.criterion == gate.name]
    others = [setting for setting, _ in gated if setting not in both]
    papers = [
        setting
        for setting, gate in gated
        if setting in others and gate.paper and setting.decoding.criterion == gate.name
    ]
    return [
        ("", plain + both + papers),
        ("controls-", plain + both + [setting for setting in others if setting not in papers]),
    ]


def against_gamma(settings: Sequence[Setting], name: str, title: str) -> Section | None:
    """Draw Avg against gamma when every token is sampled from the target: base (-1), RL (0), and past RL.

    The result is None if there are fewer than three gammas.
    """
    everywhere = sorted(
        (setting for setting in settings if setting.decoding.everywhere), key=lambda setting: setting.decoding.gamma
    )
    if len(everywhere) < 3:
        return None
    avg = avg_of(settings)
    label, gammas = "every token", [setting.decoding.gamma for setting in everywhere]
    scores = [_scaled(setting) for setting in everywhere]
    with drawing(name, height_of(3)) as canvas:
        line(canvas.one, gammas, scores, label, **look(0, markersize=4, linewidth=1.2))
        rows: list[tuple[Any, ...]] = [(label, *row) for row in zip(gammas, everywhere, scores, strict=True)]
        levels = _levels(canvas.one, [setting for setting in settings if setting.decoding.mode in ("base", "rl")])
        rows += [(setting.decoding.label(), None, setting, score) for setting, score in levels]
        canvas.one.set_xlabel("γ: −1 is base, 0 is RL, above 0 is past RL")
        canvas.one.set_ylabel(f"{avg}, %")
        beside(canvas.one)
    data = [
        {
            "line": label,
            "gamma": gamma,
            "avg": score.value,
            "low": score.low,
            "high": score.high,
            "samples": setting.samples,
        }
        for label, gamma, setting, score in rows
    ]
    caption = f"Accuracy against γ on {title}, every token sampled from the target"
    alt = f"Line chart: {avg} against γ, from base over RL beyond it."
    return Section(name, caption, frame(data), ("Bars are 95 % intervals over problems.",), canvas.svg, alt)


def heat_map(cells: Mapping[tuple[float, float], Setting], rl: Setting | None, name: str, title: str) -> Section:
    """Draw Avg by threshold and gamma. The colours are centred on RL if it is known: red above, blue below."""
    every = [*cells.values(), *([rl] if rl else [])]
    avg = avg_of(every)
    data = frame(
        [{"tau": tau, "gamma": gamma, "avg": 100 * setting.avg} for (tau, gamma), setting in sorted(cells.items())]
    )
    pivot = data.pivot_table(index="gamma", columns="tau", values="avg", aggfunc="first")
    values = pivot.to_numpy(dtype=float)
    middle = 100 * rl.avg if rl else float(np.nanmean(values))
    span = max(1.0, float(np.nanmax(np.abs(values - middle))))
    size = (0.9 + 0.4 * values.shape[0], max(NARROW, 0.9 + 0.55 * values.shape[1]))
    with drawing(name, size[0], width=size[1]) as canvas:
        axes = canvas.one
        axes.imshow(values, cmap="RdBu_r", vmin=middle - span, vmax=middle + span, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if abs(value - middle) > 0.6 * span else "black"
                axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(values.shape[1]), [f"{tau:.3g}" for tau in pivot.columns])
        axes.set_yticks(range(values.shape[0]), [f"{gamma:g}" for gamma in pivot.index])
        axes.set_xlabel("τ")
        axes.set_ylabel("γ")
        axes.set_title(avg + (f", rl {middle:.1f}" if rl else ""))
    caption = f"{avg} on {title} by threshold τ and strength γ; colours are centred on " + ("RL" if rl else "the mean")
    return Section(name, caption, data, (), canvas.svg, "Heat map, as printed in the cells.")


def per_problem(problems: Problems, name: str, title: str) -> Section:
    """Draw a heat map with a row per problem, sorted by kind, and a column per replacement ratio, with RL beside it."""
    order = sorted(
        range(len(problems.problem_ids)),
        key=lambda i: (PROBLEM_KINDS.index(problems.kinds[i]), problems.accuracy[i].mean(), i),
    )
    columns = ["base", *(f"{100 * ratio:.2g} %" for ratio in problems.ratios[1:])]
    columns += ["RL"] if problems.rl is not None else []
    table = problems.accuracy if problems.rl is None else np.column_stack([problems.accuracy, problems.rl])
    with drawing(name, min(9.0, 1.3 + max(2.0, 0.055 * len(order)))) as canvas:
        axes = canvas.one
        image = axes.imshow(
            100 * table[order], aspect="auto", cmap="cividis", vmin=0, vmax=100, interpolation="nearest"
        )
        axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_xlabel("replaced tokens")
        edges, names, at = [], [], 0
        for outcome, count in problems.counts.items():
            if count:
                edges.append(at + (count - 1) / 2)
                names.append(f"{outcome} ({count})")
                at += count
                if at < len(order):
                    axes.axhline(at - 0.5, color="#ffffff", linewidth=0.8)
        axes.set_yticks(edges, names)
        axes.tick_params(axis="y", length=0)
        canvas.figure.colorbar(image, ax=axes, shrink=0.8).set_label(f"right of {problems.samples} samples, %")
    counts = ", ".join(f"{count} {name}" for name, count in problems.counts.items() if count)
    note = (
        f"Problems by kind: {counts}. A change counts beyond two standard errors of {problems.samples} samples: a few "
        f"in a hundred are chance. Never (always) solved: by not one (by all) of the {problems.seen} samples of a "
        "problem that are shown."
    )
    data = [
        {"problem": problems.problem_ids[i], "kind": problems.kinds[i]}
        | {f"replaced_{at} {column}": float(x) for at, (column, x) in enumerate(zip(columns, table[i], strict=True))}
        for i in order
    ]
    caption = f"Accuracy of each problem of {title} as more tokens are replaced (Δ log p)"
    alt = f"Heat map, one row for each of {len(order)} problems: {counts}."
    return Section(name, caption, frame(data), (note,), canvas.svg, alt, "fig:per_problem_acc")

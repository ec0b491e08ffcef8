"""Draw figures of paired differences: the two steps of a replacement, extrapolations, and all comparisons."""

from collections.abc import Sequence

from rlvr_dir.report.draw import (
    BASE,
    COLOURS,
    beside,
    drawing,
    height_of,
    label_rows,
    line,
    root_axis,
)  # fmt: skip
from rlvr_dir.report.figures import look_of, ways_of
from rlvr_dir.report.model import Section, frame
from rlvr_dir.results.compare import Comparison, comparison_kind
from rlvr_dir.stats import Estimate
from rlvr_dir.text import visible

# The meaning of each colour in the figure of differences, by the kind of comparison.
LEGEND = {
    "trained": ("RL − base", "grey"), "against rl": ("decoding − RL", "blue"),
    "token": ("replace − reject", "green"), "decision": ("reject − veto", "pink"),
    "own draw": ("reject − resample", "light blue"), "second draw": ("resample − base", "yellow"),
    "against control": ("extrapolate − its γ = 0", "orange"), "other": ("others", "brown"),
}  # fmt: skip
MOST = 40  # the most rows in a figure of differences
PANELS = {
    "token": ("replace minus reject", "RL writes, not base"),
    "own draw": ("reject minus resample", "RL decides, not base"),
    "decision": ("reject minus veto", "RL decides, not the gate"),
}


def two_by_two(rows: Sequence[Comparison], name: str, title: str) -> Section | None:
    """Draw the steps of each replacement of base's tokens against changed tokens: RL's token, and RL's decision.

    There is a line per criterion, with the 95 % intervals of the paired differences. The result is None if fewer than
    two replacements have all controls.
    """
    of_kind = {
        kind: [row for row in rows if comparison_kind(row) == kind and row.result.decoding.primary == "base"]
        for kind in PANELS
    }
    of_kind = {kind: of for kind, of in of_kind.items() if len(of) > 1}
    if not of_kind:
        return None
    data = []
    lines = max(len(ways_of([row.result for row in of])) for of in of_kind.values())
    every = ways_of([row.result for of in of_kind.values() for row in of])
    numbers = {label.removesuffix(", reject"): number for number, label, _ in every}  # the same look in all panels
    with drawing(name, height_of(lines), len(of_kind)) as canvas:
        for axes, (kind, of) in zip(canvas.axes, of_kind.items(), strict=True):
            by_setting = {id(row.result): row for row in of}
            axes.axhline(0, color="#808080", linewidth=0.8)
            for _, label, settings in ways_of([row.result for row in of]):
                label = label.removesuffix(", reject")
                rows_of_way = sorted(
                    (by_setting[id(setting)] for setting in settings),
                    key=lambda row: row.result.changed_ratio,
                )
                at = [100 * row.result.changed_ratio for row in rows_of_way]
                ends = [(row.difference.mean, row.difference.low, row.difference.high) for row in rows_of_way]
                points = [Estimate(*(100 * end for end in interval)) for interval in ends]
                line(axes, at, points, label, **look_of(settings[0].decoding, numbers[label]) | {"linestyle": "-"})
                for x, row, point in zip(at, rows_of_way, points, strict=True):
                    setting, other = row.result, row.reference
                    data.append({
                        "step": PANELS[kind][0], "line": label, "tau": setting.decoding.tau, "changed_percent": x,
                        "minus_changed_percent": 100 * other.changed_ratio,
                        "avg": 100 * setting.avg, "minus_avg": 100 * other.avg, "difference": point.value,
                        "low": point.low, "high": point.high, "p": row.difference.p, "p_holm": row.holm_p,
                    })  # fmt: skip
            root_axis(axes)
            axes.set_xlabel("changed tokens, %")
            axes.set_ylabel("points")
            axes.set_title(": ".join(PANELS[kind]), fontsize="small")
            beside(axes)
    caption = f"Who decides, and who writes, on {title}: {', '.join(PANELS[kind][0] for kind in of_kind)}"
    notes = (
        "At a flagged token, RL draws. In replace and reject this draw decides whether the token is dropped. RL writes "
        "the new token in replace and base in reject: replace minus reject is about who writes. In resample, base's "
        "second draw decides, and in veto every flagged token is dropped. So reject minus resample is about who "
        "decides. Reject minus veto contains the harm that dropping every flagged token does; it is no measure of RL. "
        "Bars are 95 % intervals over problems, paired; the axis is scaled by square roots.",
    )
    alt = f"Line charts of paired differences in points against changed tokens, {len(data)} points around zero."
    return Section(name, caption, frame(data), notes, canvas.svg, alt)


def extrapolates(row: Comparison) -> bool:
    """Return whether a comparison is of a decoding past RL with the same one at gamma = 0."""
    return comparison_kind(row) == "against control" and row.result.decoding.gamma > 0


def differences(rows: Sequence[Comparison], name: str = "differences-drawn") -> Section:
    """Draw extrapolations minus RL and minus their own gate, or all paired differences; a line each."""
    controlled = [row for row in rows if extrapolates(row)]
    drawn_rows = sorted(controlled or rows, key=lambda row: row.result.task)[:MOST]
    over_rl = {id(row.result): row for row in rows if comparison_kind(row) == "against rl"}
    panels: dict[str, Sequence[Comparison | None]] = {}
    if controlled and any(others := [over_rl.get(id(row.result)) for row in drawn_rows]):
        panels["points, minus RL"] = others
    panels["points" + (", minus the γ = 0 control" if controlled else "")] = drawn_rows
    colours = {"trained": BASE, "against rl": COLOURS[0], "against control": COLOURS[1]}
    colours |= {"token": COLOURS[2], "decision": COLOURS[3], "own draw": COLOURS[4], "second draw": COLOURS[5]}
    colours |= {"other": COLOURS[6]}
    data = []
    labels = [
        visible(f"{r.result.benchmark}: {r.result.label}" + ("" if controlled else f" − {r.reference.label}"), 60)
        for r in drawn_rows
    ]
    with drawing(name, 0.7 + 0.36 * len(drawn_rows), len(panels)) as canvas:
        for axes, (panel_title, of_panel) in zip(canvas.axes.flat, panels.items(), strict=True):
            for at, row in enumerate(of_panel):
                if row is None:
                    continue
                d, kind = row.difference, comparison_kind(row)
                axes.plot([100 * d.low, 100 * d.high], [at, at], color=colours[kind], linewidth=1.2)
                axes.plot([100 * d.mean], [at], marker="o", markersize=4, color=colours[kind])
                sides = {"task": row.result.benchmark, "decoding": row.result.label, "minus": row.reference.label}
                ends = {"difference": 100 * d.mean, "low": 100 * d.low, "high": 100 * d.high}
                data.append({"kind": kind, **sides, **ends, "p": d.p, "p_holm": row.holm_p})
            axes.axvline(0, color="#808080", linewidth=0.8)
            axes.set_xlabel(panel_title)
            label_rows(axes, labels)
    drawn_kinds = {comparison_kind(row) for row in drawn_rows}
    named = ", ".join(f"{words} ({colour})" for kind, (words, colour) in LEGEND.items() if kind in drawn_kinds)
    title = f"Paired differences: {named}"
    if controlled:
        title = "What extrapolation adds to its own gate (γ = 0, orange)"
        title = (
            "What extrapolation adds to RL (blue), and to its own gate (γ = 0, orange)" if len(panels) > 1 else title
        )
    notes = ("With 95 % intervals; all differences are in the table.",)
    alt = f"Interval plot of {len(data)} paired differences around a line at zero."
    return Section(name, title, frame(data), notes, canvas.svg, alt, "fig:extrapolate, fig:extra_minerva")

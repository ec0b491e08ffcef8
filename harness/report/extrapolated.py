"""Extrapolated logits against those of the real later checkpoint, as a figure and a table."""

from collections.abc import Mapping
from typing import Any

from harness.report.draw import COLOURS, MARKS, canvas, percent_axis, styled, svg
from harness.report.model import Cell, Column, Figure, Row, Table
from harness.report.tokens import percent
from harness.text import visible

SETS = {"all": "whole vocabulary", "top": "ten likeliest", "nucleus": "nucleus, 0.95"}


def extrapolated_parts(data: Mapping[str, Any], whose: str, slug: str) -> tuple[Figure, Table]:
    """Return the figure and the table of what earlier checkpoints say of later ones."""
    return extrapolated_figure(data, f"extrapolated{slug}"), extrapolated_table(
        data, whose, f"extrapolated-logits{slug}"
    )


def _named(one: Mapping[str, Any]) -> str:
    return visible(f"{one['early']}, {one['late']} → {one['real']}", 80)


@styled
def extrapolated_figure(data: Mapping[str, Any], name: str) -> Figure:
    """Draw which share of the change to a later checkpoint is extrapolated, and how far one should have gone."""
    found = data["extrapolated"]
    figure, (left, right) = canvas(6.6, 1.4 + 0.34 * len(found), 1, 2, sharey=True)
    rows: list[tuple[Any, ...]] = []
    for i, (kind, words) in enumerate(SETS.items()):
        how = {
            "color": COLOURS[i],
            "marker": MARKS[i],
            "markersize": 3.5,
            "linewidth": 0,
            "elinewidth": 0.8,
            "capsize": 1.5,
        }
        for axes, what in ((left, "explained"), (right, "best_gamma")):
            points = []
            for place, one in enumerate(found):
                told, unit = one["sets"][kind][what], one["gamma"] if what == "best_gamma" else 1.0
                rows.append((_named(one), one["gamma"], words, what, told["value"], told["low"], told["high"]))
                if None not in (told["value"], told["low"], told["high"]):
                    points.append((place + 0.2 * (i - 1), *(told[end] / unit for end in ("value", "low", "high"))))
            if points:
                at, value, low, high = (list(each) for each in zip(*points, strict=True))
                spans = [
                    [v - e for v, e in zip(value, low, strict=True)],
                    [e - v for v, e in zip(value, high, strict=True)],
                ]
                axes.errorbar(value, at, xerr=spans, label=words, **how)
    left.set_yticks(range(len(found)), [f"{_named(one)}, γ {one['gamma']:.3g}" for one in found])
    left.invert_yaxis()
    left.set_xlim(right=1.0)
    percent_axis(left.xaxis)
    left.set_xlabel("of the change explained")
    right.axvline(1.0, color=COLOURS[-1], linewidth=0.8, linestyle=":")
    right.set_xlabel("best γ, over the γ of the steps")
    if right.get_legend_handles_labels()[1]:
        figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return Figure(
        name,
        "Logits extrapolated in a straight line from two checkpoints to a later one. Left: the share of the change "
        "since the second one that they get right (0: no better than staying there). Right: the γ that fits best, over "
        "that of the steps (1: one speed). Bars: 95 % intervals over problems.",
        "Two dot charts, a row for each two checkpoints and a later one: the share of the change explained, and the "
        "best γ over that of the steps, over three sets of tokens. The data are in the CSV file.",
        svg(figure, name), ("checkpoints", "gamma", "over", "what", "value", "low", "high"), tuple(rows),
    )  # fmt: skip


def extrapolated_table(data: Mapping[str, Any], whose: str, name: str) -> Table:
    """List R² and KL of extrapolated logits beside those of the checkpoint that was extrapolated from."""
    rows = []
    for one in data["extrapolated"]:
        sets = one["sets"]
        rows.append(
            Row(
                (
                    Cell(_named(one)),
                    Cell(f"{one['gamma']:.3g}", one["gamma"]),
                    *(nats(sets[kind][what], 5) for kind in ("all", "top") for what in ("r2_late", "r2")),
                    *(percent(sets[kind]["explained"]) for kind in SETS),
                    percent(sets["all"]["worse"]),
                    nats(sets["all"]["best_gamma"], 2),
                    *(nats(one[what], 5) for what in ("kl_late", "kl")),
                )
            )
        )
    columns = (
        Column("Checkpoints", words=True), Column("γ"), Column("as it is", "R², whole vocabulary"),
        Column("extrapolated", "R², whole vocabulary"), Column("as it is", "R², ten likeliest"),
        Column("extrapolated", "R², ten likeliest"), Column("whole vocabulary", "Change explained"),
        Column("ten likeliest", "Change explained"), Column("nucleus", "Change explained"), Column("Worse at"),
        Column("Best γ"), Column("as it is", "KL to the later one"), Column("extrapolated", "KL to the later one"),
    )  # fmt: skip
    note = (
        f"At {data['extrapolated'][0]['positions']:,} tokens of the text above, drawn once. R² of centred logits, mean "
        "over positions, of the second checkpoint as it is and of what it and the first extrapolate to; the change "
        "explained, 1 − Σ(real − extrapolated)² / Σ(real − second)², summed over positions; worse at: positions where "
        "the extrapolated logits are further from the real ones than the second checkpoint's. The ten likeliest and "
        "the nucleus are the later checkpoint's own. Brackets: 95 % intervals over problems."
    )
    return Table(name, f"{whose}: logits extrapolated to a later checkpoint.", columns, tuple(rows), (note,))


def nats(one: Mapping[str, Any], digits: int) -> Cell:
    """Write an estimate with its interval, in its own unit."""
    if one["value"] is None:
        return Cell("–")
    small = () if one["low"] is None else (f"[{one['low']:.{digits}f}, {one['high']:.{digits}f}]",)
    return Cell(f"{one['value']:.{digits}f}", one["value"], small)

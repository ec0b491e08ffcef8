"""Gated decodings as figures and a table, from the plain values that `rlvr-dir analyse gated` writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.report.draw import BASE, COLOURS, MARKS, RL, canvas, percent_axis, styled, svg
from harness.report.groups import pair_title
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.report.tokens import percent
from harness.spec import Sampling, parse
from harness.text import visible


def gated_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show where the gates of one pair redraw, and what follows."""
    slug = f"-{number}" if number else ""
    parts = data.get("limited") or {}
    tasks = ", ".join(f"{task} ({parts[task]})" if task in parts else str(task) for task in data["tasks"])
    found, drawn = data["decodings"], data["sampling"]
    text = (
        f"Gated decodings of {tasks} ({found[0]['problems']} problems, {drawn['samples']} samples, "
        f"{parse(Sampling, drawn).words}). Intervals are over problems."
    )
    shown = (
        positions(data, f"gate-positions{slug}"),
        afterwards(data, f"gate-after{slug}"),
        gates_table(data, f"gates{slug}"),
    )
    if parts:
        shown = tuple(replace(part, caption=f"{part.caption} Only on {tasks}.") for part in shown)
    return Section(f"Where gates redraw, {pair_title(str(data['pair'].get('rl')))}", (text,), shown)


def _line(axes: Any, at: Sequence[float], shares: Sequence[Mapping[str, Any]], i: int, label: str) -> None:
    """Draw estimates with their intervals; what nothing was counted of has no point."""
    known = [(x, one) for x, one in zip(at, shares, strict=True) if one["of"] and one["value"] is not None]
    values = np.array([one["value"] for _, one in known])
    spans = [[0.0 if one[end] is None else abs(one[end] - one["value"]) for _, one in known] for end in ("low", "high")]
    axes.errorbar(
        [x for x, _ in known], values, yerr=spans, color=COLOURS[i % len(COLOURS)], marker=MARKS[i % len(MARKS)],
        markersize=3.5, linewidth=1.1, elinewidth=0.6, capsize=1.5, label=visible(label, 60),
    )  # fmt: skip


@styled
def positions(data: Mapping[str, Any], name: str) -> Figure:
    """Draw the share of tokens that each gate redraws, by place in the response."""
    figure, grid = canvas(5.6, 5.4, 2, 1)
    begins = data["tokens"]
    rows = []
    for i, one in enumerate(data["decodings"]):
        label = str(one["label"])
        filled = [k for k, share in enumerate(one["by_token"]) if share["of"]]
        _line(grid[0], filled, [one["by_token"][k] for k in filled], i, label)
        tenths = np.arange(len(one["by_tenth"])) + 0.5
        _line(grid[1], (100 / len(tenths) * tenths).tolist(), one["by_tenth"], i, label)
        for kind in ("by_token", "by_tenth"):
            starts = begins if kind == "by_token" else range(len(tenths))
            rows += [
                (label, kind, start, share["value"], share["low"], share["high"], share["of"])
                for start, share in zip(starts, one[kind], strict=True)
                if share["of"]
            ]
    last = max(k for one in data["decodings"] for k, share in enumerate(one["by_token"]) if share["of"])
    grid[0].set_xticks(range(last + 1), [f"{begin:,}" for begin in begins[: last + 1]], rotation=45)
    grid[0].set_xlabel("from this token of the response on")
    grid[1].set_xlabel("% of the response")
    for axes in grid:
        axes.set_ylabel("redrawn tokens")
        axes.set_ylim(bottom=0)
        percent_axis(axes.yaxis)
    grid[0].legend()
    return Figure(
        name,
        "Where gates redraw: by the token's number, and by the share of the response that lies before it. Bars: 95 % "
        "intervals over problems.",
        "Line charts: share of redrawn tokens by place in the response, one line a decoding. The data are in the CSV "
        "file.",
        svg(figure, name), ("decoding", "by", "from", "share", "low", "high", "tokens"), tuple(rows),
    )  # fmt: skip


@styled
def afterwards(data: Mapping[str, Any], name: str) -> Figure:
    """Draw the probability that both models give to what follows a changed token."""
    figure, grid = canvas(5.6, 2.9, 1, 2, sharey=True)
    rows = []
    for column, (axes, who, colour) in enumerate(zip(grid, ("base", "RL"), (BASE, RL), strict=True)):
        for i, one in enumerate(data["decodings"]):
            after = one["after"][column]
            _line(axes, range(1, len(after) + 1), after, i, str(one["label"]))
            usual = one["kept"][column]["value"]
            if usual is not None:
                axes.axhline(usual, color=COLOURS[i % len(COLOURS)], linewidth=0.8, linestyle=":")
            rows += [
                (one["label"], who, k, share["value"], share["low"], share["high"], share["of"], usual)
                for k, share in enumerate(after, 1)
            ]
        axes.set_title(f"under {who}", color=colour)
        axes.set_xlabel("tokens after a changed one")
    grid[0].set_ylabel("mean probability")
    grid[1].legend()
    return Figure(
        name,
        "What follows a changed token: the mean probability of the tokens that were written so many places later, and "
        "kept as they were proposed, under either model. Dotted: of all kept tokens. Bars: 95 % intervals over "
        "problems.",
        "Line charts: mean probability of the tokens after a changed one, under base and under RL.",
        svg(figure, name), ("decoding", "under", "after", "p", "low", "high", "tokens", "p of all kept"), tuple(rows),
    )  # fmt: skip


def gates_table(data: Mapping[str, Any], name: str) -> Table:
    """List how much each gate redraws, at what entropy, and in what runs."""
    rows = []
    for one in data["decodings"]:
        entropy = [[part["value"] for part in of] for of in one["entropy"]]
        runs, share = np.asarray(one["runs"], dtype=float), one["share"]["value"] or 0.0
        alone = runs[0] / runs.sum() if runs.sum() else None
        rows.append(
            Row(
                (
                    Cell(visible(str(one["label"]), 60)),
                    percent(one["share"]),
                    percent(one["changed"]),
                    *(
                        Cell("–" if value is None else f"{value:.2f}", value)
                        for value in (entropy[0][0], entropy[1][0])
                    ),
                    Cell("–" if alone is None else f"{100 * alone:.1f} %", alone),
                    Cell(f"{100 * (1 - share):.1f} %", 1 - share),
                )
            )
        )
    columns = (
        Column("Decoding", words=True), Column("Redrawn"), Column("Changed, of these"),
        Column("Entropy of base, redrawn"), Column("kept"), Column("Runs of one"), Column("by chance"),
    )  # fmt: skip
    note = (
        "Entropies in nats, of base at the position, means. A run is redrawn tokens side by side; by chance: if as "
        "many were redrawn anywhere, independently. Brackets: 95 % intervals over problems."
    )
    return Table(name, "Gates: how much they redraw, at what entropy, in what runs.", columns, tuple(rows), (note,))

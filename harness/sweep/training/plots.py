"""The figure of a sweep of trainings: each point's difference to plain DAPO, every seed and the 95 % interval."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.sweep.plots import COLOURS, canvas, save

if TYPE_CHECKING:
    from harness.sweep.training.summary import Summary


def draw(made: "Summary", folder: Path) -> list[str]:
    """Draws what there is to be drawn; the files' names. The same results give the same bytes."""
    reference = made.reference
    rows = [(entry, task) for entry in made.entries for task in made.tasks if entry is not reference]
    if reference is None or not rows:
        return []
    figure, axes = canvas(6.4, 1.2 + 0.32 * len(rows))
    by = {(row.label, row.task): row.difference for row in made.rows}
    for place, (entry, task) in enumerate(reversed(rows)):
        each = 100 * (entry.values(task) - reference.values(task))
        d, colour = by[entry.label, task], COLOURS[made.tasks.index(task) % len(COLOURS)]
        axes.plot(each, np.full(len(each), place), "o", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)
        if not np.isnan(d.low):
            axes.plot([100 * d.low, 100 * d.high], [place, place], color=colour, linewidth=1.5)
        axes.plot([100 * d.mean], [place], "D", color=colour, markersize=5)
    axes.axvline(0, color="#555555", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{entry.label}, {task}" for entry, task in reversed(rows)])
    axes.set_xlabel(f"Avg@{made.spec.plain_dapo.validation.sampling.samples} minus plain DAPO, points, paired by seed")
    axes.spines[["top", "right"]].set_visible(False)
    return [save(figure, folder / "differences.svg")]

"""What training did to the weights, as a figure and a table, from what `rlvr-dir analyse weights` writes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.report.draw import COLOURS, MARKS, canvas, percent_axis, styled, svg
from harness.report.groups import pair_title
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.text import visible

MEASURES = ("changed", "moved", "relative", "drift", "rotation", "principal")


def weight_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show how many weights changed, by how much and where."""
    slug = f"-{number}" if number else ""
    tensors, whole = data["tensors"], _sums(data["tensors"])
    text = (
        f"{whole['numbers']:,} weights in {len(tensors)} tensors of both checkpoints: "
        f"{100 * whole['changed'] / whole['numbers']:.2f} % are another number in RL, "
        f"{100 * whole['moved'] / whole['numbers']:.2f} % by more than {data['tolerance']:g}; the difference has "
        f"{100 * whole['relative']:.3f} % of base's norm."
    )
    said = [text]
    for name, where in (
        ("only_base", "base alone has"),
        ("only_rl", "RL alone has"),
        ("other_shape", "of other shape"),
    ):
        if data.get(name):
            listed = ", ".join(visible(str(each), 60) for each in data[name][:3])
            said.append(
                f"Left out, {where}: {listed}{', …' if len(data[name]) > 3 else ''} ({len(data[name])} tensors)."
            )
    shown: list[Figure | Table] = [kinds_table(data, f"weights{slug}")]
    if any(one["layer"] is not None for one in tensors):
        shown.insert(0, by_layer(data, f"weights-by-layer{slug}"))
    return Section(f"Weights of the {pair_title(str(data['pair'].get('rl')))}", tuple(said), tuple(shown))


def _sums(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up some tensors; what singular values say is a mean over those that have them."""
    found: dict[str, Any] = {name: sum(one[name] for one in tensors) for name in ("numbers", "changed", "moved")}
    base, difference = (sum(one[name] ** 2 for one in tensors) ** 0.5 for name in ("norm", "difference"))
    found["relative"] = difference / base if base else None
    for name in ("drift", "rotation", "principal", "chance", "stable_rank"):
        values = [one[name] for one in tensors if name in one]
        found[name] = float(np.mean(values)) if values else None
    return found


def _groups(tensors: Sequence[Mapping[str, Any]], by: str) -> dict[Any, list[Mapping[str, Any]]]:
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for one in tensors:
        found.setdefault(one[by], []).append(one)
    return found


@styled
def by_layer(data: Mapping[str, Any], name: str) -> Figure:
    """Draw, layer by layer, how many weights of each kind of matrix changed, and by how much."""
    figure, grid = canvas(5.6, 5.4, 2, 1, sharex=True)
    matrices = [one for one in data["tensors"] if one["layer"] is not None and len(one["shape"]) == 2]
    rows = []
    for i, (kind, tensors) in enumerate(_groups(matrices, "kind").items()):
        sums = {one["layer"]: _sums([one]) for one in tensors}
        how = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)], "markersize": 3, "linewidth": 1.0}
        shares = {layer: one["changed"] / one["numbers"] for layer, one in sums.items()}
        grid[0].plot(list(shares), list(shares.values()), label=visible(str(kind), 40), **how)
        grid[1].plot(list(sums), [one["relative"] for one in sums.values()], **how)
        rows += [(kind, layer, shares[layer], *(one[each] for each in MEASURES[2:])) for layer, one in sums.items()]
    grid[0].set_ylabel("changed weights")
    grid[1].set_ylabel("norm of the difference, of base's")
    grid[1].set_xlabel("layer")
    for axes in grid:
        axes.set_ylim(bottom=0)
        percent_axis(axes.yaxis)
    grid[1].xaxis.get_major_locator().set_params(integer=True)
    grid[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return Figure(
        name,
        "Weights that are another number in RL, and the size of the difference, by layer and kind of matrix.",
        "Two line charts by layer, one line a kind of matrix: the share of changed weights, and the relative norm.",
        svg(figure, name), ("kind", "layer", "changed", "relative_norm", *MEASURES[3:]), tuple(rows),
    )  # fmt: skip


def kinds_table(data: Mapping[str, Any], name: str) -> Table:
    """List what changed by kind of tensor, over all layers."""
    rows = []
    for kind, tensors in _groups(data["tensors"], "kind").items():
        one = _sums(tensors)
        shares = (one["changed"] / one["numbers"], one["moved"] / one["numbers"])
        rows.append(
            Row(
                (
                    Cell(visible(str(kind), 40)),
                    Cell(f"{one['numbers']:,}", one["numbers"]),
                    *(Cell(f"{100 * share:.2f} %", share) for share in shares),
                    Cell(f"{100 * one['relative']:.3f} %" if one["relative"] is not None else "–", one["relative"]),
                    *(_number(one[each], digits) for each, digits in (("drift", 4), ("rotation", 3))),
                    _number(one["principal"], 3, one["chance"]),
                    _number(one["stable_rank"], 1),
                )
            )
        )
    columns = (
        Column("Kind", words=True), Column("Weights"), Column("Changed"), Column("> 1e-5"), Column("Norm, of base's"),
        Column("Drift"), Column("Rotation"), Column("In principal directions"), Column("Stable rank"),
    )  # fmt: skip
    note = (
        f"Means over layers; the last four are of the {data['rank']} leading left singular directions: relative change "
        "of their values, the part of RL's that base's do not span, the share of the difference's energy in base's "
        "(brackets: what a difference without direction has there), and ‖D‖²F / ‖D‖²₂ of the difference D."
    )
    return Table(name, "What training changed, by kind of tensor.", columns, tuple(rows), (note,))


def _number(value: float | None, digits: int, beside: float | None = None) -> Cell:
    if value is None:
        return Cell("–")
    return Cell(f"{value:.{digits}f}", value, () if beside is None else (f"[{beside:.{digits}f}]",))

"""A training step by step, as figures and tables, from the plain values that `rlvr-dir analyse trajectory` writes."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.report.draw import BASE, COLOURS, MARKS, RL, canvas, percent_axis, styled, svg
from harness.report.extrapolated import extrapolated_parts, nats
from harness.report.groups import pair_title
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.report.tokens import percent
from harness.text import visible

WRITERS = {"base": ("base's text", BASE), "rl": ("the last RL's text", RL)}


def trajectory_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show what a training did, checkpoint by checkpoint."""
    slug = f"-{number}" if number else ""
    parts, texts, drawn = data.get("limited") or {}, data["texts"], data["sampling"]
    tasks = ", ".join(f"{task} ({parts[task]})" if task in parts else str(task) for task in data["tasks"])
    each = ", ".join(f"{texts[who]['tokens']:,} tokens of {words}" for who, (words, _) in WRITERS.items())
    said = (
        f"{len(data['checkpoints'])} checkpoints of one training, on {tasks}: {drawn['samples']} samples, "
        f"T = {drawn['temperature']:g}, top-p {drawn['top_p']:g}. Every checkpoint and base scored the same text: "
        f"{each} ({texts['base']['problems']} problems). Intervals are over problems."
    )
    shown: tuple[Figure | Table, ...] = (
        by_step(data, f"trajectory{slug}"),
        accuracy_table(data, f"trajectory-accuracy{slug}"),
        change_table(data, f"trajectory-change{slug}"),
    )
    if data["extrapolated"]:
        shown += extrapolated_parts(data, _whose(data), slug)
    return Section(f"A training by step: {_whose(data)}", (said,), shown)


def _whose(data: Mapping[str, Any]) -> str:
    return pair_title(str(data["pair"].get("rl")))


Point = tuple[float, float | None, float | None, float | None]  # step, value, low, high


def _line(axes: Any, points: Sequence[Point], colour: str, mark: str, label: str) -> None:
    """Draw estimates by step, with their intervals."""
    known = [(x, value, low, high) for x, value, low, high in points if value is not None]
    spans = [
        [0.0 if end is None else max(0.0, sign * (end - value)) for (_, value, *ends) in known for end in [ends[side]]]
        for side, sign in ((0, -1), (1, 1))
    ]
    axes.errorbar(
        [x for x, *_ in known], [value for _, value, *_ in known], yerr=spans, color=colour, marker=mark,
        markersize=3.5, linewidth=1.1, elinewidth=0.6, capsize=1.5, label=visible(label, 60),
    )  # fmt: skip


def _of_text(data: Mapping[str, Any], who: str, what: str) -> list[Point]:
    """Return by step what was estimated of a writer's tokens; of base against itself it is 0."""
    found = [(one["step"], one["text"][who][what]) for one in data["checkpoints"] if who in one["text"]]
    return [(0, 0.0, None, None), *((step, one["value"], one["low"], one["high"]) for step, one in found)]


@styled
def by_step(data: Mapping[str, Any], name: str) -> Figure:
    """Draw accuracy, what the checkpoints think of given text, and the change of the weights, by step."""
    figure, grid = canvas(5.8, 6.6, 3, 2, sharex=True)
    rows: list[tuple[Any, ...]] = []

    def draw(axes: Any, what: str, of: str, points: Sequence[Point], colour: str, mark: str = "o") -> None:
        _line(axes, points, colour, mark, of)
        rows.extend((what, of, *point) for point in points)

    steps = {one["name"]: one["step"] for one in data["checkpoints"]}
    for i, task in enumerate(dict.fromkeys(each["task"] for each in data["scores"])):
        mine = [each for each in data["scores"] if each["task"] == task]
        points = [(steps.get(each["label"], 0), each["value"], each["low"], each["high"]) for each in mine]
        draw(grid[0, 0], "accuracy", task, points, COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)])
    for axes, what in ((grid[0, 1], "kl"), (grid[1, 0], "delta_logp")):
        for who, (words, colour) in WRITERS.items():
            draw(axes, what, words, _of_text(data, who, what), colour)
    tau = data["tau"]
    for what, mark in (("above", "^"), ("below", "v")):
        for who, (words, colour) in WRITERS.items():
            draw(grid[1, 1], what, words, _of_text(data, who, what), colour, mark)
    for since, words, colour in (
        ("base", "since base", COLOURS[0]),
        ("before", "since the checkpoint before", COLOURS[2]),
    ):
        counted = [(one["step"], one["weights"].get(since)) for one in data["checkpoints"]]
        for axes, what in ((grid[2, 0], "moved"), (grid[2, 1], "norm")):
            points = [(step, _share(found)[what], None, None) for step, found in counted if found]
            if points:
                draw(axes, f"weights {what}", words, points, colour)
    titles = (
        ("accuracy", "KL, mean of both ways, nats"),
        ("mean Δ log p, nats", f"tokens: ▲ Δ > {-tau:g}, ▼ Δ < {tau:g}"),
    )
    for row, of in zip(grid, (*titles, ("weights moved by > 1e-5", "norm of the change, of base's")), strict=True):
        for axes, title in zip(row, of, strict=True):
            axes.set_title(title)
            handles, labels = axes.get_legend_handles_labels()
            if named := dict(zip(reversed(labels), reversed(handles), strict=True)):  # one of each name
                axes.legend(named.values(), named.keys(), fontsize=6)
    for axes in (grid[0, 0], grid[1, 1], grid[2, 0], grid[2, 1]):
        percent_axis(axes.yaxis)
    for axes in grid[2]:
        axes.set_xlabel("step of the training")
    return Figure(
        name,
        "A training by step: accuracy; what base and each checkpoint think of the same text; how far the weights are. "
        "Step 0 is base. Bars: 95 % intervals over problems.",
        "Six line charts by step: accuracy, KL, mean Δ log p, shares of tokens beyond a threshold, share of changed "
        "weights, norm of the change. The data are in the CSV file.",
        svg(figure, name), ("what", "of", "step", "value", "low", "high"), tuple(rows),
    )  # fmt: skip


def _share(found: Mapping[str, Any]) -> dict[str, float]:
    """Return as shares what was counted of two checkpoints' weights."""
    return {
        "changed": found["changed"] / found["numbers"],
        "moved": found["moved"] / found["numbers"],
        "norm": found["difference"] / found["norm"] if found["norm"] else 0.0,
    }


def accuracy_table(data: Mapping[str, Any], name: str) -> Table:
    """List the accuracy of every checkpoint, and its differences to base and to the one before."""
    steps = {one["name"]: one["step"] for one in data["checkpoints"]}
    differences = {(each["task"], each["label"], each["minus"]): each for each in data["differences"]}
    rows, before = [], {}
    for each in data["scores"]:
        task, label = each["task"], each["label"]
        last = before.get(task)
        rows.append(
            Row(
                (
                    Cell(visible(str(label), 60)),
                    Cell(visible(str(task), 60)),
                    Cell(f"{steps.get(label, 0):g}", float(steps.get(label, 0))),
                    _points(each),
                    _difference(differences.get((task, label, "base"))),
                    _difference(differences.get((task, label, last)) if last and last != "base" else None),
                )
            )
        )
        before[task] = label
    columns = (
        Column("Checkpoint", words=True), Column("Benchmark", words=True), Column("Step"), Column("Avg"),
        Column("− base"), Column("− the checkpoint before"),
    )  # fmt: skip
    note = (
        "Percent and points, 95 % intervals over problems, differences paired by problem; a star: p < 0.05 after "
        f"Holm's correction over the {len(differences)} differences here."
    )
    return Table(name, f"{_whose(data)}: accuracy by step.", columns, tuple(rows), (note,))


def _points(one: Mapping[str, Any]) -> Cell:
    low, high = one["low"], one["high"]
    small = () if low is None or high is None else (f"[{100 * low:.1f}, {100 * high:.1f}]",)
    return Cell(f"{100 * one['value']:.1f}", 100 * one["value"], small)


def _difference(one: Mapping[str, Any] | None) -> Cell:
    if one is None:
        return Cell("–")
    low, high = one["low"], one["high"]
    small = () if low is None or high is None else (f"[{100 * low:+.1f}, {100 * high:+.1f}]",)
    return Cell(f"{100 * one['mean']:+.1f}", 100 * one["mean"], small, sign="*" if one["holm_p"] < 0.05 else "")


def change_table(data: Mapping[str, Any], name: str) -> Table:
    """List what changed since base, of log-probabilities and of weights, checkpoint by checkpoint."""
    rows = []
    for one in data["checkpoints"]:
        of = one["text"].get("base") or next(iter(one["text"].values()))
        shares = [_share(one["weights"][since]) if one["weights"].get(since) else None for since in ("base", "before")]
        rows.append(
            Row(
                (
                    Cell(visible(str(one["name"]), 60)),
                    nats(of["delta_logp"], 4),
                    percent(of["below"]),
                    percent(of["above"]),
                    nats(of["kl"], 4),
                    nats(of["entropy_rl"], 3),
                    *(
                        Cell("–") if shares[0] is None else Cell(f"{100 * shares[0][what]:.2f} %", shares[0][what])
                        for what in ("changed", "moved")
                    ),
                    *(
                        Cell("–") if each is None else Cell(f"{100 * each['norm']:.3f} %", each["norm"])
                        for each in shares
                    ),
                )
            )
        )
    tau = data["tau"]
    columns = (
        Column("Checkpoint", words=True), Column("Mean Δ log p"), Column(f"Δ log p < {tau:g}"),
        Column(f"Δ log p > {-tau:g}"), Column("KL"), Column("Entropy"), Column("Weights changed"), Column("> 1e-5"),
        Column("Norm of the change, of base's"), Column("since the checkpoint before"),
    )  # fmt: skip
    note = (
        "Of the tokens of base's text, each checkpoint against base, in nats; KL is the mean of both ways. Brackets: "
        "95 % intervals over problems. The weights against base's."
    )
    return Table(name, f"{_whose(data)}: what changed by step.", columns, tuple(rows), (note,))

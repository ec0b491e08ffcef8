"""The shapes of the paper's tables, for any numbers: methods x benchmarks, tau x gamma, extrapolation on RL.

The same functions draw the paper's own figures (which have no intervals) and ours (which have).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.markdown import interval
from harness.report.model import Cell, Column, Row, Table, marked_columns, ranked

TITLES = {"aime24": "AIME24", "aime25": "AIME25", "amc": "AMC", "minerva": "Minerva"}


@dataclass(frozen=True, slots=True)
class Score:
    """A score in percent: Avg@`samples`, its interval where it is known, Pass@`k`, and a paired difference in words."""

    avg: float
    samples: int = 0
    low: float | None = None
    high: float | None = None
    k: int = 0
    passed: float | None = None
    error: float | None = None  # standard error over problems
    beside: str = ""
    link: str = ""
    sign: str = ""

    @property
    def interval(self) -> str:
        """`[44.1, 66.7]`, within 0 and 100."""
        if self.low is None or self.high is None:
            return ""
        return interval(max(0, self.low) / 100, min(100, self.high) / 100)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A row of a table of methods: a model, what was done with it, and a score a benchmark.

    `average` is the unweighted mean over all benchmarks of the table; None has it made of the scores.
    """

    model: str
    name: str
    scores: Mapping[str, Score]
    average: Score | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Replacement and extrapolation of one pair on one benchmark: scores by (tau, gamma), ratios (percent) by tau.

    `ratios` are those of replaced tokens, `changed` of tokens that are others than the proposed ones; the paper has
    the former.
    """

    pair: str
    task: str
    ratios: Mapping[float, float]
    scores: Mapping[tuple[float, float], Score]
    rl: Score | None = None
    changed: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnRl:
    """Extrapolation with RL as primary: scores by (tau, gamma), gamma 0 being the control."""

    pair: str
    task: str
    rl: Score | None
    ratios: Mapping[float, float]
    scores: Mapping[tuple[float, float], Score]
    differences: Mapping[tuple[float, float], str] = field(default_factory=dict)  # to the control
    changed: Mapping[float, float] = field(default_factory=dict)


def title(task: str) -> str:
    """Name a benchmark as the paper prints it; what marks a part of its problems (`aime24 (16 of 30 …`) stays."""
    name, space, mark = task.partition(" ")
    return TITLES.get(name, name) + space + mark


def avg_name(scores: Iterable[Score | None]) -> str:
    """Return `Avg@32` where all have as many samples; else `Avg`, and `number` says how many each has."""
    counts = {score.samples for score in scores if score is not None}
    return f"Avg@{counts.pop()}" if len(counts) == 1 and 0 not in counts else "Avg"


def number(score: Score | None, value: float | None = None, *, beside: bool = True, among: str = "Avg@") -> Cell:
    """Make a score a cell, two decimals; empty where there is none. With `among="Avg"` it says how many samples."""
    if score is None or (value is None and score.avg is None):
        return Cell("–")
    value = score.avg if value is None else value
    count = f"@{score.samples}" if among == "Avg" and score.samples else ""
    small = tuple(text for text in (count, score.interval, score.beside) if text) if beside else ()
    return Cell(f"{value:.2f}", value, small, sign=score.sign if beside else "", link=score.link)


def average(scores: Sequence[Score]) -> Score:
    """Return the unweighted mean of the benchmarks, as the paper prints it: of the two-decimal scores."""
    passed = [score.passed for score in scores if score.passed is not None]
    return Score(
        _mean([score.avg for score in scores]),
        samples=scores[0].samples,
        k=scores[0].k,
        passed=_mean(passed) if len(passed) == len(scores) else None,
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(round(100 * value) for value in values) / len(values)) / 100


def methods_table(
    name: str,
    caption: str,
    methods: Sequence[MethodRow],
    *,
    second: bool = True,
    notes: Sequence[str] = (),
    paper: str = "",
    unranked: Sequence[str] = (),
) -> Table:
    """Set models and methods down, benchmarks across: Avg and Pass of each, and their average where there are several.

    Best and second best are marked within a model; methods named in `unranked` take no part.
    """
    tasks = list(dict.fromkeys(task for method in methods for task in method.scores))
    several = len(tasks) > 1
    first = next(score for method in methods for score in method.scores.values())
    heads = [(title(task), avg_name(method.scores.get(task) for method in methods)) for task in tasks]
    if several:
        heads.append(("Average", avg_name(score for method in methods for score in method.scores.values())))
    columns = [Column("Model", words=True), Column("Method", words=True)]
    for head, name_of_avg in heads:
        columns += [Column(each, group=head) for each in (name_of_avg, *([f"Pass@{first.k}"] if first.k else []))]
    rows: list[Row] = []
    for model in dict.fromkeys(method.model for method in methods):
        mine = [method for method in methods if method.model == model]
        lines = []
        for method in mine:
            scores = [method.scores.get(task) for task in tasks]
            if several:
                whole = [score for score in scores if score is not None]
                scores.append(method.average or (average(whole) if len(whole) == len(tasks) else None))
            cells = []
            for score, (head, among) in zip(scores, heads, strict=True):
                cells.append(number(score, among="" if head == "Average" else among))
                if first.k:
                    passed = None if score is None else score.passed
                    cells.append(Cell("–") if passed is None else number(score, passed, beside=False))
            lines.append(cells)
        taking = [i for i, method in enumerate(mine) if method.name not in unranked]
        marked = marked_columns([lines[i] for i in taking], second=second) if len(taking) > 1 else []
        for i, row in zip(taking, marked, strict=False):
            lines[i] = row
        for i, (method, cells) in enumerate(zip(mine, lines, strict=True)):
            kind = "reference" if method.name in unranked else ""
            rows.append(
                Row((Cell(model if i == 0 else ""), Cell(method.name), *cells), kind, rule=bool(rows) and i == 0)
            )
    return Table(name, caption, tuple(columns), tuple(rows), tuple(notes), paper)


def grid_table(
    name: str, caption: str, grid: Grid, *, second: bool = True, notes: Sequence[str] = (), paper: str = ""
) -> Table:
    """Set thresholds across, replacement (gamma 0) and extrapolation down; the best of each threshold is marked."""
    taus = sorted({tau for tau, _ in grid.scores})
    gammas = sorted({gamma for _, gamma in grid.scores})
    among = avg_name(grid.scores.values())
    lines = [[number(grid.scores.get((tau, gamma)), among=among) for tau in taus] for gamma in gammas]
    lines = marked_columns(lines, second=second) if len(gammas) > 1 else lines
    rows = [
        Row((Cell(name), *(Cell(f"{shares[tau]:.1f} %" if tau in shares else "–") for tau in taus)), "aside")
        for name, shares in (("replaced", grid.ratios), ("changed", grid.changed))
        if shares
    ]
    for gamma, cells in zip(gammas, lines, strict=True):
        label = f"Extrapolate, γ = {gamma:g}" if gamma else "Replace with π_RL (γ = 0)"
        rows.append(Row((Cell(label), *cells), rule=gamma == gammas[0]))
    columns = (Column("Threshold τ", words=True), *(Column(f"{tau:g}") for tau in taus))
    return Table(name, caption, columns, tuple(rows), tuple(notes), paper)


def on_rl_table(
    name: str, caption: str, data: OnRl, *, second: bool = True, notes: Sequence[str] = (), paper: str = ""
) -> Table:
    """Set thresholds across, RL itself first; a row each for the gamma = 0 control, every gamma, and the difference."""
    taus = sorted({tau for tau, _ in data.scores})
    gammas = sorted({gamma for _, gamma in data.scores})
    among = avg_name([data.rl, *data.scores.values()])
    rows = [
        Row((Cell(name), Cell("0.0 %"), *(Cell(f"{shares[tau]:.1f} %") for tau in taus)), "aside")
        for name, shares in (("replaced", data.ratios), ("changed", data.changed))
        if shares
    ]
    for i, gamma in enumerate(gammas):
        label = f"Extrapolate, γ = {gamma:g}" if gamma else "The gate alone (γ = 0)"
        scores = [data.rl, *(data.scores.get((tau, gamma)) for tau in taus)]
        cells = ranked([number(score, among=among) for score in scores], second=second)
        rows.append(Row((Cell(label), *cells), rule=i == 0))
        if any((tau, gamma) in data.differences for tau in taus):
            beside = [Cell(data.differences.get((tau, gamma), "–")) for tau in taus]
            rows.append(Row((Cell(f"γ = {gamma:g} minus the gate alone"), Cell(""), *beside), "aside"))
    columns = (Column("Threshold τ", words=True), Column("RL itself"), *(Column(f"{tau:g}") for tau in taus))
    return Table(name, caption, columns, tuple(rows), tuple(notes), paper)

"""Lay out tables like the paper's, for any numbers: methods x benchmarks, and tau x gamma.

The same functions lay out the paper's own numbers (which have no intervals) and ours (which have).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr_dir.report.model import KIND, SPLIT, Cell, Section, cell, frame, ranked
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import Setting
from rlvr_dir.stats import Estimate, PairedDifference

TITLES = {"aime24": "AIME24", "aime25": "AIME25", "amc": "AMC", "minerva": "Minerva"}


@dataclass(frozen=True, slots=True)
class Score:
    """Hold Avg@`samples` and Pass@`k` of one method on one benchmark, as fractions, with the text below them."""

    avg: Estimate
    samples: int = 0
    k: int = 0
    passed: float | None = None
    beside: tuple[str, ...] = ()
    link: str = ""
    sign: str = ""

    @classmethod
    def of(cls, setting: Setting, k: int | None = None, beside: Iterable[str] = ()) -> "Score":
        """Return the score of a setting, with its interval and its source."""
        k = max(1, setting.samples // 2) if k is None else k
        is_known = k <= setting.samples
        return cls(
            Estimate(setting.avg, *setting.interval), setting.samples, k if is_known else 0,
            setting.pass_at(k) if is_known else None, tuple(beside), anchor(setting.first),
            "*" if setting.partial else "",
        )  # fmt: skip

    def cell(self, among: str = "") -> Cell:
        """Return it as a cell; in a column with several numbers of samples (`Avg`) with its own."""
        count = [f"@{self.samples}"] if among == "Avg" and self.samples else []
        printed = cell(self.avg, ends=1, beside=self.beside, sign=self.sign, link=self.link)
        return replace(printed, small=(*count, *printed.small))


@dataclass(frozen=True, slots=True)
class Method:
    """Hold a row of a table of methods: a model, its method, a score per benchmark and their `average`."""

    model: str
    name: str
    scores: Mapping[str, Score]
    average: Score | None = None


def anchor(result: EvalResult) -> str:
    """Return the link to the place on the page where a result's source is described."""
    return f"#r-{result.config_hash}"


def in_points(difference: PairedDifference) -> str:
    """Return a difference of shares in points, with its interval."""
    number, _, interval = Estimate(difference.mean, difference.low, difference.high).text(1, sign=True).partition(" ")
    return f"{number} points {interval}".rstrip()


def benchmark_title(task: str) -> str:
    """Return a benchmark's name as the paper prints it; the mark for a part of its problems (`aime24 (16 of 30 …`)
    stays."""
    name, space, mark = task.partition(" ")
    return TITLES.get(name, name) + space + mark


def avg_name(scores: Iterable[Score]) -> str:
    """Return `Avg@32` if all have as many samples; otherwise `Avg`, and each score shows its own."""
    counts = {score.samples for score in scores}
    return f"Avg@{counts.pop()}" if len(counts) == 1 and 0 not in counts else "Avg"


def methods_table(name: str, title: str, methods: Sequence[Method], *, second: bool = True, **more: Any) -> Section:
    """Lay out a table of models and methods by benchmarks: Avg and Pass of each, and their average if there are
    several.

    A row without one of the table's benchmarks has no average, because it would be over other benchmarks than the other
    rows'. Best and second best are marked within a model, without `Base`.
    """
    tasks = list(dict.fromkeys(task for method in methods for task in method.scores))
    heads: dict[str, dict[int, Score]] = {
        benchmark_title(task): {i: method.scores[task] for i, method in enumerate(methods) if task in method.scores}
        for task in tasks
    }
    if len(tasks) > 1:
        heads["Average"] = {
            i: method.average
            for i, method in enumerate(methods)
            if method.average is not None and len(method.scores) == len(tasks)
        }
    k = next(score.k for method in methods for score in method.scores.values())
    rows: list[dict[str, Any]] = [
        {"Model": method.model if i == 0 or methods[i - 1].model != method.model else "", "Method": method.name,
         KIND: "reference" if method.name == "Base" else ""}
        for i, method in enumerate(methods)
    ]  # fmt: skip
    for head, scores in heads.items():
        among = avg_name(score for scores in heads.values() for score in scores.values()) if head == "Average" else ""
        among = among or avg_name(scores.values())
        prefix = "" if head == "Average" else among
        for i, row in enumerate(rows):
            row[f"{head}{SPLIT}{among}"] = scores[i].cell(prefix) if i in scores else Cell("–")
            if k:
                row[f"{head}{SPLIT}Pass@{k}"] = cell(scores[i].passed if i in scores else None)
    for model in dict.fromkeys(method.model for method in methods):
        taking = [i for i, method in enumerate(methods) if method.model == model and method.name != "Base"]
        for column in [name for name in rows[0] if name not in ("Model", "Method", KIND)] if len(taking) > 1 else ():
            for i, marked in zip(taking, ranked([rows[i][column] for i in taking], second=second), strict=True):
                rows[i][column] = marked
    return Section(name, title, frame(rows), **{**more, "notes": tuple(more.get("notes", ()))})


VETO, REJECT = -3.0, -2.0  # the positions of the controls among the strengths, which are at least -1
Cells = Mapping[tuple[float, float], Cell]


def grid(
    name: str,
    title: str,
    cells: Cells,
    token_shares: Mapping[str, Mapping[float, float]],
    *,
    rl: Cell | None = None,
    differences: Mapping[tuple[float, float], str] | None = None,
    second: bool = True,
    notes: Sequence[str] = (),
    paper: str = "",
) -> Section:
    """Lay out thresholds as columns; veto, reject, gamma 0 and every strength as rows. The best of each threshold is
    marked.

    On the RL model itself `rl` is the first row, the best of each strength is marked, and below each strength are its
    `differences` from its control.
    """
    taus, gammas, head = sorted({tau for tau, _ in cells}), sorted({gamma for _, gamma in cells}), "Threshold τ"
    first = {} if rl is None else {"RL itself": rl}
    rows: list[dict[str, Any]] = []
    for share_name, share in token_shares.items():
        by_tau = {f"{tau:g}": f"{100 * share[tau]:.1f} %" if tau in share else "–" for tau in taus}
        rows += [{KIND: "aside", head: share_name, **dict.fromkeys(first, "0.0 %"), **by_tau}] if share else []
    controls = "Replace with π_RL (γ = 0)" if rl is None else "The gate alone (γ = 0)"
    scores: list[dict[str, Any]] = []
    for gamma in gammas:
        row_cells = {**first, **{f"{tau:g}": cells.get((tau, gamma), Cell("–")) for tau in taus}}
        if rl is not None:
            row_cells = dict(zip(row_cells, ranked(list(row_cells.values()), second=second), strict=True))
        writer = "Base" if rl is None else "RL"
        named = {VETO: f"{writer} without the flagged token (veto)", 0.0: controls}
        named[REJECT] = "The same where RL's draw rejects it (reject)"
        scores.append({KIND: "", head: named.get(gamma, f"Extrapolate, γ = {gamma:g}"), **row_cells})
    for tau in taus if rl is None and len(gammas) > 1 else ():
        column = f"{tau:g}"
        for row, marked in zip(scores, ranked([row[column] for row in scores], second=second), strict=True):
            row[column] = marked
    for gamma, row in zip(gammas, scores, strict=True):
        rows.append(row)
        if share_name := {f"{tau:g}": text for tau in taus if (text := (differences or {}).get((tau, gamma)))}:
            title_of_row = f"γ = {gamma:g} minus the gate alone"
            if gamma in (0.0, REJECT):
                title_of_row = "Reject minus the veto" if gamma else "Replace minus reject"
                title_of_row = "The gate alone minus the veto" if rl is not None else title_of_row
            rows.append({KIND: "aside", head: title_of_row, "RL itself": "", **share_name})
    return Section(name, title, frame(rows), tuple(notes), paper=paper)

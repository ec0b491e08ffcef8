"""What a sweep of trainings says in the end: every point beside plain DAPO, paired by seed; the same as JSON.

A seed is the same problems in the same order for every point, so most of its luck cancels in a difference. Intervals
are over seeds: what other seeds would give, not what other problems would.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import stats
from harness.evals.show import markdown_table
from harness.records.files import write_file
from harness.sweep.folder import Folder
from harness.sweep.points import Point
from harness.sweep.progress import duration, state
from harness.sweep.study import Book
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.trial import SeedResult, folder_of, seeds_of
from harness.train.folder import read_json
from harness.train.spec import TrainSpec


@dataclass(frozen=True, eq=False)
class Entry:
    """A complete trial: a point, or the reference (`point` None), with the results of its seeds."""

    number: int
    point: Point | None
    spec: TrainSpec
    results: list[SeedResult]
    metrics: dict[str, float]

    @property
    def label(self) -> str:
        """The training in words: `low_prob α0.2`, and what else the point sets."""
        shown = ("train.method", "train.alpha", "train.top_p")
        more = [f"{n.partition('.')[2]} {v}" for n, v in (self.point or {}).items() if n not in (*shown, "pair")]
        return ", ".join([self.spec.dapo.label, *more])

    def values(self, task: str, field: str = "avg") -> np.ndarray:
        """A score on a benchmark by seed: (seeds,)."""
        return np.array([each.scores[task][field] for each in self.results])


@dataclass(frozen=True, slots=True)
class Row:
    """A point minus the reference on one benchmark, paired by seed."""

    label: str
    task: str
    difference: stats.PairedDifference
    holm_p: float


@dataclass(frozen=True, eq=False)
class Summary:
    """A finished, or unfinished, sweep of trainings in figures."""

    spec: TrainingSweep
    entries: list[Entry]
    rows: list[Row]
    best: list[Entry]
    base: dict[str, Any]
    states: dict[str, int]
    seconds: float
    failed: int = 0  # points that failed too often, or are not finished
    verdicts: list[str] = field(default_factory=list)

    @property
    def points(self) -> list[Entry]:
        """Without the reference."""
        return [entry for entry in self.entries if entry.point is not None]

    @property
    def reference(self) -> Entry | None:
        """Plain DAPO, which may be a point of the sweep."""
        return _reference(self.spec, self.entries)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The benchmarks of the validation."""
        return tuple(self.entries[0].results[0].scores) if self.entries else ()


def store_of(folder: Folder) -> Path:
    """Where the trainings of a sweep are."""
    return folder.path.parents[1] / "trainings"


def write(spec: TrainingSweep, book: Book, folder: Folder, *, seconds: float = 0.0) -> Summary:
    """Writes `summary.md`, `summary.json` and the figure."""
    from harness.sweep.training.plots import draw

    made = summarise(spec, book, folder, seconds=seconds)
    figures = draw(made, folder.path)
    write_file(folder.path / "summary.md", text(made, figures).encode())
    write_file(folder.path / "summary.json", json.dumps(as_json(made), indent=1, ensure_ascii=False).encode())
    return made


def summarise(spec: TrainingSweep, book: Book, folder: Folder, *, seconds: float = 0.0) -> Summary:
    """Everything that is complete; pruned and failed trials are counted, and in no table."""
    store = store_of(folder)
    entries = []
    for trial in (*book.complete(book.references), *book.complete()):
        point = trial.user_attrs["point"]
        training = spec.training(point)
        if (results := seeds_of(training, store)) is not None:
            asked = None if "reference" in point else point
            entries.append(Entry(trial.number, asked, training, results, trial.user_attrs["metrics"]))
    base = read_json(folder_of(entries[0].spec, store) / "base.json") if entries else {}
    rows = compare(spec, entries)
    numbers = {trial.number for trial in book.best()}
    best = [entry for entry in entries if entry.point is not None and entry.number in numbers]
    made = Summary(spec, entries, rows, best, base, state(book), seconds, len(book.lost()))
    made.verdicts.append(verdict(made))
    return made


def compare(spec: TrainingSweep, entries: Sequence[Entry]) -> list[Row]:
    """Every entry minus the reference on every benchmark, with Holm's correction over all of them."""
    reference = _reference(spec, entries)
    if reference is None:
        return []
    rows = [
        Row(entry.label, task, stats.paired_difference(entry.values(task), reference.values(task)), 1.0)
        for entry in entries
        if entry is not reference
        for task in reference.results[0].scores
    ]
    corrected = stats.holm([row.difference.p for row in rows]) if rows else ()
    return [replace(row, holm_p=float(p)) for row, p in zip(rows, corrected, strict=True)]


def _reference(spec: TrainingSweep, entries: Sequence[Entry]) -> Entry | None:
    return next((entry for entry in entries if entry.spec.same == spec.plain_dapo.same), None)


def verdict(made: Summary) -> str:
    """One sentence on the best point: of how many it is the best, and what is left of it after Holm."""
    n = len(made.points) + made.states.get("pruned", 0)
    if not made.best:
        return f"None of {n} points is complete and within the constraints."
    names = [metric.name for metric in made.spec.metric]
    if len(names) > 1:
        return f"Pareto set of {n} points by {' and '.join(names)}: {'; '.join(e.label for e in made.best)}."
    [entry] = made.best
    value = entry.metrics[names[0]]
    shown = f"{value:.1f}" if names[0] == "mean_tokens" else f"{100 * value:.2f}"
    words = [f"Best of {n} on these seeds and problems: {entry.label}, {names[0]} {shown}"]
    for row in made.rows:
        if row.label == entry.label and entry is not made.reference:
            words.append(
                f"{_points(row.difference)} on {row.task} against plain DAPO "
                f"(p {row.difference.p:.3f}, Holm over {len(made.rows)}: {row.holm_p:.3f})"
            )
    return "; ".join(words) + ". It was chosen on these very seeds, so its lead is too large; confirm it."


def _points(d: stats.PairedDifference) -> str:
    interval = "" if np.isnan(d.low) else f" [{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
    return f"{100 * d.mean:+.2f}{interval} points"


def text(made: Summary, figures: Sequence[str] = ()) -> str:
    """The summary as Markdown, scores in percent."""
    spec = made.spec
    lines = [f"# Sweep {spec.name}", "", *(line for v in made.verdicts for line in (v, "")), facts(made), ""]
    samples = spec.plain_dapo.validation.sampling.samples
    for task in made.tasks:
        rows = [["base", _cell(made.base[task]["avg"]), "", "", "", ""]] if task in made.base else []
        for entry in made.entries:
            row = next((r for r in made.rows if (r.label, r.task) == (entry.label, task)), None)
            cells = [entry.label, _mean(entry.values(task)), _mean(entry.values(task, "pass"))]
            cells += [f"{entry.values(task, 'tokens').mean():.1f}"]
            cells += ["", ""] if row is None else [_points(row.difference).removesuffix(" points"), _ps(row)]
            rows.append(cells)
        head = [task, f"Avg@{samples}", f"Pass@{max(1, samples // 2)}", "tokens", "minus plain DAPO", "p (Holm)"]
        lines += [markdown_table(head, rows, left=1), ""]
    if made.entries:
        lines += ["Each seed's Avg, mean of the benchmarks:", "", _by_seed(made), ""]
    lines += [f"![{name.removesuffix('.svg')}]({name})" for name in figures]
    return "\n".join(lines).rstrip() + "\n"


def _ps(row: Row) -> str:
    return f"{row.difference.p:.3f} ({row.holm_p:.3f})"


def _cell(value: float) -> str:
    return f"{100 * value:.2f}"


def _mean(values: np.ndarray) -> str:
    error = stats.standard_error(values)
    return _cell(values.mean()) + ("" if np.isnan(error) else f" ± {100 * error:.2f}")


def _by_seed(made: Summary) -> str:
    rows = []
    for entry in made.entries:
        every = np.mean([entry.values(task) for task in made.tasks], axis=0)
        rows.append([entry.label, *(_cell(value) for value in every)])
    return markdown_table(["", *(f"seed {seed}" for seed in made.spec.seeds)], rows, left=1)


def facts(made: Summary) -> str:
    """What was run, in a few words."""
    spec, dapo = made.spec, made.spec.plain_dapo.dapo
    states = ", ".join(f"{count} {name}" for name, count in made.states.items() if count)
    words = [f"{time.strftime('%Y-%m-%d')}: {spec.size()} ({states}) and plain DAPO, {len(spec.seeds)} seeds each"]
    words.append(f"{dapo.steps} steps of {dapo.prompts} x {dapo.samples} responses")
    trained = sum(result.facts["seconds"] for entry in made.entries for result in entry.results)
    words.append(f"{duration(trained)} of steps")
    if made.seconds:
        words.append(f"{duration(made.seconds)} in this run")
    machines = {result.facts["machine"] for entry in made.entries for result in entry.results}
    words.append(machines.pop() if len(machines) == 1 else f"{len(machines)} different machines")
    end = "± is the standard error over seeds; in brackets 95 % t intervals of the differences, paired by seed."
    return "; ".join(words) + ". " + end


def as_json(made: Summary) -> dict[str, Any]:
    """The summary as plain values."""
    return {
        "name": made.spec.name,
        "kind": "train",
        "date": time.strftime("%Y-%m-%d"),
        "verdicts": made.verdicts,
        "states": made.states,
        "seconds": round(made.seconds, 1),
        "seeds": list(made.spec.seeds),
        "base": made.base,
        "best": [entry.label for entry in made.best],
        "entries": [
            {
                "trial": entry.number,
                "point": entry.point,
                "label": entry.label,
                "dapo": entry.spec.dapo.model_dump(mode="json", exclude={"seed"}),
                "metrics": entry.metrics,
                "by_seed": {str(each.seed): each.scores for each in entry.results},
                "folder": str(entry.results[0].folder.path.parent),
            }
            for entry in made.entries
        ],
        "comparisons": [
            {
                "task": row.task,
                "training": row.label,
                "minus": "plain DAPO",
                "mean": row.difference.mean,
                "low": _number(row.difference.low),
                "high": _number(row.difference.high),
                "p": row.difference.p,
                "holm_p": row.holm_p,
                "seeds": row.difference.n,
            }
            for row in made.rows
        ],
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value

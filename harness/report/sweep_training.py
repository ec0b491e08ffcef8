"""The summary of a sweep of trainings: every point beside plain DAPO, paired by seed.

A seed is the same problems in the same order for every point, so most of its luck cancels in a difference. Intervals
and p are over problems and seeds, as everywhere that trainings are compared.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from harness import stats
from harness.markdown import duration, interval, markdown_table
from harness.report.draw import COLOURS, canvas, styled, svg
from harness.report.model import Figure
from harness.report.sweep import CompleteTrial, SweepSummary, unit_of
from harness.train.summary import run_scores


class FinishedSeed(Protocol):
    """A finished seed of a training, and what it took.

    Its scores are by benchmark (`avg`, `pass`, `tokens`), and by task and metric of lm-eval's (`metric`, no `pass`).
    """

    @property
    def seed(self) -> int: ...
    @property
    def scores(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, eq=False)
class CompleteTraining(CompleteTrial):
    """A complete trial with the results of its seeds; `about` goes into the JSON."""

    results: tuple[FinishedSeed, ...]
    about: dict[str, Any] = field(default_factory=dict)

    def values(self, task: str, name: str = "avg") -> np.ndarray:
        """Return a score on a benchmark by seed: (seeds,)."""
        return np.array([each.scores[task][name] for each in self.results])

    def scores(self, task: str, name: str = "avg") -> stats.RunScores:
        """Return a score on a benchmark, to be paired by problem and seed."""
        return run_scores(self.label, task, {each.seed: each.scores for each in self.results}, name)


def against(
    reference: CompleteTraining, entries: Sequence[CompleteTraining]
) -> list[stats.Comparison[stats.RunScores]]:
    """Compare every entry with the reference on every benchmark, as one family."""
    others = [entry for entry in entries if entry is not reference]
    tasks = list(reference.results[0].scores)
    return stats.family((entry.scores(task), reference.scores(task)) for entry in others for task in tasks)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingSummary(SweepSummary):
    """A sweep of trainings in figures.

    `reference` is plain DAPO, which may be a point of the sweep; `base` has the scores of the base by benchmark;
    `samples` are those of the validation; `about` says how long a training is.
    """

    entries: Sequence[CompleteTraining]
    reference: CompleteTraining | None
    base: Mapping[str, Mapping[str, Any]]
    samples: int
    seeds: Sequence[int]
    about: str

    @property
    def tasks(self) -> list[str]:
        """Return the benchmarks of the validation, lm-eval's by metric."""
        return list(self.entries[0].results[0].scores) if self.entries else []

    @property
    def judged(self) -> dict[str, str]:
        """Return by benchmark what points are looked at by: Avg@k, of lm-eval's tasks the sweep's first metric."""
        scores = self.entries[0].results[0].scores if self.entries else {}
        own = {task: score.get("metric", f"Avg@{self.samples}") for task, score in scores.items()}
        return {task: name for task, name in own.items() if name in (f"Avg@{self.samples}", self.spec.metric[0].name)}

    @property
    def verdicts(self) -> list[str]:
        """Say what the best point is, and that its lead is too large."""
        tried = len(self.points) + self.states.get("pruned", 0)
        leads = [
            ("plain DAPO", row)
            for row in self.comparisons
            if self.best and row.result.label == self.best[0].label and row.task in self.judged
        ]
        leads = [] if self.best and self.best[0] is self.reference else leads
        said = self.sentence(tried, self.best, leads, "seeds and problems")
        return [said[0].upper() + said[1:]]

    def text(self, figures: Sequence[Figure] = ()) -> str:
        """Return the summary as Markdown, scores in percent, those of lm-eval's tasks in their own units."""
        lines = [f"# Sweep {self.spec.name}", "", *(line for said in self.verdicts for line in (said, ""))]
        lines += [self._facts(), ""]
        for task in self.tasks:
            lines += [self._table(task), ""]
        for name in dict.fromkeys(self.judged.values()):
            tasks = [task for task, its in self.judged.items() if its == name]
            means = [(entry, np.mean([entry.values(task) for task in tasks], axis=0)) for entry in self.entries]
            each = [[entry.label, *(_shown(entry.scores(tasks[0]), one) for one in mean)] for entry, mean in means]
            lines += [f"Each seed's {name}, mean of the benchmarks:", ""]
            lines += [markdown_table(["", *(f"seed {seed}" for seed in self.seeds)], each, left=1), ""]
        lines += [f"![{figure.name}]({figure.name}.svg)" for figure in figures]
        return "\n".join(lines).rstrip() + "\n"

    def _table(self, task: str) -> str:
        scores = self.entries[0].scores(task)
        metric, limited = (self.entries[0].results[0].scores[task].get(name) for name in ("metric", "limited"))
        named = ["avg"] if metric else ["avg", "pass"]
        blank = [""] * (len(named) + 2)
        rows = [["base", _shown(scores, self.base[task]["avg"]), *blank]] if task in self.base else []
        for entry in self.entries:
            row = next((r for r in self.comparisons if (r.result.label, r.task) == (entry.label, task)), None)
            cells = [entry.label, *(_mean(entry.scores(task, name)) for name in named)]
            cells += [f"{entry.values(task, 'tokens').mean():.1f}"]
            if row is None or entry is self.reference:
                rows.append([*cells, "", ""])
                continue
            d, (unit, digits, _) = row.difference, unit_of(row.result)
            shown = interval(d.low, d.high, digits, sign=True, unit=unit)
            rows.append([*cells, f"{unit * d.mean:+.{digits}f} {shown}".rstrip(), _p_values(row)])
        about = ", ".join([*([limited] if limited else []), *(["lower is better"] if scores.lower_is_better else [])])
        head = [f"{task} ({about})" if about else task]
        head += [metric] if metric else [f"Avg@{self.samples}", f"Pass@{max(1, self.samples // 2)}"]
        return markdown_table([*head, "tokens", "minus plain DAPO", "p (Holm)"], rows, left=1)

    def _facts(self) -> str:
        """Say what was run, in a few words."""
        results = [result for entry in self.entries for result in entry.results]
        words = [f"{self.counts()} and plain DAPO, {len(self.seeds)} seeds each", self.about]
        words.append(f"{duration(sum(result.facts['seconds'] for result in results))} of steps")
        if self.seconds:
            words.append(f"{duration(self.seconds)} in this run")
        machines = {result.facts["machine"] for result in results}
        words.append(machines.pop() if len(machines) == 1 else f"{len(machines)} different machines")
        end = "In brackets 95 % intervals over problems and seeds; differences are paired by both."
        return "; ".join(words) + ". " + end

    def figures(self) -> list[Figure]:
        """Draw each point's difference to plain DAPO, every seed and the 95 % interval."""
        if self.reference is None or not self.comparisons or not self.judged:
            return []
        return [self._differences(self.reference)]

    @styled
    def _differences(self, reference: CompleteTraining) -> Figure:
        [name, *_] = self.judged.values()
        tasks = [task for task, its in self.judged.items() if its == name]  # an axis has one unit
        unit, _, points = unit_of(reference.scores(tasks[0]))
        rows = [(entry, task) for entry in self.entries for task in tasks if entry is not reference]
        by = {(row.result.label, row.task): row.difference for row in self.comparisons}
        figure, axes = canvas(6.4, 1.2 + 0.32 * len(rows))
        data = []
        for place, (entry, task) in enumerate(reversed(rows)):
            each = unit * (entry.values(task) - reference.values(task))
            d, colour = by[entry.label, task], COLOURS[tasks.index(task) % len(COLOURS)]
            axes.plot(each, np.full(len(each), place), "o", color=colour, alpha=0.35, markersize=4, markeredgewidth=0)
            if d.low == d.low:
                axes.plot([unit * d.low, unit * d.high], [place, place], color=colour, linewidth=1.5)
            axes.plot([unit * d.mean], [place], "D", color=colour, markersize=5)
            data.append((entry.label, task, unit * d.mean, unit * d.low, unit * d.high))
        axes.axvline(0, color="#808080", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [f"{entry.label}, {task}" for entry, task in reversed(rows)])
        axes.set_xlabel(f"{name} minus plain DAPO{',' if points else ''}{points}, paired by seed")
        return Figure(
            "differences",
            "Each training minus plain DAPO; small dots are seeds, bars are 95 % intervals over problems and seeds.",
            "Dot chart: the difference of each training to plain DAPO, seed by seed and on average.",
            svg(figure, "differences"),
            ("training", "benchmark", "difference", "low", "high"),
            tuple(data),
        )

    def plain(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return {
            "name": self.spec.name,
            "kind": "train",
            "date": time.strftime("%Y-%m-%d"),
            "verdicts": self.verdicts,
            "states": self.states,
            "seconds": round(self.seconds, 1),
            "seeds": list(self.seeds),
            "base": self.base,
            "best": [entry.label for entry in self.best],
            "entries": [
                {
                    "trial": entry.number,
                    "point": entry.point,
                    "label": entry.label,
                    **entry.about,
                    "metrics": entry.metrics,
                    "by_seed": {str(each.seed): each.scores for each in entry.results},
                }
                for entry in self.entries
            ],
            "comparisons": [
                {**row.facts(), "training": row.result.label, "minus": "plain DAPO", "seeds": len(row.result.units)}
                for row in self.comparisons
            ],
        }


def _shown(scores: stats.Scores, value: float) -> str:
    """Write a value as such scores are written."""
    unit, digits, _ = unit_of(scores)
    return f"{unit * value:.{digits}f}"


def _mean(scores: stats.Scores) -> str:
    unit, digits, _ = unit_of(scores)
    return f"{_shown(scores, scores.avg)} {interval(*scores.interval, digits, unit=unit)}".rstrip()


def _p_values(row: stats.Comparison[stats.Scores]) -> str:
    return "" if row.difference.p != row.difference.p else f"{row.difference.p:.3f} ({row.holm_p:.3f})"

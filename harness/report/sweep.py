"""The summary of a sweep: what its best point is worth in one sentence, the tables, the figures, and all of it as JSON.

`DecodingSummary` is that of a sweep of decodings; `harness.report.sweep_training` has that of trainings. The sweep
hands in what is complete; here it is put into words and drawn.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness import stats
from harness.evals import forwards
from harness.evals.compare import Comparison, markdown
from harness.evals.result import EvalResult
from harness.evals.settings import settings_of
from harness.evals.show import tables
from harness.files import write_file
from harness.markdown import duration, interval, markdown_table
from harness.report.figures import against_share, heat_map
from harness.report.model import Figure
from harness.report.verdict import p_value
from harness.report.write import figure_file
from harness.spec.search import Search
from harness.spec.sweep import SweepSpec, in_percent


@dataclass(frozen=True, eq=False)
class CompleteTrial:
    """A complete trial: a point, or a reference (`point` None), with its results and its metrics as fractions.

    `drawn` says how a reference is drawn otherwise than the sweep.
    """

    pair: str
    number: int
    point: dict[str, Any] | None
    label: str
    results: tuple[Any, ...]
    metrics: dict[str, float]
    drawn: str = field(default="", kw_only=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepSummary(ABC):
    """A sweep in figures, finished or not; pruned and failed trials are counted in `states`, and in no table.

    `failed` counts the points that failed too often or are not finished, `seconds` is the time of this run.
    """

    spec: Search
    entries: Sequence[Any]
    comparisons: Sequence[stats.Comparison[Any]]
    best: Sequence[Any]
    states: dict[str, int]
    seconds: float = 0.0
    failed: int = 0

    @property
    def points(self) -> list[Any]:
        """Return the entries without the references."""
        return [entry for entry in self.entries if entry.point is not None]

    @property
    @abstractmethod
    def verdicts(self) -> list[str]:
        """Say in a sentence a pair what the best point is, and that its lead is too large."""

    @abstractmethod
    def text(self, figures: Sequence[Figure] = ()) -> str:
        """Return the summary as Markdown."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """Return the summary as plain values."""

    @abstractmethod
    def figures(self) -> list[Figure]:
        """Draw what there is to be drawn."""

    def write(self, folder: Path) -> None:
        """Write `summary.md`, `summary.json` and the figures into a folder. The same results give the same figures."""
        figures = self.figures()
        for figure in figures:
            write_file(folder / f"{figure.name}.svg", figure_file(figure).encode())
        write_file(folder / "summary.md", self.text(figures).encode())
        write_file(folder / "summary.json", json.dumps(self.plain(), indent=1, ensure_ascii=False).encode())

    def sentence(self, tried: int, best: Sequence[Any], leads: Sequence[tuple[str, Any]], chosen_on: str) -> str:
        """Say which of the points tried is best, and what is left of its leads, each over something, after Holm."""
        names = [metric.name for metric in self.spec.metric]
        if not best:
            return f"none of {tried} points is complete and within the constraints."
        if len(names) > 1:
            labels = "; ".join(entry.label for entry in best)
            return f"Pareto set of {tried} points on these {chosen_on} by {' and '.join(names)}: {labels}."
        value = best[0].metrics[names[0]]
        digits = 1 if names[0] == "mean_tokens" else 4
        shown = f"{100 * value:.2f}" if in_percent(names[0]) else f"{value:.{digits}f}"
        words = [f"best of {tried} on these {chosen_on}: {best[0].label}, {names[0]} {shown}"]
        for over, row in leads:
            d, (unit, digits, points) = row.difference, unit_of(row.result)
            what = f"{unit * d.mean:+.{digits}f}{points} on {row.result.benchmark} against {over}"
            told = [f"95 % {interval(d.low, d.high, digits, sign=True, unit=unit)}"] if d.low == d.low else []
            told += [f"p {p_value(d.p)}"] if d.p == d.p else []
            told += [f"Holm over {len(self.comparisons)}: {p_value(row.holm_p)}"] if told else []
            words.append(f"{what} ({', '.join(told)})" if told else what)
        words = [f"{'; '.join(words)}. It was chosen on these very {chosen_on}"]
        return ", ".join([*words, "for which no interval is corrected: its lead is too large; confirm it."])

    def counts(self) -> str:
        """Say the date, the size of the sweep, and how many trials are in which state."""
        states = ", ".join(f"{count} {name}" for name, count in self.states.items() if count)
        return f"{time.strftime('%Y-%m-%d')}: {self.spec.size()} ({states})"


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodingSummary(SweepSummary):
    """A sweep of decodings in figures. `matched` has a row a point whose threshold was found from a wanted ratio."""

    spec: SweepSpec
    comparisons: Sequence[Comparison]
    matched: Sequence[dict[str, Any]] = ()

    def of(self, pair: str) -> list[CompleteTrial]:
        """Return the entries of one pair, references first."""
        return [entry for entry in self.entries if entry.pair == pair]

    def results(self, pair: str, task: str) -> list[EvalResult]:
        """Return the results of one pair on one benchmark by the sweep's first metric, references first.

        Those that are drawn as the sweep says.
        """
        entries = [entry for entry in self.of(pair) if not entry.drawn]
        found = [result for entry in entries for result in entry.results if result.task == task]
        return [result.of_metric(self.spec.metric[0].name) for result in found]

    def tasks(self, pair: str) -> list[str]:
        """Return the benchmarks of one pair."""
        return list(dict.fromkeys(result.task for entry in self.of(pair) for result in entry.results))

    @cached_property
    def lots(self) -> list[forwards.MatchedGroup]:
        """Return what one model does with as many forwards, where the sweep asks for it and is far enough to tell."""
        results = (result for entry in self.entries for result in entry.results)
        settings = settings_of(results, usual=self.spec.sampling)
        if not self.spec.equal_forwards or not any(forwards.models_of(each) > 1 for each in settings):
            return []
        return forwards.equal_forwards(settings, ("temperature", "top_p") if self.spec.samplings else ())

    @property
    def verdicts(self) -> list[str]:
        """Say in a sentence a pair what the best point is, and that its lead is too large."""
        said = []
        for pair in self.spec.pairs:
            best = [entry for entry in self.best if entry.pair == pair]
            tried = sum(entry.pair == pair for entry in self.points) + self.states.get("pruned", 0)
            rows = [row for row in self.comparisons if best and self._is_among(row.result.first, best[0].results)]
            leads = [("rl" if row.reference.decoding.mode == "rl" else "its γ=0 control", row) for row in rows]
            said.append(f"{pair}: {self.sentence(tried, best, leads, 'problems')}")
        return said

    def _is_among(self, result: EvalResult, results: Sequence[EvalResult]) -> bool:
        """Tell whether a result is one of others; that of a task of lm-eval's by the sweep's first metric."""
        if not result.shares:
            named = result.subject == f"{result.task} {self.spec.metric[0].name}"
            return named and result.config_hash in {each.config_hash for each in results}
        return result in results

    def text(self, figures: Sequence[Figure] = ()) -> str:
        """Return the summary as Markdown."""
        lines = [f"# Sweep {self.spec.name}", "", *(line for said in self.verdicts for line in (said, ""))]
        lines += [self._facts(), ""]
        for pair in self.spec.pairs:
            if not (entries := self.of(pair)):
                continue
            lines += [f"## {pair}", ""]
            for task in self.tasks(pair):
                lines += self._grid(pair, task)
            results = [result for entry in entries for result in entry.results]
            lines += [tables(sorted(results, key=lambda result: result.task)), ""]
            if rows := [row for row in self.matched if row["pair"] == pair]:
                lines += [
                    "Matched ratios: what was wanted, what the text promised that the threshold",
                    "was found from, what was reached.",
                    "",
                ]
                lines += [_matched(rows), ""]
        if self.comparisons:
            lines += ["## Differences", "", markdown(self.comparisons), ""]
        if lots := self.lots:
            lines += ["## Equal forwards", "", forwards.markdown(lots), ""]
        lines += [f"![{figure.name}]({figure.name}.svg)" for figure in figures]
        return "\n".join(lines).rstrip() + "\n"

    def _facts(self) -> str:
        """Say what was run, in a few words, with what makes the figures hard to compare."""
        results = [result for entry in self.entries for result in entry.results]
        tokens = sum(int(result.n_tokens.sum()) for result in results)
        words = [f"{self.counts()}, {len(self.entries) - len(self.points)} references"]
        words.append(f"{self.spec.sampling.samples} samples a problem, {tokens:,} tokens")
        if self.seconds:
            words.append(f"{duration(self.seconds)} in this run")
        engines = {json.dumps(_engine(result), sort_keys=True) for result in results}
        if len(engines) == 1:
            engine = json.loads(engines.pop())
            words.append(f"{engine.get('backend')} {engine.get(engine.get('backend'), '')} on {engine.get('device')}")
        elif engines and len(self.spec.pairs) == 1:
            words.append(f"WARNING: {len(engines)} different engine settings are in these tables")
        if self.spec.samplings:
            words.append(f"{self.spec.sampling.words} where no other is said")
        if self.spec.part.words:
            words.append(f"problems {self.spec.part.words}, the others are for `sweep confirm`")
        if self.spec.limit:
            words.append(f"the first {self.spec.limit} problems only")
        return "; ".join(words) + "."

    def _cells(self, pair: str, task: str) -> dict[tuple[float, float], EvalResult]:
        """Return the results by (tau, gamma) of a grid with several of each that varies nothing else; else nothing."""
        gated = [result for result in self.results(pair, task) if result.decoding.gated]
        if self.spec.method != "grid" or len({(r.decoding.criterion, r.decoding.primary) for r in gated}) != 1:
            return {}
        cells = {(result.decoding.tau or 0.0, result.decoding.gamma): result for result in gated}
        several = min(len({tau for tau, _ in cells}), len({gamma for _, gamma in cells})) > 1
        return cells if several else {}

    def _rl(self, pair: str, task: str) -> EvalResult | None:
        return next((result for result in self.results(pair, task) if result.decoding.mode == "rl"), None)

    def _grid(self, pair: str, task: str) -> list[str]:
        """Return the paper's table: a row a gamma, a column a threshold, each threshold's replacement ratio above."""
        if not (cells := self._cells(pair, task)):
            return []
        taus, gammas = sorted({tau for tau, _ in cells}), sorted({gamma for _, gamma in cells})
        first = [cells.get((tau, gammas[0])) for tau in taus]
        rows = [
            [name, *("" if r is None else f"{100 * getattr(r, f'{ratio}_ratio'):.1f} %" for r in first)]
            for name, ratio in (("replaced", "replacement"), ("changed", "changed"))
        ]
        for gamma in gammas:
            name = "replace" if gamma == 0 else f"extrapolate γ{gamma:g}"
            rows.append([name, *(_score(cells.get((tau, gamma))) for tau in taus)])
        rows.append(["rl", _score(self._rl(pair, task)), *[""] * (len(taus) - 1)])
        one = next(iter(cells.values()))
        avg = "" if not one.shares else f", Avg@{one.samples}"
        head = [one.benchmark + avg, *(f"τ{tau:g}" for tau in taus)]
        return [markdown_table(head, rows, left=1), ""]

    def figures(self) -> list[Figure]:
        """Draw accuracy against replacement ratio, and the tau x gamma map of a grid, for each pair and benchmark."""
        drawn = []
        for pair in self.spec.pairs:
            for task in self.tasks(pair):
                results = self.results(pair, task)
                title = f"{pair}, {results[0].benchmark}"
                if sum(result.decoding.gated for result in results) > 1:
                    settings = [one for one in settings_of(results) if one.task == results[0].subject]
                    for share, start in (("changed", "changed"), ("replaced", "ratio")):
                        drawn.append(against_share(settings, f"{start}-{pair}-{task}", title, share, every=True))
                if cells := self._cells(pair, task):
                    drawn.append(heat_map(cells, self._rl(pair, task), f"heat-{pair}-{task}", title))
        return drawn

    def plain(self) -> dict[str, Any]:
        """Return the summary as plain values; exact figures are in the result files."""
        timed = [result for entry in self.entries for result in entry.results if result.seconds]
        speed = sum(int(r.n_tokens.sum()) for r in timed) / sum(r.seconds for r in timed) if timed else None
        return {
            "name": self.spec.name,
            "date": time.strftime("%Y-%m-%d"),
            "verdicts": self.verdicts,
            "states": self.states,
            "seconds": round(self.seconds, 1),
            "tokens_per_second": speed,
            "mean_tokens": {
                pair: {
                    task: float(np.mean([result.n_tokens.mean() for result in self.results(pair, task)]))
                    for task in self.tasks(pair)
                }
                for pair in self.spec.pairs
            },
            "best": [entry.number for entry in self.best],
            "entries": [
                {
                    "pair": entry.pair,
                    "trial": entry.number,
                    "point": entry.point,
                    "decoding": entry.results[0].decoding.model_dump(mode="json"),
                    "label": entry.label,
                    "metrics": entry.metrics,
                    "results": {result.task: result.config_hash for result in entry.results},
                }
                for entry in self.entries
            ],
            "matched": list(self.matched),
            **({"equal_forwards": [lot.facts() for lot in self.lots]} if self.spec.equal_forwards else {}),
            "comparisons": [{"decoding": row.result.label, **row.facts()} for row in self.comparisons],
        }


def unit_of(scores: stats.Scores) -> tuple[float, int, str]:
    """Return what scores and differences are multiplied with to be shown, their digits, and their unit in words."""
    theirs = not getattr(getattr(scores, "first", scores), "shares", True)
    return (1.0, 4, "") if theirs else (100.0, 2, " points")


def _engine(result: EvalResult) -> dict[str, Any]:
    engine = dict(result.provenance.get("engine") or {})
    return {name: value for name, value in engine.items() if name not in ("self_test", "pair")}


def _score(result: EvalResult | None) -> str:
    if result is None:
        return ""
    unit, digits = (100, 2) if result.shares else (1, 4)
    return f"{unit * result.avg:.{digits}f} ± {unit * result.standard_error:.{digits}f}"


def _matched(rows: Sequence[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        miss = row["reached"] - row["wanted"]
        cells.append([row["criterion"], f"{row['tau']:g}"])
        cells[-1] += [f"{100 * row[share]:.2f} %" for share in ("wanted", "expected", "reached")]
        cells[-1] += [f"{100 * miss:+.2f}", f"{100 * miss / row['wanted']:+.0f} %"]
    return markdown_table(["criterion", "τ", "wanted", "expected", "reached", "miss, points", "miss"], cells, left=1)

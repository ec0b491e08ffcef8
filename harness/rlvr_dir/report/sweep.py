"""Summarise a sweep: how good its best point is in one sentence, the tables, the figures, and all of it as JSON.

The sweep passes its complete points; this module describes and draws them.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.config.search import Search
from rlvr_dir.config.sweep import SweepSpec, in_percent
from rlvr_dir.files import write_file
from rlvr_dir.markdown import duration
from rlvr_dir.report.build import build
from rlvr_dir.report.draw import COLOURS, drawing, label_rows
from rlvr_dir.report.markdown import as_text, escape, table
from rlvr_dir.report.model import Report, Section, cell, frame
from rlvr_dir.report.write import figure_file
from rlvr_dir.results import forwards
from rlvr_dir.results.compare import Comparison
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import settings_of
from rlvr_dir.stats import Estimate
from rlvr_dir.train.summary import validation_scores


@dataclass(frozen=True, eq=False)
class CompleteTrial:
    """Hold a complete trial: a point, or a reference (`point` None), with its results and its metrics as fractions.

    `scores` are its scores, one per benchmark; `drawn` describes how a reference is sampled differently from the sweep;
    `details` are added to the JSON.
    """

    pair: str
    number: int
    point: dict[str, Any] | None
    label: str
    results: tuple[Any, ...]
    metrics: dict[str, float]
    scores: Sequence[stats.Scores] = field(default=(), kw_only=True)
    drawn: str = field(default="", kw_only=True)
    details: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def trained(self) -> stats.TrainingScores[stats.RunScores]:
        """Return a training's scores, to be paired by problem and seed."""
        return validation_scores(self.label, {result.seed: result.scores for result in self.results})


def against(reference: CompleteTrial, entries: Sequence[CompleteTrial]) -> list[stats.Comparison[stats.RunScores]]:
    """Compare every training with the reference on every benchmark, with one correction over all."""
    others = [entry for entry in entries if entry is not reference]
    return stats.corrected(pair for entry in others for pair in entry.trained.beside(reference.trained))


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepSummary(ABC):
    """Hold the numbers of a sweep, finished or not. Failed trials are counted in `states`, but are in no table.

    `failed` counts the points that failed too often or are not finished; `seconds` is the time of this run. `results`
    reads the results for the report.
    """

    spec: Search
    entries: Sequence[CompleteTrial]
    comparisons: Sequence[stats.Comparison[Any]]
    best: Sequence[CompleteTrial]
    states: dict[str, int]
    results: Callable[[], Sequence[EvalResult]] = tuple
    seconds: float = 0.0
    failed: int = 0

    @property
    def points(self) -> list[CompleteTrial]:
        """Return the entries without the references."""
        return [entry for entry in self.entries if entry.point is not None]

    @property
    @abstractmethod
    def verdicts(self) -> list[str]:
        """Return a sentence per pair: its best point, and that its lead is biased upwards."""

    @abstractmethod
    def summary_lines(self) -> list[str]:
        """Describe the sweep in short phrases, including what makes the numbers hard to compare."""

    @cached_property
    def report(self) -> Report:
        """Return the report of everything that is complete; its text about the sweep is the summary."""
        results = self.results()
        return build(results) if results else Report("", "")

    def body(self) -> list[str]:
        """Return the tables of the report as Markdown."""
        parts = [table(section) for section in self.report.front if not section.svg]
        for chapter in self.report.chapters:
            listed = [table(section) for section in chapter.sections if not section.svg]
            parts += [f"## {escape(chapter.title)}", *map(escape, chapter.paragraphs), *listed] if listed else []
        return parts

    def terminal_text(self) -> str:
        """Return the text for a terminal: the verdicts, and the tables of the report's first page."""
        return "\n\n".join([*self.verdicts, *(as_text(section) for section in self.report.front if not section.svg)])

    def figures(self) -> list[Section]:
        """Return the figures of the report."""
        return [section for section in self.report.sections if section.svg]

    @abstractmethod
    def more(self) -> dict[str, Any]:
        """Return what the JSON contains in addition to that of every sweep."""

    def write(self, folder: Path) -> None:
        """Write `summary.md`, `summary.json` and the figures into a folder. Equal results give equal figures."""
        figures = self.figures()
        for figure in figures:
            write_file(folder / f"{figure.name}.svg", figure_file(figure).encode())
        write_file(folder / "summary.md", self.text(figures).encode())
        write_file(folder / "summary.json", json.dumps(self.plain(), indent=1, ensure_ascii=False).encode())

    def text(self, figures: Sequence[Section] = ()) -> str:
        """Return the summary as Markdown."""
        states = ", ".join(f"{count} {name}" for name, count in self.states.items() if count)
        words = [f"{time.strftime('%Y-%m-%d')}: {self.spec.size()} ({states})", *self.summary_lines()]
        words += [f"{duration(self.seconds)} in this run"] if self.seconds else []
        drawn = [f"![{figure.name}]({figure.name}.svg)" for figure in figures]
        parts = [f"# Sweep {self.spec.name}", *self.verdicts, "; ".join(words) + ".", *self.body(), "\n".join(drawn)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def plain(self) -> dict[str, Any]:
        """Return the summary as plain values; exact numbers are in the result files."""
        return {
            "name": self.spec.name,
            "date": time.strftime("%Y-%m-%d"),
            "verdicts": self.verdicts,
            "states": self.states,
            "seconds": round(self.seconds, 1),
            "best": [entry.number for entry in self.best],
            "entries": [
                {name: getattr(entry, name) for name in ("pair", "point", "label", "metrics")}
                | {"trial": entry.number, **entry.details}
                for entry in self.entries
            ],
            "comparisons": [row.to_dict() for row in self.comparisons],
            **self.more(),
        }

    def sentence(self, pair: str, leads: Sequence[tuple[str, Any]], chosen_on: str) -> str:
        """Return a sentence on which of a pair's points is best, with its leads over several references, after Holm."""
        best = [entry for entry in self.best if entry.pair == pair]
        tried, name = sum(entry.pair == pair for entry in self.points), self.spec.metric.name
        if not best:
            return "no point is complete."
        digits, unit = (2, 100) if in_percent(name) else (1, 1)
        score = Estimate(best[0].metrics[name]).number(digits, unit=unit)
        words = [f"best of {tried} on these {chosen_on}: {best[0].label}, {name} {score}"]
        for over, row in leads:
            d = row.difference
            difference = Estimate(d.mean, d.low, d.high)
            intervals = [f"95 % {between}"] if (between := difference.interval(1, sign=True)) else []
            intervals += [f"p {row.p_text}"] if d.p == d.p else []
            intervals += [f"Holm over {len(self.comparisons)}: {row.holm_text}"] if intervals else []
            lead = f"{difference.number(1, sign=True)} points on {row.result.benchmark} against {over}"
            words.append(f"{lead} ({', '.join(intervals)})" if intervals else lead)
        return (
            f"{'; '.join(words)}. It was selected on these {chosen_on}, and no interval is corrected for that, so its "
            "lead is too large. Confirm it on others."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodingSummary(SweepSummary):
    """Hold the numbers of a sweep of decodings. `matched` has a row per point whose threshold was found from a
    ratio."""

    spec: SweepSpec
    comparisons: Sequence[Comparison]
    matched: Sequence[dict[str, Any]] = ()
    within_floor: Sequence[str] = ()  # labels of points whose τ is not larger than rounding errors

    @cached_property
    def matched_groups(self) -> list[forwards.MatchedGroup]:
        """Return the score of one model with as many forward passes, if the sweep requests it and is far enough."""
        results = (result for entry in self.entries for result in entry.results)
        settings = settings_of(results, usual=self.spec.sampling)
        if not self.spec.equal_forwards or not any(forwards.models_of(setting) > 1 for setting in settings):
            return []
        return forwards.equal_forwards(settings, ("temperature", "top_p") if self.spec.samplings else ())

    @property
    def verdicts(self) -> list[str]:
        """Return a sentence per pair: its best point, and that its lead is biased upwards."""
        sentences = []
        for pair in self.spec.pairs:
            best = next((entry for entry in self.best if entry.pair == pair), None)
            rows = [row for row in self.comparisons if best and row.result.first in best.results]
            modes = [row.reference.decoding.mode for row in rows]
            names = {"base": "base", "rl": "rl", **{mode: f"its {mode}" for mode in ("veto", "reject", "resample")}}
            leads = [(names.get(m, "its γ=0 control"), row) for m, row in zip(modes, rows, strict=True)]
            sentences.append(f"{pair}: {self.sentence(pair, leads, 'problems')}")
        return sentences

    def summary_lines(self) -> list[str]:
        """Describe the sweep in short phrases."""
        results = [result for entry in self.entries for result in entry.results]
        tokens = sum(int(result.n_tokens.sum()) for result in results)
        words = [f"{len(self.entries) - len(self.points)} references"]
        words += [f"{self.spec.sampling.samples} samples per problem, {tokens:,} tokens"]
        engines = {json.dumps(_engine(result), sort_keys=True) for result in results}
        if len(engines) == 1:
            engine = json.loads(engines.pop())
            words.append(f"{engine.get('backend')} {engine.get(engine.get('backend'), '')} on {engine.get('device')}")
        elif engines and len(self.spec.pairs) == 1:
            words.append(f"WARNING: {len(engines)} different engine settings are in these tables")
        words += [f"{self.spec.sampling.words} unless noted otherwise"] if self.spec.samplings else []
        words += [f"τ within the floor of rounding: {', '.join(self.within_floor)}"] if self.within_floor else []
        if self.spec.part.words:
            words.append(f"problems {self.spec.part.words}; the others are for `sweep confirm`")
        return words + ([f"the first {self.spec.limit} problems only"] if self.spec.limit else [])

    def body(self) -> list[str]:
        """Return the tables of the report, thresholds by ratio, and equal forwards."""
        parts = super().body()
        if self.matched:
            title = "Matched ratios: requested, on the text that the threshold was found from, and reached."
            parts.append(table(Section("matched", title, frame([_matched(row) for row in self.matched]))))
        return parts + (["## Equal forwards", forwards.markdown(self.matched_groups)] if self.matched_groups else [])

    def more(self) -> dict[str, Any]:
        """Return speed, lengths, decodings, thresholds and equal forwards."""
        timed = [result for entry in self.entries for result in entry.results if result.seconds]
        lengths: dict[str, dict[str, list[float]]] = {pair: {} for pair in self.spec.pairs}
        for entry in self.entries:
            for result in entry.results if not entry.drawn else ():
                lengths[entry.pair].setdefault(result.task, []).append(result.n_tokens.mean())
        groups = [group.to_dict() for group in self.matched_groups] if self.spec.equal_forwards else []
        return {
            "tokens_per_second": sum(int(r.n_tokens.sum()) for r in timed) / sum(r.seconds for r in timed)
            if timed
            else None,
            "mean_tokens": {p: {t: float(np.mean(n)) for t, n in by_task.items()} for p, by_task in lengths.items()},
            "matched": list(self.matched),
            **({"equal_forwards": groups} if self.spec.equal_forwards else {}),
        }


def _engine(result: EvalResult) -> dict[str, Any]:
    engine = dict(result.provenance.get("engine") or {})
    return {name: value for name, value in engine.items() if name not in ("self_test", "pair")}


def _matched(row: Mapping[str, Any]) -> dict[str, Any]:
    miss = row["reached"] - row["wanted"]
    cells = {name: cell(row[name], suffix=" %") for name in ("wanted", "expected", "reached")}
    misses = {"miss, points": cell(miss, plus=True), "miss": cell(miss / row["wanted"], 0, plus=True, suffix=" %")}
    marks = {"τ within the floor": "yes" if row["within_floor"] else "no"} if "within_floor" in row else {}
    return {"pair": row["pair"], "criterion": row["criterion"], "τ": row["tau"], **cells, **misses, **marks}


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingSummary(SweepSummary):
    """Hold the numbers of a sweep of trainings: every point compared with plain DAPO, paired by problem and by seed.

    A seed has the same problems in the same order for every point, so most of its randomness cancels in a difference.
    `reference` is plain DAPO, which may be a point of the sweep. `base` has the scores of the base by benchmark.
    `samples` are those of the validation. `training` describes the length of a training.
    """

    reference: CompleteTrial | None
    base: Mapping[str, Mapping[str, Any]]
    samples: int
    seeds: Sequence[int]
    training: str

    @property
    def verdicts(self) -> list[str]:
        """Return which point is best, and that its lead is biased upwards."""
        best = self.best[0] if self.best else None
        rows = [row for row in self.comparisons if best and row.result.label == best.label]
        leads = [("plain DAPO", row) for row in rows if best is not self.reference]
        sentence = self.sentence(next(iter(self.spec.pairs)), leads, "seeds and problems")
        return [sentence[0].upper() + sentence[1:]]

    @property
    def over(self) -> str:
        """Describe what intervals cover; one seed says nothing about others."""
        return "problems and seeds" if len(self.seeds) > 1 else "problems, of these very models"

    def summary_lines(self) -> list[str]:
        """Describe the sweep in short phrases."""
        results = [result for entry in self.entries for result in entry.results]
        machines = {result.outcome["machine"] for result in results}
        return [
            f"and plain DAPO, {len(self.seeds)} {'seeds' if len(self.seeds) > 1 else 'seed'} each",
            self.training,
            f"{duration(sum(result.outcome['seconds'] for result in results))} of steps",
            machines.pop() if len(machines) == 1 else f"{len(machines)} different machines",
            f"in brackets 95 % intervals over {self.over}; differences are paired by problem and seed",
        ]

    def figures(self) -> list[Section]:
        """Draw each point's difference from plain DAPO, every seed and the 95 % interval."""
        if self.reference is None or not self.comparisons:
            return super().figures()
        rows = self.comparisons
        tasks = list(dict.fromkeys(row.task for row in rows))
        data = []
        with drawing("differences", 0.8 + 0.38 * len(rows)) as canvas:
            for place, row in enumerate(rows):
                d, colour = row.difference, COLOURS[tasks.index(row.task) % len(COLOURS)]
                differences = 100 * (row.result.values - row.reference.values)
                style = {"color": colour, "alpha": 0.35, "markersize": 4, "markeredgewidth": 0}
                canvas.one.plot(differences, np.full(len(differences), place), "o", **style)
                ends = {"difference": 100 * d.mean, "low": 100 * d.low, "high": 100 * d.high}
                canvas.one.plot([ends["low"], ends["high"]], [place, place], color=colour, linewidth=1.5)
                canvas.one.plot([ends["difference"]], [place], "D", color=colour, markersize=5)
                data.append({"training": row.result.label, "benchmark": row.task, **ends})
            canvas.one.axvline(0, color="#808080", linewidth=0.8)
            label_rows(canvas.one, [f"{row.result.label}, {row.task}" for row in rows])
            canvas.one.set_xlabel(f"Avg@{self.samples} minus plain DAPO, points, paired by seed")
        title = f"Each training minus plain DAPO; small dots are seeds, bars are 95 % intervals over {self.over}"
        dots = Section("differences", title, frame(data), (), canvas.svg, "Dot chart, seed by seed and on average.")
        return [dots, *super().figures()]

    def more(self) -> dict[str, Any]:
        """Return the seeds, the base's scores, and each entry's by seed."""
        scores = {entry.label: {str(result.seed): result.scores for result in entry.results} for entry in self.entries}
        return {"kind": "train", "seeds": list(self.seeds), "base": self.base, "by_seed": scores}

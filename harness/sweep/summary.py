"""What a sweep says in the end: one sentence that does not promise too much, the tables, and the same as JSON."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.evals import EvalResult
from harness.evals.compare import Comparison, comparisons, markdown, settings_of
from harness.evals.show import markdown_table, table
from harness.records.files import write_file
from harness.spec import Decoding
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.folder import Folder
from harness.sweep.matched import Miss
from harness.sweep.points import Point
from harness.sweep.progress import duration
from harness.sweep.study import Book
from harness.sweep.taus import stored_taus


@dataclass(frozen=True, eq=False)
class Entry:
    """A complete trial: a point, or a reference (`point` None), with its result on every benchmark."""

    pair: str
    number: int
    point: Point | None
    results: tuple[EvalResult, ...]
    metrics: dict[str, float]

    @property
    def decoding(self) -> Decoding:
        """How it was decoded."""
        return self.results[0].decoding

    @property
    def label(self) -> str:
        """The decoding in words."""
        return self.decoding.label()


@dataclass(frozen=True, eq=False)
class Summary:
    """A finished, or unfinished, sweep in figures."""

    spec: SweepSpec
    entries: list[Entry]
    comparisons: list[Comparison]
    best: list[Entry]
    misses: list[tuple[str, Miss]]
    states: dict[str, int]
    seconds: float
    failed: int = 0  # points that failed too often, or are not finished
    verdicts: list[str] = field(default_factory=list)

    @property
    def points(self) -> list[Entry]:
        """Without the references."""
        return [entry for entry in self.entries if entry.point is not None]

    def of(self, pair: str) -> list[Entry]:
        """Of one pair, references first."""
        return [entry for entry in self.entries if entry.pair == pair]


def write(spec: SweepSpec, book: Book, folder: Folder, *, seconds: float = 0.0) -> Summary:
    """Writes `summary.md`, `summary.json` and the figures."""
    from harness.sweep.plots import draw

    made = summarise(spec, book, folder, seconds=seconds)
    figures = draw(made, folder.path)
    write_file(folder.path / "summary.md", text(made, figures).encode())
    write_file(folder.path / "summary.json", json.dumps(as_json(made), indent=1, ensure_ascii=False).encode())
    return made


def summarise(spec: SweepSpec, book: Book, folder: Folder, *, seconds: float = 0.0) -> Summary:
    """Everything that is complete; pruned and failed trials are counted, and in no table."""
    from harness.sweep.progress import state

    entries = _entries(book, folder)
    rows = comparisons(settings_of(result for entry in entries for result in entry.results))
    numbers = {trial.number for pair in spec.pairs for trial in book.best(pair)}
    best = [entry for entry in entries if entry.point is not None and entry.number in numbers]
    made = Summary(spec, entries, rows, best, _misses(spec, folder, entries), state(book), seconds, len(book.lost()))
    made.verdicts.extend(verdict(made, pair) for pair in spec.pairs)
    return made


def _entries(book: Book, folder: Folder) -> list[Entry]:
    found = []
    for study in (book.references, book.points):
        for trial in book.complete(study):
            point = trial.user_attrs["point"]
            results = [folder.result(name) for name in trial.user_attrs["results"]]
            if None in results:
                lacking = trial.user_attrs["results"][results.index(None)]
                raise UserError(
                    f"{folder.results / lacking} is missing or damaged; move {folder.journal} away and run the sweep "
                    "again: no rollout is lost, and none is decoded twice"
                )
            asked = None if "reference" in point else point
            found.append(Entry(point["pair"], trial.number, asked, tuple(results), trial.user_attrs["metrics"]))
    order = ("base", "rl", "replace", "extrapolate", "expo")
    return sorted(found, key=lambda e: (e.point is not None, order.index(e.decoding.mode) if not e.point else e.number))


def _misses(spec: SweepSpec, folder: Folder, entries: Sequence[Entry]) -> list[tuple[str, Miss]]:
    found = []
    for entry in entries:
        if entry.point is not None and RATIO in entry.point:
            taus = stored_taus(spec, folder, entry.pair)
            match = taus[entry.decoding.criterion, entry.point[RATIO]]
            replaced = sum(int(result.n_replaced.sum()) for result in entry.results)
            tokens = sum(int(result.n_tokens.sum()) for result in entry.results)
            found.append((entry.pair, Miss(match, replaced / max(1, tokens))))
    return found


def verdict(made: Summary, pair: str) -> str:
    """One sentence on the best point of a pair: of how many it is the best, and what is left of it after Holm."""
    tried = [entry for entry in made.points if entry.pair == pair]
    best = [entry for entry in made.best if entry.pair == pair]
    n = len(tried) + made.states.get("pruned", 0)
    if not best:
        return f"{pair}: none of {n} points is complete and within the constraints."
    if len(made.spec.metric) > 1:
        names = " and ".join(metric.name for metric in made.spec.metric)
        labels = "; ".join(entry.decoding.label() for entry in best)
        return f"{pair}: Pareto set of {n} points on these problems by {names}: {labels}."
    [entry], metric = best, made.spec.metric[0].name
    words = [f"{pair}: best of {n} on these problems: {entry.decoding.label()}, {metric} {_figure(made, entry)}"]
    for row in made.comparisons:
        if row.result.first in entry.results:
            d = row.difference
            against = "rl" if row.reference.decoding.mode == "rl" else "its γ=0 control"
            words.append(
                f"{100 * d.mean:+.2f} points on {row.result.task} against {against} "
                f"(95 % {100 * d.low:+.2f} to {100 * d.high:+.2f}, p {_p(d.p)}, "
                f"Holm over {len(made.comparisons)}: {_p(row.holm_p)})"
            )
    return "; ".join(words) + ". It was chosen on these very problems, so its lead is too large; confirm it."


def _figure(made: Summary, entry: Entry) -> str:
    name = made.spec.metric[0].name
    value = entry.metrics[name]
    return f"{value:.1f}" if name == "mean_tokens" else f"{100 * value:.2f}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def text(made: Summary, figures: Sequence[str] = ()) -> str:
    """The summary as Markdown."""
    spec = made.spec
    first = made.entries[0].results[0] if made.entries else None
    lines = [f"# Sweep {spec.name}", "", *(line for v in made.verdicts for line in (v, "")), facts(made), ""]
    if first is None:
        return "\n".join(lines)
    for pair in spec.pairs:
        entries = made.of(pair)
        if not entries:
            continue
        lines += [f"## {pair}", ""]
        for task in dict.fromkeys(result.task for result in entries[0].results):
            lines += [*_grid(made, pair, task)]
        results = [result for entry in entries for result in entry.results]
        lines += [table(sorted(results, key=lambda result: result.task)), ""]
        if misses := [miss for owner, miss in made.misses if owner == pair]:
            lines += ["Matched ratios: what was wanted, what the base generation promised, what was reached.", ""]
            lines += [_matched(misses), ""]
    if made.comparisons:
        lines += ["## Differences", "", markdown(made.comparisons), ""]
    lines += [f"![{name.removesuffix('.svg')}]({name})" for name in figures]
    return "\n".join(lines).rstrip() + "\n"


def facts(made: Summary) -> str:
    """What was run, in a few words, with what makes the figures hard to compare."""
    spec = made.spec
    tokens = sum(int(result.n_tokens.sum()) for entry in made.entries for result in entry.results)
    states = ", ".join(f"{count} {name}" for name, count in made.states.items() if count)
    words = [
        f"{time.strftime('%Y-%m-%d')}: {spec.size()} ({states}), {len(made.entries) - len(made.points)} references"
    ]
    words.append(f"{spec.sampling.samples} samples a problem, {tokens:,} tokens")
    if made.seconds:
        words.append(f"{duration(made.seconds)} in this run")
    engines = {json.dumps(_engine(result), sort_keys=True) for entry in made.entries for result in entry.results}
    if len(engines) == 1:
        engine = json.loads(engines.pop())
        words.append(f"{engine.get('backend')} {engine.get(engine.get('backend'), '')} on {engine.get('device')}")
    elif engines and len(made.spec.pairs) == 1:
        words.append(f"WARNING: {len(engines)} different engine settings are in these tables")
    if spec.limit:
        words.append(f"the first {spec.limit} problems only")
    return "; ".join(words) + "."


def _engine(result: EvalResult) -> dict[str, Any]:
    engine = dict(result.provenance.get("engine") or {})
    return {name: value for name, value in engine.items() if name not in ("self_test", "pair")}


def _grid(made: Summary, pair: str, task: str) -> list[str]:
    """The paper's shape: a row a gamma, a column a threshold, the replacement ratio of each threshold above."""
    cells = cells_of(made, pair, task)
    taus, gammas = sorted({tau for tau, _ in cells}), sorted({gamma for _, gamma in cells})
    if len(taus) < 2 or len(gammas) < 2:
        return []
    ratio = [cells.get((tau, gammas[0])) for tau in taus]
    rows = [["replaced", *("" if r is None else f"{100 * r.replacement_ratio:.1f} %" for r in ratio)]]
    for gamma in gammas:
        row = [cells.get((tau, gamma)) for tau in taus]
        name = "replace" if gamma == 0 else f"extrapolate γ{gamma:g}"
        rows.append([name, *("" if r is None else f"{100 * r.avg:.2f} ± {100 * r.standard_error:.2f}" for r in row)])
    rl = next((r for e in made.of(pair) for r in e.results if r.task == task and r.decoding.mode == "rl"), None)
    rows.append(
        ["rl", *([f"{100 * rl.avg:.2f} ± {100 * rl.standard_error:.2f}"] if rl else [""]), *[""] * (len(taus) - 1)]
    )
    head = [f"{task}, Avg@{made.spec.sampling.samples}", *(f"τ{tau:g}" for tau in taus)]
    return [markdown_table(head, rows, left=1), ""]


def cells_of(made: Summary, pair: str, task: str) -> dict[tuple[float, float], EvalResult]:
    """Results by (tau, gamma) of a grid whose points differ in nothing else; a search has no grid."""
    found: dict[tuple[float, float], EvalResult] = {}
    if made.spec.method != "grid":
        return found
    gated = [entry for entry in made.of(pair) if entry.decoding.gated]
    if len({(entry.decoding.criterion, entry.decoding.primary) for entry in gated}) != 1:
        return {}
    for entry in gated:
        for result in entry.results:
            if result.task == task:
                found[entry.decoding.tau, entry.decoding.gamma] = result
    return found


def _matched(misses: Sequence[Miss]) -> str:
    rows = []
    for miss in misses:
        found = miss.found
        rows.append(
            [found.criterion, f"{found.tau:g}"]
            + [f"{100 * share:.2f} %" for share in (found.wanted, found.expected, miss.reached)]
            + [f"{100 * miss.points:+.2f}", f"{100 * miss.relative:+.0f} %"]
        )
    return markdown_table(["criterion", "τ", "wanted", "expected", "reached", "miss, points", "miss"], rows, left=1)


def as_json(made: Summary) -> dict[str, Any]:
    """The summary as plain values; exact figures are in the result files."""
    results = [result for entry in made.entries for result in entry.results]
    timed = [result for result in results if result.seconds]
    speed = sum(int(r.n_tokens.sum()) for r in timed) / sum(r.seconds for r in timed) if timed else None
    return {
        "name": made.spec.name,
        "date": time.strftime("%Y-%m-%d"),
        "verdicts": made.verdicts,
        "states": made.states,
        "seconds": round(made.seconds, 1),
        "tokens_per_second": speed,
        "mean_tokens": {
            pair: {
                task: float(np.mean([r.n_tokens.mean() for e in made.of(pair) for r in e.results if r.task == task]))
                for task in {r.task for e in made.of(pair) for r in e.results}
            }
            for pair in made.spec.pairs
        },
        "best": [entry.number for entry in made.best],
        "entries": [
            {
                "pair": entry.pair,
                "trial": entry.number,
                "point": entry.point,
                "decoding": entry.decoding.model_dump(mode="json"),
                "label": entry.decoding.label(),
                "metrics": entry.metrics,
                "results": {result.task: result.config_hash for result in entry.results},
            }
            for entry in made.entries
        ],
        "matched": [
            {
                "pair": pair,
                "criterion": miss.found.criterion,
                "tau": miss.found.tau,
                "wanted": miss.found.wanted,
                "expected": miss.found.expected,
                "reached": miss.reached,
            }
            for pair, miss in made.misses
        ],
        "comparisons": [{"decoding": row.result.label, **row.facts()} for row in made.comparisons],
    }

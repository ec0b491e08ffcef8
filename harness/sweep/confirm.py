"""What is left of the winner's lead: it and its controls once more, with new seeds and on other benchmarks.

A sweep picks the luckiest of its points. Here one decoding is chosen beforehand, so its difference is not too large.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness import stats
from harness.decode import open_engine
from harness.errors import UserError
from harness.evals import EvalResult, evaluate, preflight
from harness.evals.show import markdown_table
from harness.records.files import make_folder, write_file
from harness.records.lock import Lock
from harness.spec import Decoding, EvalSpec
from harness.spec.sweep import SweepSpec
from harness.sweep import track
from harness.sweep.folder import Folder
from harness.sweep.run import Places
from harness.sweep.study import Book
from harness.sweep.summary import Entry, summarise
from harness.tiny import checkpoints


@dataclass(frozen=True, slots=True)
class Row:
    """The winner minus one of its controls on one benchmark, all new seeds together."""

    pair: str
    task: str
    winner: str
    control: str
    before: float | None  # the difference in the sweep, where it had this benchmark
    difference: stats.PairedDifference
    holm_p: float


def confirm(
    spec: SweepSpec,
    folder: Folder,
    places: Places,
    seeds: Sequence[int],
    tasks: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    say: Callable[[str], None] = print,
) -> str:
    """Decodes the winner of each pair, base, RL and the gamma = 0 control, and writes `confirm.md` and `confirm.json`.

    Interrupted, the same call goes on.

    Raises:
        UserError: the sweep has no winner yet, or a seed is the sweep's own.
    """
    if spec.sampling.seed in seeds or len(set(seeds)) < len(seeds) or not seeds:
        raise UserError(
            f"seeds={','.join(map(str, seeds))} is refused; accepted: different ones, and not the sweep's own "
            f"({spec.sampling.seed}), on which the winner was chosen"
        )
    tasks = list(tasks or spec.tasks)
    preflight(tasks, spec.data_dir, spec.golds)
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        made = summarise(spec, Book(spec, folder), folder)
        if not made.best or len(spec.metric) > 1:
            raise UserError(f"sweep {spec.name!r} has no single best point to be confirmed")
        results = folder.path / "confirm"
        make_folder(results)
        parent = track.Parent(spec, places.tracking)
        rows: list[Row] = []
        for entry in made.best:
            found = _decode(spec, entry, places, seeds, tasks, limit)
            for result in found:
                result.write(results)
                parent.child(result)
                say(f"{result.task}  {result.label}  seed {result.sampling.seed}  {100 * result.avg:.2f}")
            rows += _rows(entry, found, made.of(entry.pair))
        corrected = stats.holm([row.difference.p for row in rows])
        rows = [replace(r, holm_p=float(p)) for r, p in zip(rows, corrected, strict=True)]
        told = text(spec, rows, seeds)
        write_file(folder.path / "confirm.md", told.encode())
        write_file(folder.path / "confirm.json", json.dumps([_plain(row) for row in rows], indent=1).encode())
        parent.attach(folder.path / "confirm.md", folder.path / "confirm.json")
        return told
    finally:
        lock.release()


def _decode(
    spec: SweepSpec, entry: Entry, places: Places, seeds: Sequence[int], tasks: Sequence[str], limit: int | None
) -> list[EvalResult]:
    engine = open_engine(checkpoints(spec.pairs[entry.pair]), spec.engine, lazily=True)
    try:
        return [
            result
            for seed in seeds
            for result in evaluate(_again(spec, entry, seed, tasks, limit), engine=engine, records=places.records)
        ]
    finally:
        engine.close()


def _again(spec: SweepSpec, entry: Entry, seed: int, tasks: Sequence[str], limit: int | None) -> EvalSpec:
    """Return the evaluation of the winner, its control, base and RL with another seed."""
    decodings = list(
        dict.fromkeys([Decoding(mode="base"), Decoding(mode="rl"), entry.decoding.control(), entry.decoding])
    )
    sampling = spec.sampling.replace(seed=seed)
    return spec.evaluation(entry.pair, decodings, sampling=sampling, tasks=tuple(tasks), limit=limit or spec.limit)


def _rows(entry: Entry, found: Sequence[EvalResult], before: Sequence[Entry]) -> list[Row]:
    """The winner against RL and, where it extrapolates, against its control; Holm's correction comes later."""
    winner = entry.decoding
    against = list(dict.fromkeys([Decoding(mode="rl"), winner.control()]))
    rows = []
    for task in dict.fromkeys(result.task for result in found):
        tables = {
            decoding: np.hstack([r.correct for r in found if (r.task, r.decoding) == (task, decoding)])
            for decoding in {winner, *against}
        }
        old = {e.decoding: r for e in before for r in e.results if r.task == task}
        for control in against:
            if control != winner:
                lead = old[winner].avg - old[control].avg if {winner, control} <= set(old) else None
                difference = stats.paired_difference(tables[winner], tables[control])
                rows.append(Row(entry.pair, task, winner.label(), control.label(), lead, difference, 1.0))
    return rows


def text(spec: SweepSpec, rows: Sequence[Row], seeds: Sequence[int]) -> str:
    """The confirmation as Markdown."""
    head = [
        "pair",
        "benchmark",
        "winner of the sweep",
        "minus",
        "in the sweep",
        "anew",
        "95 % t interval",
        "p",
        "p (Holm)",
    ]
    cells = []
    for row in rows:
        d = row.difference
        cells.append([row.pair, row.task, row.winner, row.control])
        cells[-1] += ["" if row.before is None else f"{100 * row.before:+.2f}", f"{100 * d.mean:+.2f}"]
        cells[-1] += [f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]", f"{d.p:.3g}", f"{row.holm_p:.3g}"]
    lines = [f"# Confirmation of sweep {spec.name}", ""]
    lines += [
        f"{time.strftime('%Y-%m-%d')}: new seeds {', '.join(map(str, seeds))}, {spec.sampling.samples} samples each."
    ]
    lines += ["Differences in points of Avg, paired by problem; Holm's correction over this table.", ""]
    return "\n".join([*lines, markdown_table(head, cells, left=4)]) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    d = row.difference
    return {
        "pair": row.pair,
        "task": row.task,
        "winner": row.winner,
        "minus": row.control,
        "before": row.before,
        "mean": d.mean,
        "low": d.low,
        "high": d.high,
        "p": d.p,
        "holm_p": row.holm_p,
    }

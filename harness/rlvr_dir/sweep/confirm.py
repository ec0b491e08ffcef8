"""Run the best point and its controls again with new seeds, on problems that did not select it if there are any.

The best of several points is partly lucky. New seeds replace the samples that it was lucky with, but only other
problems replace its problems: those that a declared split held out, those beyond the sweep's limit, or other
benchmarks. If there are no others, the row states that the problems are the same.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from rlvr_dir import stats
from rlvr_dir.errors import UserError, mention
from rlvr_dir.files import write_file
from rlvr_dir.records.lock import Lock
from rlvr_dir.report.markdown import as_text, table
from rlvr_dir.report.model import Section, cell, frame
from rlvr_dir.results.settings import Setting
from rlvr_dir.stats import Estimate
from rlvr_dir.sweep.run import Sweep
from rlvr_dir.sweep.track import SweepRun


def confirm(sweep: Sweep, seeds: Sequence[int], tasks: Sequence[str] | None = None, *, limit: int | None = None) -> str:
    """Compare the best point of each pair with its controls on new seeds; return `confirm.md`, and also write
    `confirm.json`.

    After an interruption, the same call resumes.

    Raises:
        UserError: A seed is the sweep's own, all seeds are alike (greedy), or there is no best point yet.
    """
    option, spec, folder = {"argument": "seeds", "value": ",".join(map(str, seeds))}, sweep.spec, sweep.folder
    if getattr(getattr(spec, "sampling", None), "greedy", False):
        raise UserError(
            f"cannot confirm a greedy sweep ({mention('temperature', 0)}), in which every seed gives the same tokens",
            **option,
        )
    if set(spec.seeds) & set(seeds) or len(set(seeds)) < len(seeds) or not seeds:
        own = ", ".join(map(str, spec.seeds))
        raise UserError(
            "cannot confirm the winner",
            accepted=f"different seeds, without those on which the winner was chosen ({own})",
            **option,
        )
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        sweep.look()
        summary = sweep.summary()
        if not summary.best:
            raise UserError("has no best point yet", argument="sweep", value=spec.name, hint="Run the sweep first.")
        run = SweepRun(spec, folder, sweep.places.tracking)
        confirmations = [
            (entry.pair, confirmation)
            for entry in summary.best
            for confirmation in sweep.objective.confirm(entry, summary, seeds, tasks, limit, run, sweep.say)
        ]
        comparisons = stats.corrected((confirmation.winner, confirmation.control) for _, confirmation in confirmations)
        before = {(_key(row.result), _key(row.reference)): row.difference.mean for row in summary.comparisons}
        rows, plain = [], []
        for (pair, confirmation), row in zip(confirmations, comparisons, strict=True):
            first = before.get((_key(confirmation.winner), _key(confirmation.control)))
            rows.append(_row(pair, confirmation.problems, row, first))
            about = {
                "pair": pair,
                "winner": confirmation.winner.label,
                "before": first,
                "problems": confirmation.problems,
            }
            plain.append({**row.to_dict(), **about})
        note = (
            f"{time.strftime('%Y-%m-%d')}: new seeds {', '.join(map(str, seeds))}. Differences in points of Avg, "
            "paired by problem (trainings: and seed); Holm's correction over these rows."
        )
        section = Section("confirm", f"Confirmation of sweep {spec.name}", frame(rows), (note,))
        files = folder.path / "confirm.md", folder.path / "confirm.json"
        write_file(files[0], f"{table(section)}\n".encode())
        write_file(files[1], json.dumps(plain, indent=1, ensure_ascii=False).encode())
        run.attach(*files)
        return as_text(section)
    finally:
        lock.release()


def _key(scores: stats.Scores) -> tuple[Any, ...]:
    """Return what a setting has in common in the sweep and in the confirmation: everything but its seeds."""
    if not isinstance(scores, Setting):
        return scores.task, scores.label
    s = scores.first.sampling
    return scores.task, scores.first.pair, scores.decoding, s.temperature, s.top_p


def _row(pair: str, problems: str, row: stats.Comparison[stats.Scores], before: float | None) -> dict[str, Any]:
    d = row.difference
    return {
        "pair": pair,
        "benchmark": row.result.benchmark,
        "problems": problems,
        "winner of the sweep": row.result.label,
        "minus": row.reference.label,
        "in the sweep": cell(before, 1, plus=True),
        "anew": cell(Estimate(d.mean, d.low, d.high), 1, plus=True),
        "p": row.p_text,
        "p (Holm)": row.holm_text,
    }

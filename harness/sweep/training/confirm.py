"""What is left of the winner's lead: it and plain DAPO trained once more, with new seeds.

A sweep picks the luckiest of its points. Here one training is chosen beforehand, so its difference is not too large.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.evals.show import markdown_table
from harness.records.files import write_file
from harness.records.lock import Lock
from harness.sweep.folder import Folder
from harness.sweep.study import Book
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.summary import Entry, Row, compare, summarise
from harness.sweep.training.track import Parent
from harness.sweep.training.trial import train_seeds

if TYPE_CHECKING:
    from harness.sweep.run import Places


def confirm(
    spec: TrainingSweep,
    folder: Folder,
    places: "Places",
    seeds: Sequence[int],
    tasks: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    say: Callable[[str], None] = print,
) -> str:
    """Trains the winner and plain DAPO with new seeds, and writes `confirm.md` and `confirm.json`.

    Interrupted, the same call goes on.

    Raises:
        UserError: the sweep has no winner yet or it is plain DAPO, or a seed is one of the sweep's.
    """
    if set(spec.seeds) & set(seeds) or len(set(seeds)) < len(seeds) or not seeds:
        raise UserError(
            f"seeds={','.join(map(str, seeds))} is refused; accepted: different ones, and none of the sweep's own "
            f"({', '.join(map(str, spec.seeds))}), on which the winner was chosen"
        )
    if tasks or limit:
        asked = f"tasks={','.join(tasks)}" if tasks else f"limit={limit}"
        raise UserError(
            f"{asked} is refused: new trainings are validated as the sweep's were; score their checkpoints elsewhere "
            "with `rlvr-dir eval --pair FOLDER/seed-N`"
        )
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        made = summarise(spec, Book(spec, folder), folder)
        if not made.best or len(spec.metric) > 1:
            raise UserError(f"sweep {spec.name!r} has no single best point to be confirmed")
        if made.best[0] is made.reference:
            raise UserError(f"sweep {spec.name!r}: the best point is plain DAPO itself; it has no lead to confirm")
        parent = Parent(spec, places.tracking)
        entries = []
        for entry in (made.reference, made.best[0]):
            results = train_seeds(entry.spec.replace(seeds=tuple(seeds)), places.trainings, say)
            for result in results:
                parent.child(result)
            entries.append(Entry(entry.number, entry.point, results[0].spec, results, {}))
        rows = compare(spec, entries)
        told = text(spec, rows, made.rows, seeds)
        plain = [{**_plain(row), "before": _before(row, made.rows)} for row in rows]
        write_file(folder.path / "confirm.md", told.encode())
        write_file(folder.path / "confirm.json", json.dumps(plain, indent=1, ensure_ascii=False).encode())
        parent.attach(folder.path / "confirm.md", folder.path / "confirm.json")
        return told
    finally:
        lock.release()


def text(spec: TrainingSweep, rows: Sequence[Row], before: Sequence[Row], seeds: Sequence[int]) -> str:
    """The confirmation as Markdown."""
    head = ["benchmark", "winner of the sweep", "in the sweep", "anew", "95 % t interval", "p", "p (Holm)"]
    cells = []
    for row in rows:
        d, old = row.difference, _before(row, before)
        cells.append([row.task, row.label, "" if old is None else f"{100 * old:+.2f}", f"{100 * d.mean:+.2f}"])
        cells[-1] += [f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]" if d.n > 1 else ""]
        cells[-1] += [f"{d.p:.3g}", f"{row.holm_p:.3g}"]
    return "\n".join(
        [
            f"# Confirmation of sweep {spec.name}",
            "",
            f"{time.strftime('%Y-%m-%d')}: new seeds {', '.join(map(str, seeds))}.",
            "Avg minus plain DAPO in points, paired by seed; Holm's correction over this table.",
            "",
            markdown_table(head, cells, left=2),
            "",
        ]
    )


def _before(row: Row, rows: Sequence[Row]) -> float | None:
    return next((r.difference.mean for r in rows if (r.label, r.task) == (row.label, row.task)), None)


def _plain(row: Row) -> dict[str, object]:
    d = row.difference
    low, high = (None, None) if d.n < 2 else (d.low, d.high)
    return {"task": row.task, "winner": row.label, "mean": d.mean, "low": low, "high": high, "p": d.p}

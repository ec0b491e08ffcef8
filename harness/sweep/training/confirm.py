"""Train the best point and plain DAPO again with fresh seeds, to remove selection bias."""

from collections.abc import Sequence

from harness.errors import UserError
from harness.report.sweep import against
from harness.sweep.base import Sweep
from harness.sweep.confirm import Confirmed, check_seeds, winner, write
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.summary import entry_of
from harness.sweep.training.track import TrainingSweepRun
from harness.sweep.training.trial import train_seeds


def confirm(
    sweep: Sweep[TrainingSweep], seeds: Sequence[int], tasks: Sequence[str] | None = None, *, limit: int | None = None
) -> str:
    """Train the winner and plain DAPO with new seeds; write `confirm.md` and `confirm.json`.

    They are validated on the sweep's problems, on which the winner was chosen; the rows say so.

    Interrupted, the same call goes on.

    Raises:
        UserError: the sweep has no winner yet or it is plain DAPO, or a seed is one of the sweep's.
    """
    spec, folder, places = sweep.spec, sweep.folder, sweep.places
    check_seeds(seeds, spec.seeds)
    if tasks or limit:
        asked = f"tasks={','.join(tasks)}" if tasks else f"limit={limit}"
        raise UserError(
            f"{asked} is refused: new trainings are validated as the sweep's were; score their checkpoints elsewhere "
            "with `rlvr-dir eval --pair FOLDER/seed-N`"
        )
    with winner(sweep) as made:
        best = made.best[0]
        if made.reference is None or best is made.reference:
            raise UserError(f"sweep {spec.name!r}: the best point is plain DAPO itself; it has no lead to confirm")
        run = TrainingSweepRun(spec, places.tracking)
        again = []
        for entry in (made.reference, best):
            point = entry.point or {"pair": entry.pair, "reference": {"method": "none"}}
            results = train_seeds(spec.training(point).replace(seeds=tuple(seeds)), places.trainings, sweep.say)
            for result in results:
                run.child(result)
            again.append(entry_of(point, results, entry.number, {}))
        before = {(row.result.label, row.task): row.difference.mean for row in made.comparisons}
        rows = against(again[0], again)
        told = "the same, on which it was chosen"
        confirmed = [Confirmed(best.pair, row, before.get((row.result.label, row.task)), told) for row in rows]
        theirs = not all(row.result.shares for row in rows)
        unit = "Each metric" if theirs else "Avg in points,"
        return write(
            spec, folder, confirmed, seeds, f"trained anew.\n{unit} minus plain DAPO, paired by problem and seed", run
        )

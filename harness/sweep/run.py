"""A sweep from its spec to its summary: in this process, or with workers.

    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

It may be killed at any moment; the same call goes on. Whoever runs holds the lock of the sweep's folder.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import UserError
from harness.files import check_writable
from harness.records.lock import Lock
from harness.report.sweep import SweepSummary
from harness.spec.search import LISTED, Search
from harness.sweep.context import Places, SweepContext, TrialRunner
from harness.sweep.fleet import run_fleet
from harness.sweep.folder import SweepFolder
from harness.sweep.kinds import kind_of
from harness.sweep.owner import gone
from harness.sweep.points import Point
from harness.sweep.progress import SweepProgress
from harness.sweep.storage import mend
from harness.sweep.trials import Asked, Trials, failure
from harness.text import visible

_PAUSE = 1.0  # seconds between two looks at trials that run on another machine


def run_sweep(
    spec: Search, places: Places, *, extend: bool = False, say: Callable[[str], None] = print, progress: bool = True
) -> SweepSummary:
    """Run what is left of a sweep to its end, and write its summary, which is returned.

    Raises:
        UserError: the sweep was begun with other settings, another process runs it, its folders cannot be written to
            (nothing was begun), or an engine refuses.
    """
    kind = kind_of(spec)
    kind.check(spec)
    folder = SweepFolder.of(spec, places.out)
    folder.make()
    check_writable(folder.path, kind.store(places))
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        spec = folder.settle(spec, extend=extend)
        mend(folder.journal)
        trials = Trials(spec, folder, extend=extend)
        if retired := trials.retire():
            say(f"{len(retired)} trials of an interrupted run were retired; what they had done is kept")
        run = kind.track(spec, places.tracking)
        shown = SweepProgress(trials, say, lambda: kind.best_so_far(spec, trials, folder))

        def complete(point: Point, results: Sequence[Any]) -> None:
            for result in results:
                run.child(result)
            shown.finished(kind.describe(point, results))

        context = SweepContext(spec, trials, folder, kind.store(places), say, complete, progress)
        try:
            with kind.runner(context) as runner:
                if spec.workers.count == 1:
                    run_here(context, runner)
                else:
                    run_fleet(context, kind, runner)
        except BaseException:
            run.interrupted()
            raise
        finally:
            trials.release()
        made = replace(kind.summarise(spec, trials, folder), seconds=shown.seconds)
        made.write(folder.path)
        run.close(made, folder)
        return made
    finally:
        lock.release()


def run_here(context: SweepContext[Any], runner: TrialRunner) -> None:
    """Run everything in this process: pair by pair, all that can be claimed at a time.

    Trials that another machine runs are waited for.
    """
    trials = context.trials
    claimed: dict[str, list[Asked]] = {pair: [] for pair in context.spec.pairs}
    while True:
        for pair, mine in claimed.items():
            runner.plan(pair)
            while _claim(context, runner, claimed, pair):
                with trials.failing((each for batch in claimed.values() for each in batch), counted=False):
                    runner.run(pair, mine)
                mine.clear()
                runner.plan(pair)
        if not trials.left():
            return
        time.sleep(_PAUSE)
        trials.retire()


def _claim(context: SweepContext[Any], runner: TrialRunner, claimed: dict[str, list[Asked]], pair: str) -> bool:
    """Claim all references, and as many points as run together; whether there is anything for `pair`."""
    mine = claimed[pair]
    while True:
        full = sum(not asked.is_reference for asked in mine) >= runner.at_once
        if (asked := context.trials.ask(references_only=full)) is None:
            return bool(mine)
        claimed[asked.point["pair"]].append(asked)
        if context.spec.method not in LISTED and not asked.is_reference:
            runner.plan(pair)  # the control of a proposed point runs beside it


def status(folder: SweepFolder, spec: Search) -> str:
    """Return how many trials are in which state, who runs what, and the best so far. Changes nothing."""
    trials = _trials(folder, spec)
    counts = ", ".join(f"{count} {name}" for name, count in trials.states().items() if count) or "no trial yet"
    lines = [f"{spec.name}: {spec.size()}; {counts}; references: {len(trials.complete(trials.references))} complete"]
    for trial in trials.everything():
        owner = trial.user_attrs.get("owner")
        if trial.state.name == "RUNNING" and owner:
            ended = ", which is gone: run the sweep again" if gone(owner, folder.workers) else ""
            who = f"process {visible(owner.get('pid'))} on {visible(owner.get('host'))}"
            lines.append(f"running: trial {trial.number} by {who}{ended}")
    for trial in trials.failures_left():
        what = "reference" if "reference" in trial.user_attrs["point"] else "trial"
        lines.append(f"failed: {what} {trial.number}: {visible(failure(trial))}")
    if best := kind_of(spec).best_so_far(spec, trials, folder):
        lines.append(best)
    return "\n".join(lines)


def best(folder: SweepFolder, spec: Search) -> str:
    """Return the verdicts of the summary as it would be now."""
    return "\n".join(kind_of(spec).summarise(spec, _trials(folder, spec), folder).verdicts)


def _trials(folder: SweepFolder, spec: Search) -> Trials:
    if spec.storage == "journal" and not folder.journal.is_file():
        raise UserError(f"sweep {spec.name!r} has no trial yet")
    return Trials(spec, folder)

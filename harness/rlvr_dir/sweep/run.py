"""A sweep from its spec to its summary.

    from rlvr_dir.sweep.specs import load
    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

It is a list over a store: what is held is read, what is not is computed, and running it again is resuming it. It may be
killed at any moment. With several workers each does its own share of the list first, then whatever others have not.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from rlvr_dir.config.search import LISTED, Search
from rlvr_dir.errors import Busy, UserError
from rlvr_dir.files import check_writable
from rlvr_dir.markdown import duration
from rlvr_dir.program import program
from rlvr_dir.records.lock import Lock
from rlvr_dir.report.sweep import SweepSummary
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Outcome, Places
from rlvr_dir.sweep.points import Point, key
from rlvr_dir.sweep.sweep import Sweep, open_sweep
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.text import visible

_PAUSE = 0.3  # seconds between two looks at what others do
_RECENT = 6  # points that say how long one takes


def run_sweep(
    spec: Search, places: Places, *, extend: bool = False, say: Callable[[str], None] = print, progress: bool = True
) -> SweepSummary:
    """Run what is left of a sweep to its end, and write its summary, which is returned.

    Raises:
        UserError: the sweep was begun with other settings, another process runs it, its folders cannot be written to
            (nothing was begun), or an engine refuses.
    """
    sweep = open_sweep(spec, places)
    sweep.objective.check()
    folder = sweep.folder
    folder.make()
    check_writable(folder.path, sweep.objective.store)
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        spec = folder.create_or_verify(spec, extend=extend)
        sweep = open_sweep(spec, places, say, progress=progress)
        sweep.study.create(extend=extend)
        sweep.study.resume()
        _invalidate_stale(sweep)
        run = SweepRun(spec, folder, places.tracking)
        began, times = time.monotonic(), [time.monotonic()]

        def complete(outcome: Outcome) -> None:
            times.append(time.monotonic())
            for result in outcome.results:
                run.child(result)
            say(progress_line(sweep, sweep.describe(outcome), pace(times)))

        sweep.on_complete = complete
        try:
            if spec.workers.count == 1:
                work(sweep)
            elif sweep.todo():  # which finds thresholds by ratio, once for all workers
                sweep.objective.close()
                _run_workers(sweep)
        except BaseException:
            run.attach(status="KILLED")
            raise
        finally:
            sweep.objective.close()
        folder.tidy({name for trial in sweep.study for name in trial.results})
        summary = replace(sweep.summary(), seconds=time.monotonic() - began)
        summary.write(folder.path)
        run.close(summary)
        return summary
    finally:
        lock.release()


def work(sweep: Sweep, number: int = 0, count: int = 1, parent: int | None = None) -> None:
    """Complete points until none is left, or `parent` has ended.

    One worker alone takes all that can run together. Of several, `number` of `count`, each begins with its own share;
    then come those that nobody has completed, one by one, without those that another process is at.

    Raises:
        UserError: what an engine or a store refuses, whatever the point.
    """
    shared, own_share, searches = count > 1, True, sweep.spec.method not in LISTED
    proposed: list[Point] = []  # here, and not complete yet
    while parent is None or os.getppid() == parent:
        sweep.study.read()
        if searches:
            proposed = [point for point in proposed if sweep.study.get(point) is None]
            proposed += sweep.study.propose((1 if shared else sweep.spec.at_once) - len(proposed))
        todo = sweep.todo()
        if shared and searches:  # what others have proposed is theirs, while there is more
            by_others = set(map(key, sweep.points())) - set(map(key, proposed))
            todo = [point for point in todo if key(point) not in by_others] or todo
        if not todo:
            return
        if not shared or own_share:
            own_share = False
            if (share := todo[number::count]) and _run_points(sweep, share):
                continue
        start = os.getpid() % len(todo)  # workers look at different places
        if not (shared and any(_run_points(sweep, [point]) for point in [*todo[start:], *todo[:start]])):
            time.sleep(_PAUSE)


def _run_points(sweep: Sweep, points: Sequence[Point]) -> bool:
    """Run points pair by pair: all references, and as many points as run together. False: another process is at them.

    Where some of them are refused, each is run on its own, so that the one that fails takes no other along.

    Raises:
        UserError: two are refused before any is complete, so it is not the points' fault.
    """
    for pair in dict.fromkeys(point["pair"] for point in points):
        own = [point for point in points if point["pair"] == pair]
        varied = [point for point in own if "reference" not in point]
        batch = [*(point for point in own if "reference" in point), *varied[: sweep.spec.at_once]]
        try:
            sweep.objective.run(batch, sweep)
        except Busy:
            return False
        except UserError as error:
            sweep.study.read()
            if len(batch) == 1:
                sweep.say(f"failed: {error}")
                sweep.fail(batch[0], str(error))
                if len(sweep.failures) > 1 and not sweep.study.complete():
                    raise
                continue
            for point in batch:
                if (trial := sweep.study.get(point)) is None or trial.state == "failed":
                    _run_points(sweep, [point])
    return True


def _invalidate_stale(sweep: Sweep) -> None:
    """Have points be done again whose results are missing, or of a benchmark that has changed."""
    for trial in sweep.study.complete():
        if not sweep.objective.is_current(trial):
            reason = "its results are missing, or of other problems, grading or criteria; made again"
            sweep.say(f"trial {trial.number}: {reason}")
            sweep.invalidate(trial, reason)


def pace(times: Sequence[float]) -> float:
    """Return the seconds that a point takes, from the start and the completions until now.

    What is held is only scored, and quick: where the last few points were quicker than all were, the rest is as they.
    """
    recent = times[-_RECENT - 1 :]
    return min((times[-1] - times[0]) / (len(times) - 1), (recent[-1] - recent[0]) / (len(recent) - 1))


def progress_line(sweep: Sweep, words: Sequence[str], seconds: float) -> str:
    """Say in a line which point is complete, which is best so far, and how long the rest takes at `seconds` a point."""
    over, pending = len(sweep.study.complete()), len(sweep.todo())
    if sweep.spec.method not in LISTED:
        pending += max(0, (sweep.spec.run_cap or 0) - len(sweep.points()))
    rest = f"about {duration(seconds * pending)} left" if pending else ""
    return "  |  ".join(filter(None, [f"{over}/{over + pending}", *words, sweep.best_so_far(), rest]))


# Several workers


def _run_workers(sweep: Sweep) -> None:
    """Have workers do everything; one that fails is started again.

    Raises:
        UserError: they fail again and again.
    """
    spec, folder = sweep.spec, sweep.folder
    seen = {key(trial.point) for trial in sweep.study.complete()}
    running = {number: _start(sweep, number) for number in range(spec.workers.count)}
    failures = 0
    try:
        while running:
            time.sleep(_PAUSE)
            ended = {number: process.returncode for number, process in running.items() if process.poll() is not None}
            sweep.study.read()
            for trial in sweep.study.complete():
                if key(trial.point) not in seen and (results := sweep.objective.results(trial)) is not None:
                    seen.add(key(trial.point))
                    sweep.on_complete(Outcome(trial.point, results, trial.metrics))
            for number, code in ended.items():
                del running[number]
                if not code:
                    continue
                failures += 1
                log = folder.workers / f"{number}.log"
                sweep.say(
                    f"worker {number} {f'was killed by signal {-code}' if code < 0 else f'failed; {log} says why'}"
                )
                if failures > spec.workers.count * (spec.retries + 1):
                    raise UserError(
                        f"{failures} workers have failed; the last lines of {folder.workers}/*.log say why. What is "
                        "complete is kept, and the same command tries again"
                    )
                running[number] = _start(sweep, number)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _start(sweep: Sweep, number: int) -> "subprocess.Popen[bytes]":
    worker = program("rlvr_dir.sweep.worker", sweep.folder.path, sweep.places.records, number, os.getpid())
    with (sweep.folder.workers / f"{number}.log").open("ab") as log:
        return subprocess.Popen(
            worker["args"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker["env"] | gpus(sweep.spec, number),
        )


def gpus(spec: Search, number: int) -> dict[str, str]:
    """Return the environment that gives worker `number` its own GPUs, of those that this process may see.

    Raises:
        UserError: there are not so many.
    """
    count = spec.workers.gpus_each
    if not count:
        return {}
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible_gpus.split(",") if visible_gpus else [str(i) for i in range(count * spec.workers.count)]
    own = names[number * count : (number + 1) * count]
    if len(own) < count:
        raise UserError(
            f"workers: {spec.workers.count} x {count} GPUs are asked for, and CUDA_VISIBLE_DEVICES names {len(names)}"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}


# To look at one


def status(folder: SweepFolder, spec: Search) -> str:
    """Return how many points are in which state, what failed, and the best so far. Changes nothing."""
    sweep = _begun(folder, spec)
    counts = ", ".join(f"{count} {name}" for name, count in sweep.study.states().items() if count) or "no trial yet"
    references = len(sweep.study.complete(references=True))
    lines = [f"{spec.name}: {spec.size()}; {counts}; references: {references} complete"]
    for trial in sweep.study.failed():
        lines.append(f"failed: {'reference' if trial.is_reference else 'trial'} {trial.number}: {visible(trial.error)}")
    if best := sweep.best_so_far():
        lines.append(best)
    return "\n".join(lines)


def best(folder: SweepFolder, spec: Search) -> str:
    """Return the verdicts of the summary as it would be now."""
    return "\n".join(_begun(folder, spec).summary().verdicts)


def _begun(folder: SweepFolder, spec: Search) -> Sweep:
    return open_sweep(spec, Places.under(folder.path.parents[1], track=False))

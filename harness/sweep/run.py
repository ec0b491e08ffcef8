"""A sweep from its spec to its summary: in this process, or with workers.

    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

It is a list over a store: what is held is read, what is not is computed, and running it again is resuming it. It may be
killed at any moment. With several workers each does its own share of the list first, then whatever others have not.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from harness.errors import Busy, UserError
from harness.files import check_writable
from harness.markdown import duration
from harness.program import program
from harness.records.lock import Lock
from harness.report.sweep import SweepSummary
from harness.spec.search import LISTED, Search
from harness.sweep.base import Places, Sweep, open_sweep
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point, key
from harness.sweep.study import Study
from harness.sweep.track import SweepRun
from harness.text import visible

_PAUSE = 0.3  # seconds between two looks at what others do


def run_sweep(
    spec: Search, places: Places, *, extend: bool = False, say: Callable[[str], None] = print, progress: bool = True
) -> SweepSummary:
    """Run what is left of a sweep to its end, and write its summary, which is returned.

    Raises:
        UserError: the sweep was begun with other settings, another process runs it, its folders cannot be written to
            (nothing was begun), or an engine refuses.
    """
    sweep = open_sweep(spec, places)
    sweep.check()
    folder = sweep.folder
    folder.make()
    check_writable(folder.path, sweep.store)
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        spec = folder.settle(spec, extend=extend)
        sweep = open_sweep(spec, places, say, progress=progress)
        sweep.study = Study(spec, folder, extend=extend)
        sweep.study.resume()
        _forget_the_outdated(sweep)
        run = SweepRun(sweep)
        began, done = time.monotonic(), itertools.count(1)

        def complete(point: Point, results: Sequence[Any]) -> None:
            for result in results:
                run.child(result)
            say(_progress(sweep, sweep.describe(point, results), time.monotonic() - began, next(done)))

        sweep.on_complete = complete
        try:
            if spec.workers.count == 1:
                work(sweep)
            elif sweep.todo():  # which finds thresholds by ratio, once for all workers
                sweep.close()
                _run_workers(sweep)
        except BaseException:
            run.attach(status="KILLED")
            raise
        finally:
            sweep.close()
        folder.tidy({name for trial in sweep.trials for name in trial.results})
        made = replace(sweep.summary(), seconds=time.monotonic() - began)
        made.write(folder.path)
        run.close(made)
        return made
    finally:
        lock.release()


def work(sweep: Sweep[Any], number: int = 0, count: int = 1, parent: int | None = None) -> None:
    """Complete points until none is left, or `parent` has ended.

    One worker alone takes all that can run together. Of several, `number` of `count`, each begins with its own share;
    then come those that nobody has completed, one by one, without those that another process is at.
    """
    shared, own_share = count > 1, True
    asked: list[Point] = []
    while parent is None or os.getppid() == parent:
        sweep.trials.read()
        if sweep.study is not None:
            asked = [point for point in asked if sweep.trials.get(point) is None]
            asked += sweep.study.propose((1 if shared else sweep.at_once) - len(asked))
        todo = sweep.todo()
        if shared and sweep.spec.method not in LISTED:  # what others have proposed is theirs, while there is more
            theirs = set(map(key, sweep.points())) - set(map(key, asked))
            todo = [point for point in todo if key(point) not in theirs] or todo
        if not todo:
            return
        if not shared or own_share:
            own_share = False
            if (mine := todo[number::count]) and _done(sweep, mine):
                continue
        start = os.getpid() % len(todo)  # workers look at different places
        if not (shared and any(_done(sweep, [point]) for point in [*todo[start:], *todo[:start]])):
            time.sleep(_PAUSE)


def _done(sweep: Sweep[Any], points: Sequence[Point]) -> bool:
    """Run points pair by pair: all references, and as many points as run together. False: another process is at them.

    Raises:
        UserError: what an engine or a store refuses; it is written down.
    """
    for pair in dict.fromkeys(point["pair"] for point in points):
        mine = [point for point in points if point["pair"] == pair]
        others = [point for point in mine if "reference" not in point]
        batch = [*(point for point in mine if "reference" in point), *others[: sweep.at_once]]
        try:
            sweep.run(batch)
        except Busy:
            return False
        except UserError as error:
            for point in batch:
                if sweep.trials.get(point) is None:
                    sweep.fail(point, str(error))
            raise
    return True


def _forget_the_outdated(sweep: Sweep[Any]) -> None:
    """Have points be done again whose results are missing, or of a benchmark that has changed."""
    for trial in sweep.trials.complete():
        if not sweep.is_current(trial):
            sweep.say(
                f"trial {trial.number}: its results are missing, or of other problems, grading or criteria; made again"
            )
            sweep.trials.forget(trial)


def _progress(sweep: Sweep[Any], about: Sequence[str], seconds: float, complete: int) -> str:
    """Say in a line which point is complete, which is best so far, and how long the rest takes."""
    over, left = sum(trial.state != "failed" for trial in sweep.trials), len(sweep.todo())
    if sweep.spec.method not in LISTED:
        left += max(0, (sweep.spec.run_cap or 0) - len(sweep.points()))
    rest = f"about {duration(seconds / complete * left)} left" if left else ""
    return "  |  ".join(filter(None, [f"{over}/{over + left}", *about, sweep.best_so_far(), rest]))


# Several workers


def _run_workers(sweep: Sweep[Any]) -> None:
    """Have workers do everything; one that fails is started again.

    Raises:
        UserError: they fail again and again.
    """
    spec, folder = sweep.spec, sweep.folder
    told = {key(trial.point) for trial in sweep.trials.complete()}
    running = {number: _start(sweep, number) for number in range(spec.workers.count)}
    failures = 0
    try:
        while running:
            time.sleep(_PAUSE)
            ended = {number: process.returncode for number, process in running.items() if process.poll() is not None}
            sweep.trials.read()
            for trial in sweep.trials.complete():
                if key(trial.point) not in told and (results := sweep.results(trial)) is not None:
                    told.add(key(trial.point))
                    sweep.on_complete(trial.point, results)
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


def _start(sweep: Sweep[Any], number: int) -> "subprocess.Popen[bytes]":
    worker = program("harness.sweep.worker", sweep.folder.path, sweep.places.records, number, os.getpid())
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
    each = spec.workers.gpus_each
    if not each:
        return {}
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    every = seen.split(",") if seen else [str(i) for i in range(each * spec.workers.count)]
    mine = every[number * each : (number + 1) * each]
    if len(mine) < each:
        raise UserError(
            f"workers: {spec.workers.count} x {each} GPUs are asked for, and CUDA_VISIBLE_DEVICES names {len(every)}"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(mine)}


# To look at one


def status(folder: SweepFolder, spec: Search) -> str:
    """Return how many points are in which state, what failed, and the best so far. Changes nothing."""
    sweep = _begun(folder, spec)
    counts = ", ".join(f"{count} {name}" for name, count in sweep.trials.states().items() if count) or "no trial yet"
    references = len(sweep.trials.complete(references=True))
    lines = [f"{spec.name}: {spec.size()}; {counts}; references: {references} complete"]
    for trial in sweep.failed():
        lines.append(f"failed: {'reference' if trial.is_reference else 'trial'} {trial.number}: {visible(trial.error)}")
    if best := sweep.best_so_far():
        lines.append(best)
    return "\n".join(lines)


def best(folder: SweepFolder, spec: Search) -> str:
    """Return the verdicts of the summary as it would be now."""
    return "\n".join(_begun(folder, spec).summary().verdicts)


def _begun(folder: SweepFolder, spec: Search) -> Sweep[Any]:
    if not folder.points.is_dir():
        raise UserError(f"sweep {spec.name!r} has no trial yet")
    return open_sweep(spec, Places.under(folder.path.parents[1], track=False))

"""Several workers: this process plans, starts workers, retires what dead ones leave, and replaces them."""

import os
import subprocess
import sys
import time
from typing import Any

from harness.errors import UserError
from harness.spec.search import Search
from harness.sweep.context import SweepContext, SweepKind, TrialRunner
from harness.sweep.points import key

_PAUSE = 0.3  # seconds between two looks


def run_fleet(context: SweepContext[Any], kind: SweepKind[Any], runner: TrialRunner) -> None:
    """Run everything by workers, until every point is complete, pruned, or has failed too often.

    Raises:
        UserError: workers fail again and again.
    """
    trials = context.trials

    def plan() -> None:
        for pair in context.spec.pairs:
            runner.plan(pair)

    def complete() -> list[Any]:
        return [*trials.complete(trials.references), *trials.complete()]

    plan()  # what was interrupted before is no failure of this run
    runner.close()
    told = {key(trial.user_attrs["point"]) for trial in complete()}
    workers = WorkerProcesses(context)
    try:
        while True:
            workers.bury()
            for trial in complete():
                point = trial.user_attrs["point"]
                if (
                    key(point) not in told
                    and (results := kind.results(context.spec, context.folder, trial)) is not None
                ):
                    told.add(key(point))
                    context.on_complete(point, results)
            for point in trials.lost():
                trials.failures[key(point)] += 1
            plan()
            if not (left := trials.left()):
                return
            workers.start(left)
            time.sleep(_PAUSE)
    finally:
        workers.stop()
        trials.retire()


class WorkerProcesses:
    """The worker processes of one sweep; each one's output is in `workers/NUMBER.log`."""

    def __init__(self, context: SweepContext[Any]) -> None:
        self._context = context
        self._running: dict[int, subprocess.Popen] = {}
        self._failed = 0

    def start(self, most: int) -> None:
        """Start workers until `most` of them, or as many as the sweep has, are there.

        Raises:
            UserError: they failed too often.
        """
        spec, folder = self._context.spec, self._context.folder
        if self._failed > spec.workers.count * (spec.retries + 1):
            raise UserError(
                f"{self._failed} workers have failed; the last lines of {folder.workers}/*.log say why. What is "
                "complete is kept, and the same command tries again"
            )
        for number in range(min(most, spec.workers.count)):
            if number in self._running:
                continue
            arguments = [folder.path, self._context.store, number, os.getpid()]
            with (folder.workers / f"{number}.log").open("ab") as log:
                self._running[number] = subprocess.Popen(
                    [sys.executable, "-m", "harness.sweep.worker", *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **gpus(spec, number)},
                )

    def bury(self) -> None:
        """Retire what workers have left that are no more, here and on other machines."""
        for number, process in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[number]
            if process.returncode:
                self._failed += 1
                how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else "failed"
                self._context.say(f"worker {number} {how}")
        if retired := self._context.trials.retire():
            self._context.say(f"{len(retired)} trial(s) of a worker that is gone are tried again")

    def stop(self) -> None:
        """End all of them."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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

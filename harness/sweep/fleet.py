"""Several workers: this process plans, starts workers, retires what dead ones leave, and replaces them."""

import os
import subprocess
import sys
import time

from harness.errors import UserError
from harness.spec.search import LISTED, Search
from harness.sweep.bench import Bench
from harness.sweep.kinds import kind_of
from harness.sweep.points import key
from harness.sweep.study import ENDED, OPEN

_PAUSE = 0.3  # seconds between two looks


class Fleet:
    """The worker processes of one sweep; each one's output is in `workers/NUMBER.log`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._running: dict[int, subprocess.Popen] = {}
        self._failed = 0

    def start(self, most: int) -> None:
        """Starts workers until `most` of them, or as many as the sweep has, are there.

        Raises:
            UserError: they failed too often.
        """
        spec, folder = self._bench.spec, self._bench.folder
        if self._failed > spec.workers.count * (spec.retries + 1):
            raise UserError(
                f"{self._failed} workers have failed; the last lines of {folder.workers}/*.log say why. What is "
                "complete is kept, and the same command tries again"
            )
        for number in range(min(most, spec.workers.count)):
            if number in self._running:
                continue
            arguments = [folder.path, self._bench.store, number, os.getpid()]
            with (folder.workers / f"{number}.log").open("ab") as log:
                self._running[number] = subprocess.Popen(
                    [sys.executable, "-m", "harness.sweep.worker", *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **gpus(spec, number)},
                )

    def bury(self) -> None:
        """Retires the trials of workers that have ended otherwise than they should."""
        for number, process in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[number]
            if process.returncode:
                self._failed += 1
                left = self._bench.book.reclaim(process.pid)
                how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else "failed"
                self._bench.say(f"worker {number} {how}; {len(left)} trial(s) of it are tried again")

    def stop(self) -> None:
        """Ends all of them."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_fleet(bench: Bench) -> None:
    """Everything by workers, until every point is complete, pruned, or has failed too often.

    Raises:
        UserError: workers fail again and again.
    """
    book = bench.book
    plan = kind_of(bench.spec).planner(bench)
    plan()  # what was interrupted before is no failure of this run
    told = {
        key(trial.user_attrs["point"]) for study in (book.references, book.points) for trial in book.complete(study)
    }
    fleet = Fleet(bench)
    try:
        while True:
            fleet.bury()
            _report(bench, told)
            for point in book.lost():
                book.failures[key(point)] += 1
            plan()
            if not (left := _left(bench)):
                return
            fleet.start(left)
            time.sleep(_PAUSE)
    finally:
        fleet.stop()
        book.reclaim()


def _left(bench: Bench) -> int:
    """How many trials are waiting, running, or to be proposed."""
    book, spec = bench.book, bench.spec
    trials = book.trials()
    count = sum(trial.state in OPEN for trial in (*trials, *book.trials(book.references)))
    if spec.method in LISTED:
        return count
    return count + max(0, spec.run_cap - sum(trial.state in (*OPEN, *ENDED) for trial in trials))


def _report(bench: Bench, told: set[str]) -> None:
    """Tells of trials that workers have completed since the last look."""
    for study in (bench.book.references, bench.book.points):
        for trial in bench.book.complete(study):
            point = trial.user_attrs["point"]
            if key(point) in told:
                continue
            if (results := kind_of(bench.spec).results(bench.folder, trial)) is not None:
                told.add(key(point))
                bench.on_finish(point, results)


def gpus(spec: Search, number: int) -> dict[str, str]:
    """The environment that gives worker `number` its own GPUs, of those that this process may see.

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

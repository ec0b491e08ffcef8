"""Run math-verify in worker processes with limits of time and memory. Workers that die are replaced; any thread may
call."""

import atexit
import json
import logging
import os
import selectors
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rlvr_dir.program import program

CPU_SECONDS = 5  # processor time for one pair: math-verify's limit for one parse or one comparison
RESPONSE_SECONDS = 10.0  # processor time for one response: n elements and m golds need n times m comparisons
WALL_SECONDS = 120  # limit for a worker that waits without computing
START_SECONDS = 120  # a worker imports sympy and math-verify, which takes about one second on an idle machine
PAIRS_A_WORKER = 30  # starting another worker only pays off beyond this many pairs

Item = tuple[tuple[str, ...], str]  # gold answers, any of which counts, and an answer
_idle: list["_Worker"] = []  # its `append` and `pop` are safe in any thread


class _Worker:
    """Run one `python -m rlvr_dir.grading.worker`, which replies with one JSON line to each line.

    It is a separate program instead of `multiprocessing`, so that nothing of the parent (CUDA, threads, an unguarded
    `__main__`) is repeated or shared. The limit is on *processor* time and the kernel enforces it (SIGPROF kills the
    worker's child, which the worker replaces). So a busy machine changes no verdict, and a loop inside C code cannot
    avoid the limit.
    """

    def __init__(self) -> None:
        worker = program("rlvr_dir.grading.worker")
        process = subprocess.Popen(
            worker["args"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker["env"] | {"OMP_NUM_THREADS": "1", "RLVR_DIR_NO_AUTOLOAD": "1"},
            process_group=0,  # its child ends with it
        )
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        self.process, self._input, self._output = process, process.stdin, process.stdout
        self.stuck = False  # whether it did not reply for WALL_SECONDS
        ready = self._read(START_SECONDS)
        if ready is None or "error" in ready:
            self.kill()
            raise RuntimeError(f"the grading worker did not start: {(ready or {}).get('error', 'no answer')}")

    def verify(self, gold: str, answer: str, careful: bool, cpu_seconds: float) -> str | None:
        """Return the kind of one pair, and add its time to `seconds`; None if the worker died."""
        self.seconds = cpu_seconds
        try:
            self._input.write(json.dumps([gold, answer, careful, cpu_seconds]).encode() + b"\n")
            self._input.flush()
        except OSError:
            return None
        reply = self._read(WALL_SECONDS)
        if reply is not None:
            self.seconds = reply.get("seconds", self.seconds)
            return reply["kind"]
        self.stuck = not self._closed
        return "timed_out" if self.stuck else None

    def kill(self) -> None:
        """End the process and its child, whatever they are doing."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(OSError):  # a line that could not be delivered to a dead worker is still in the buffer
            self._input.close()
        self._output.close()

    def _read(self, seconds: float) -> dict | None:
        """Read one reply; None if none came in time or the worker is gone (`_closed`)."""
        self._closed = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        line = self._output.readline()
        self._closed = not line.endswith(b"\n")
        return None if self._closed else json.loads(line)


def grade_items(
    items: Sequence[Item],
    at_once: Callable[[str, str], str | None],
    *,
    careful: bool = False,
    cpu_seconds: float | None = None,
) -> list[str]:
    """Return one kind per item, over its golds: any `correct` counts, and a grader's failure has priority over `wrong`.

    `at_once` decides about a gold and an answer without a worker, or returns None.
    """
    kinds = {(gold, answer): at_once(gold, answer) for golds, answer in items for gold in golds}
    owners: dict[tuple[str, str], list[int]] = {pair: [] for pair, kind in kinds.items() if kind is None}
    for number, (golds, answer) in enumerate(items):
        for gold in golds:
            if (gold, answer) in owners:
                owners[gold, answer].append(number)
    if owners:
        verdicts = verify_many([*owners], careful=careful, cpu_seconds=cpu_seconds, owners=[*owners.values()])
        kinds.update(zip(owners, verdicts, strict=True))

    def best(kinds: Sequence[str]) -> str:
        return next((kind for kind in ("correct", "timed_out", "grader_error") if kind in kinds), kinds[0])

    return [best([kinds[gold, answer] or "wrong" for gold in golds]) for golds, answer in items]


def verify_many(
    pairs: Sequence[tuple[str, str]],
    *,
    careful: bool = False,
    cpu_seconds: float | None = None,
    owners: Sequence[Sequence[int]] = (),
) -> list[str]:
    """Return one kind per (gold, answer) pair: `correct`, `wrong`, `timed_out` or `grader_error`. No pair, no worker.

    `careful` checks math-verify's decision on values (see `worker.py`); `cpu_seconds` replaces CPU_SECONDS. `owners`
    are the responses that need each pair. A pair is `timed_out` if all of its owners have used RESPONSE_SECONDS, and a
    `grader_error` if it kills two workers.
    """
    spent: defaultdict[int, float] = defaultdict(float)  # processor time of each response so far
    without: list[RuntimeError] = []  # errors of workers that do not start

    def kind_of(i: int) -> str:
        owner = min(owners[i], key=lambda pair: spent[pair]) if owners else -1  # the one with the most time left
        seconds_left = min(cpu_seconds or CPU_SECONDS, RESPONSE_SECONDS - spent[owner])
        for _ in range(2 * (seconds_left > 0)):
            try:
                if without:
                    return "grader_error"
                worker = _take()
            except RuntimeError as error:  # these pairs may come from hours of decoding, so keep the rest
                logging.getLogger(__name__).error("%s; what needs it stays ungraded", error)
                without.append(error)
                return "grader_error"
            kind = None
            try:
                kind = worker.verify(*pairs[i], careful, seconds_left)
            finally:
                if kind is None or worker.stuck:
                    worker.kill()
                else:
                    _idle.append(worker)
            spent[owner] += worker.seconds if owners else 0
            if kind is not None:
                return kind
        return "grader_error" if seconds_left > 0 else "timed_out"

    count = min(os.cpu_count() or 1, 8, -(-len(pairs) // PAIRS_A_WORKER))
    with ThreadPoolExecutor(count or 1) as threads:
        return [*threads.map(kind_of, range(len(pairs)))]


def _take() -> _Worker:
    with suppress(IndexError):
        while True:
            worker = _idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.kill()  # it died while idle, which is not the next pair's fault
    return _Worker()


@atexit.register
def close_workers() -> None:
    """End the idle workers; the next pair that needs one starts a new one."""
    while _idle:
        _idle.pop().kill()


os.register_at_fork(after_in_child=_idle.clear)  # a forked child must not use its parent's workers

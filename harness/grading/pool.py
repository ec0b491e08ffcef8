"""Worker processes around math-verify: bounded in time and memory, replaced when they die, usable from any thread."""

import atexit
import json
import logging
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CPU_SECONDS = 5  # processor time for one pair: what math-verify allows one parse or one comparison
RESPONSE_SECONDS = 10.0  # processor time for all questions about one response: n elements against m golds are n times m
WALL_SECONDS = 120  # the backstop for a worker that waits without computing
START_SECONDS = 120  # a worker imports sympy and math-verify, about one second on a quiet machine
PAIRS_A_WORKER = 30  # another worker pays for its start only beyond this many pairs

_idle: list["_Worker"] = []
_lock = threading.Lock()


class _Worker:
    """One `python -m harness.grading.worker`, answering one JSON line for each line it is sent.

    A separate program rather than `multiprocessing`: nothing of the parent (CUDA, threads, an unguarded `__main__`)
    is repeated or shared. The limit is on *processor* time and the kernel enforces it (SIGPROF kills the worker's
    child, which the worker replaces): a busy machine changes no verdict and no loop inside C code can outrun it.
    """

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RLVR_DIR_NO_AUTOLOAD": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.grading.worker", str(CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            process_group=0,  # its child ends with it
        )
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        self.process, self._input, self._output = process, process.stdin, process.stdout
        self.stuck = False  # whether it left a pair unanswered for WALL_SECONDS
        ready = self._read(START_SECONDS)
        if ready is None or "error" in ready:
            self.kill()
            raise RuntimeError(f"the grading worker did not start: {(ready or {}).get('error', 'no answer')}")

    def verify(self, gold: str, answer: str, careful: bool = False, cpu_seconds: float | None = None) -> str | None:
        """Return the kind of one pair, and note in `seconds` what it took; None if the worker died."""
        self.seconds = cpu_seconds or CPU_SECONDS
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


@dataclass(slots=True)
class _Question:
    """A pair, and what may be spent on it: `spent` has the processor time of each response so far."""

    gold: str
    answer: str
    careful: bool
    limit: float
    owners: Sequence[int]
    spent: dict[int, float]

    def left(self) -> float:
        """Return the seconds that are left for it."""
        if not self.owners:
            return self.limit
        return min(self.limit, RESPONSE_SECONDS - min(self.spent.get(owner, 0.0) for owner in self.owners))

    def charge(self, seconds: float) -> None:
        """Note what it took, with the owner that had most left."""
        if self.owners:
            owner = min(self.owners, key=lambda each: self.spent.get(each, 0.0))
            self.spent[owner] = self.spent.get(owner, 0.0) + seconds


def verify_many(
    pairs: Sequence[tuple[str, str]],
    *,
    careful: bool = False,
    cpu_seconds: float | None = None,
    owners: Sequence[Sequence[int]] | None = None,
) -> list[str]:
    """Return one kind a (gold, answer) pair: `correct`, `wrong`, `timed_out` or `grader_error`. No pair, no worker.

    `careful` checks math-verify's word on values (see `worker.py`); `cpu_seconds` replaces CPU_SECONDS. `owners` are
    the responses that ask for each pair: a pair all of whose owners have spent RESPONSE_SECONDS is `timed_out`.
    """
    spent: dict[int, float] = {}
    asked = [_Question(*pair, careful, cpu_seconds or CPU_SECONDS, (), spent) for pair in pairs]
    for question, each in zip(asked, owners or (), strict=False):
        question.owners = each
    kinds: list[str] = ["grader_error"] * len(pairs)
    jobs: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(len(pairs)):
        jobs.put(i)
    count = min(os.cpu_count() or 1, 8, -(-len(pairs) // PAIRS_A_WORKER))
    if count <= 1:
        _serve(asked, kinds, jobs)
        return kinds
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_serve, args=(asked, kinds, jobs, failures), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return kinds


def _serve(
    questions: Sequence[_Question],
    kinds: list[str],
    jobs: "queue.SimpleQueue[int]",
    failures: list[BaseException] | None = None,
) -> None:
    """Take jobs until none is left, with a worker of its own; a pair that kills two workers is a grader_error."""
    worker: _Worker | None = None
    try:
        while True:
            try:
                i = jobs.get_nowait()
            except queue.Empty:
                return
            question = questions[i]
            if (left := question.left()) <= 0:
                kinds[i] = "timed_out"
                continue
            for _ in range(2):
                try:
                    worker = worker or _take()
                except RuntimeError as error:  # hours of decoding may stand behind these pairs: keep what there is
                    logging.getLogger(__name__).error("%s; what needs it stays ungraded", error)
                    return
                kind = worker.verify(question.gold, question.answer, question.careful, left)
                question.charge(worker.seconds)
                if kind is None or worker.stuck:
                    worker.kill()
                    worker = None
                if kind is not None:
                    kinds[i] = kind
                    break
    except BaseException as error:
        if worker is not None:
            worker.kill()
            worker = None
        if failures is None:
            raise
        failures.append(error)
    finally:
        if worker is not None:
            with _lock:
                _idle.append(worker)


def _take() -> _Worker:
    while True:
        with _lock:
            if not _idle:
                break
            worker = _idle.pop()
        if worker.process.poll() is None:
            return worker
        worker.kill()  # it died while nobody looked, and is no fault of the next pair's
    return _Worker()


@atexit.register
def close_workers() -> None:
    """End the idle workers; the next pair that needs one starts a new one."""
    with _lock:
        workers, _idle[:] = list(_idle), []
    for worker in workers:
        worker.kill()


def _forget_workers() -> None:
    """Forget the workers in a forked child, which must not talk to its parent's."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_workers)

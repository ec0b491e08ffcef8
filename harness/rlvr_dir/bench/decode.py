"""Measure decoding speed in one run: RL alone in vLLM, the pair engine, the transformers pair, one token per call.

Each engine has its own process and they take turns, one round at a time, so that a busy machine slows all of them
alike. Speeds are tokens per CPU-second. Ratios are medians over rounds of the ratio within a round. Two forward passes
that share nothing would give 0.5 for `pair_to_single`.
"""

import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.program import program

ENGINES = ("single", "pair", "transformers", "stock", "calls")
MOST_CALLS = 240  # sequences; one token per call needs a request per token, and more sequences would show nothing new


def bench_decode(
    *,
    pair: Pair | None = None,
    sequences: Sequence[int] = (240,),
    kinds: Sequence[str] = ENGINES,
    tokens: int = 64,
    rounds: int = 3,
    threads: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure all engines in turn.

    Args:
        pair: The checkpoints to run; by default a random 4-layer, 256-wide pair with a vocabulary of 1024, made for the
            run.
        sequences: How many sequences to decode at once, on 30 prompts; several numbers are measured in turn.
        kinds: Which engines. `stock` is the transformers pair with transformers' own caches and attention, the simplest
            implementation. `calls` is two engines with one token per call, the published implementation.
        tokens: The most new tokens of each sequence.
        rounds: Measured rounds, after one to warm up.
        threads: Threads per engine. Two threads on a tiny model were tens of times slower than one.
        say: Called with lines about the progress.

    Returns:
        A plain object: `sizes`, one for each number of sequences, with `ratios` (pair_to_single, and so on for each
            kind), `tokens_per_cpu_second` (medians) and `rounds` (the numbers of each); `machine`, `settings`, `limit`.

    Raises:
        UserError: vLLM is not installed, or an engine is unknown or did not start.
    """
    from importlib.util import find_spec

    for kind in kinds:
        if kind not in ENGINES:
            raise unknown("engine", kind, ENGINES)
    if "pair" not in kinds:
        raise UserError(
            "is not allowed: all are compared with pair",
            argument="engines",
            value=",".join(kinds),
            accepted="a list with it",
        )
    if find_spec("vllm") is None:
        raise UserError(
            "bench decode compares with vLLM, which is not installed", hint="Install the extra [cpu] or [gpu]"
        )
    with ExitStack() as stack:
        if pair is None:
            from rlvr_dir.bench.random_pair import random_pair

            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-")))
            pair = random_pair(directory, vocab=1004, hidden=256, layers=4)
        workers = {}
        for kind in kinds:  # started one after the other, because loading is not measured
            say(f"starting {kind}")
            workers[kind] = stack.enter_context(_MeasuredProcess(kind, pair, tokens, threads))
        measured: dict[int, list[dict[str, dict[str, float]]]] = {size: [] for size in sequences}
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "warming up")
            for size in sequences:
                turn = {kind: worker for kind, worker in workers.items() if kind != "calls" or size <= MOST_CALLS}
                measured[size].append({kind: worker.round(number, size) for kind, worker in turn.items()})
    return {
        "sizes": [{"sequences": size, **_figures(figures[1:])} for size, figures in measured.items()],
        "limit": {"pair_to_single": 0.5},
        "settings": {"tokens": tokens, "threads": threads, "pair": pair.model_dump()},
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _figures(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    speeds = [{kind: r["tokens"] / r["cpu"] for kind, r in round_.items()} for round_ in rounds]
    return {
        "ratios": {
            f"pair_to_{kind}": round(statistics.median(s["pair"] / s[kind] for s in speeds), 3)
            for kind in speeds[0]
            if kind != "pair"
        },
        "tokens_per_cpu_second": {kind: round(statistics.median(s[kind] for s in speeds), 1) for kind in speeds[0]},
        "rounds": rounds,
    }


def machine() -> str:
    """Return the processor, its number of cores and the operating system as text."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or a processor without a name
        pass
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


class _MeasuredProcess:
    """Run a worker process, with one line in each direction per round."""

    def __init__(self, kind: str, pair: Pair, tokens: int, threads: int) -> None:
        self.kind = kind
        worker = program("rlvr_dir.bench.worker", kind, pair.base, pair.rl, tokens)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        process = subprocess.Popen(
            worker["args"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=worker["env"] | {"OMP_NUM_THREADS": str(threads)},
        )
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout

    def __enter__(self) -> "_MeasuredProcess":
        self._read()
        return self

    def round(self, number: int, sequences: int) -> dict[str, float]:
        """Let the worker decode once; return its tokens, processor seconds and wall seconds."""
        print(number, sequences, file=self._input, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._output.readline()
        if not line:
            self._log.seek(0)
            tail = self._log.read().strip().splitlines()
            raise UserError(
                f"The {self.kind} engine ended early: {tail[-1] if tail else 'no message'}", argument="engine"
            )
        return json.loads(line)

    def __exit__(self, *_: object) -> None:
        self._input.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

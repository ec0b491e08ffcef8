"""Measure a cold start: the time before anything happens, in seconds, as medians over new processes.

Caches are warm, including Python's bytecode: the measured processes may write it, whatever the environment says.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine

FIRST_TOKEN = """
import os, sys
out = os.fdopen(os.dup(1), "w"); os.dup2(2, 1)
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.config import EngineSpec, Sampling
from rlvr_dir.tiny import tiny_pair
spec = EngineSpec(backend="vllm", enforce_eager=True, self_test=sys.argv[1] == "test")
with open_engine(tiny_pair(), spec) as engine:
    list(engine.generate([Request("1 + 1 =", "start", sampling=Sampling(max_tokens=1))]))
    print("token", file=out, flush=True)
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LIMITS = {"help": 0.5, "hook": 0.001, "first token": 15.0, "first token after the self-test": None}


def bench_start(*, rounds: int = 5, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Measure `rlvr-dir --help`, the start-up hook, and the first token of the tiny pair in vLLM.

    Args:
        rounds: New processes of each, after one that fills the caches; for vLLM at most two.
        say: Called with the progress.

    Returns:
        A plain object: `seconds` (medians) and `limit` of `help`, `hook` (what it adds to any start of Python), `first
            token` and, if vLLM is installed, `first token after the self-test`; `machine`, `date`.
    """
    from importlib.util import find_spec

    say("help")
    found = {"help": _median(lambda: _run([sys.executable, "-m", "rlvr_dir.cli", "--help"]), rounds)}
    say("hook")
    found["hook"] = _median(_hook, rounds)
    if find_spec("vllm") is not None:
        for name, test in (("first token", "no"), ("first token after the self-test", "test")):
            say(name)
            found[name] = _median(lambda test=test: _first_token(test), min(rounds, 2))
    return {
        "seconds": {name: round(seconds, 5) for name, seconds in found.items()},
        "limit": LIMITS,
        "settings": {"rounds": rounds},
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _median(measure: Callable[[], float], rounds: int) -> float:
    measure()
    return statistics.median(measure() for _ in range(rounds))


def _run(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - began


def _hook() -> float:
    """Return the seconds that the `.pth` file adds to the start of a Python, by Python's own account of its imports."""
    command = [sys.executable, "-X", "importtime", "-c", ""]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    line = next(line for line in done.stderr.splitlines() if line.endswith("rlvr_dir_autoload"))
    return int(line.split("|")[1]) / 1e6


def _first_token(test: str) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_TOKEN, test],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "token":
            raise RuntimeError("the tiny pair gave no token")
        return time.perf_counter() - began


if __name__ == "__main__":
    run(bench_start)

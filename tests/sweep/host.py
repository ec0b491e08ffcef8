"""Run as a process of its own: loads what a sweep needs once, then forks a process for every sweep it is told to run.

    python -m tests.sweep.host

Reads lines `OUT JSON` (the changes of `made.sweep`) from standard input; answers each with the pid of a child that runs
that sweep, and, once the child is gone, with its exit status. Workers of a fleet are forked too, and end with their
parent like real ones: only starting Python and importing everything anew is spared.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

from tests.said import say


class Forked:
    """Stands in for `subprocess.Popen` of a worker: same life, no new interpreter."""

    def __init__(self, arguments, **_):
        folder, records, number, parent = arguments[3:]
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                from harness.sweep.worker import die_with_parent, join

                die_with_parent()
                with (Path(folder) / "workers" / f"{number}.log").open("ab") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                join(Path(folder), Path(records), int(number), int(parent))
                code = 0
            except Exception:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def terminate(self):
        if self.poll() is None:
            os.kill(self.pid, 15)

    def wait(self, timeout=None):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run(out, changes):
    from harness.sweep import run as running
    from harness.sweep.base import Places
    from harness.sweep.run import run_sweep
    from tests.sweep.made import sweep

    running.subprocess = SimpleNamespace(
        Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    extend = changes.pop("extend", False)
    places = Places.under(Path(out), track=changes.pop("track", False))
    run_sweep(sweep(**changes), places, extend=extend, say=lambda text: None, progress=False)


def main():
    import mlflow  # noqa: F401
    import torch
    from tqdm import tqdm

    torch.set_num_threads(1)
    # tqdm's own lock is one of all forked processes: a child killed while it draws its bar would hold up the next ones.
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0  # its thread could hold that lock in the moment of a fork
    import harness.sweep.confirm
    import harness.sweep.worker
    from harness.decode import open_engine
    from harness.evals import evaluate
    from harness.spec import EngineSpec, EvalSpec, Sampling
    from harness.tiny import tiny_pair

    with open_engine(tiny_pair(), EngineSpec(backend="transformers")) as engine:  # imports everything
        asked = EvalSpec(tasks=("tiny_easy",), sampling=Sampling(samples=1, max_tokens=8), limit=1)
        evaluate(asked, engine=engine, progress=False)
    say("ready")
    for line in sys.stdin:
        out, _, changes = line.strip().partition(" ")
        if '"kind": "train"' in changes:
            import harness.train.trl  # noqa: F401
        pid = os.fork()
        if pid == 0:
            code = 70
            os.dup2(2, 1)  # answers come from this process alone
            try:
                run(out, json.loads(changes or "{}"))
                code = 0
            except Exception:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)
        say(pid)
        _, status = os.waitpid(pid, 0)
        say(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

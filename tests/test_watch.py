"""Processes watch their parent: small ones here, without vLLM; `test_engine_processes` kills real engines."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import multiprocessing, os, time
from rlvr_dir.watch import end_with_parent, owning

def core(deeper):
    end_with_parent()
    if deeper:
        multiprocessing.get_context({method!r}).Process(target=core, args=(False,)).start()
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: two processes write at the same time
    while True:
        pass  # busy, and never looks

if __name__ == "__main__":
    end_with_parent()  # an owner does not watch whoever started it
    with owning():
        multiprocessing.get_context({method!r}).Process(target=core, args=(True,)).start()
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_children_and_theirs_end_when_their_owner_is_killed(tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(method=method))
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=here) as owner:
        try:
            children = [psutil.Process(int(owner.stdout.readline())) for _ in range(2)]
            assert all(child.is_running() for child in children)
        finally:
            owner.send_signal(signal.SIGKILL)
        assert psutil.wait_procs(children, timeout=60)[1] == []


OTHERS = """
import multiprocessing, threading
from rlvr_dir.watch import end_with_parent, owning

def other():
    end_with_parent()
    print(*(thread.name for thread in threading.enumerate()), flush=True)

if __name__ == "__main__":
    end_with_parent()
    with owning():
        end_with_parent()
    print(*(thread.name for thread in threading.enumerate()), flush=True)
    child = multiprocessing.get_context("spawn").Process(target=other)
    child.start()
    child.join()
"""


def test_nobody_else_watches(tmp_path):
    """Neither an owner, nor a process that plain vLLM has started, which loads the same plugin."""
    program = tmp_path / "program.py"
    program.write_text(OTHERS)
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=here, check=True)
    assert done.stdout.split() == ["MainThread", "MainThread"]

"""The worker program by itself: what bounds it, what replaces what, and when it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

# The program, with answers that do what hostile ones might: take memory, never end, crash, fail.
PROGRAM = """
import ctypes, itertools
from rlvr_dir.grading import worker
def kind(gold, answer, careful):
    if answer == "memory":
        bytearray(2 * worker.MEMORY_BYTES)
    if answer == "much memory":
        bytearray(b"1") * (3 * worker.MEMORY_BYTES // 4)
        return "wrong"
    if answer == "time":
        sum(itertools.repeat(0))  # a loop inside C code
    if answer == "crash":
        ctypes.string_at(0)
    if answer == "fails":
        raise ValueError
    return "correct"
worker._kind = kind
worker.main()
"""


@pytest.fixture
def program():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as process:
        assert json.loads(process.stdout.readline()) == {"ready": True}

        def ask(answer, seconds=60):
            process.stdin.write(json.dumps(["1", answer, False, seconds]).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            return json.loads(line)["kind"] if line else None

        ask.process = process
        yield ask
        process.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="not every system can limit the memory of a process")
@pytest.mark.parametrize("answer", ["memory", "much memory"])
def test_a_memory_bomb_is_refused_and_not_silently_wrong(program, answer):
    assert [program("1"), program(answer), program("1")] == ["correct", "grader_error", "correct"]


def test_time_is_bounded_inside_c_code_and_the_same_worker_goes_on(program):
    assert [program("1"), program("time", 0.1), program("time", 0.1)] == ["correct", "timed_out", "timed_out"]
    assert program("1") == "correct"


def test_an_exception_is_no_verdict(program):
    assert [program("fails"), program("1")] == ["grader_error", "correct"]


def test_a_crash_ends_the_worker(program):
    assert program("crash") is None
    assert program.process.wait() == signal.SIGSEGV


def test_the_worker_ends_with_its_input(program):
    program("1")
    program.process.stdin.close()
    assert program.process.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(program.process.pid, 0)

r"""Run a grading worker: read `[gold, answer, careful, seconds]` lines, and write `{"kind": ...}` lines.

    echo '["1/2", "0.5", false, 5]' | python -m rlvr_dir.grading.worker

The text is a model's output and must be treated as hostile. math-verify parses it, and we never evaluate it as code.
The process has no terminal, and limits on its memory and on the processor time of each pair.

The program loads sympy once and forks a child that does the work. The kernel may kill a child at any moment. The next
one starts in milliseconds, with everything loaded and no state of the last pair.
"""

import json
import logging
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, TextIO

from rlvr_dir.grading.robust import judge

MEMORY_BYTES = 2**30  # address space of a child; after loading everything it uses 0.1 GiB
MUCH_BYTES = MEMORY_BYTES // 2  # a pair that used as much may have run out of memory, and its child ends
RENEW = 3  # exit status of a child that should be replaced


def main() -> None:
    """Serve until its input ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a library's output must not look like a reply
    try:
        _kind("\\frac12", "0.5", False)  # these two load everything
        _kind("\\frac12", "\\sqrt{x}", True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=replies)
        return
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # not every system can limit it
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the default action ends a child, even inside C code
    print(json.dumps({"ready": True}), file=replies)
    while True:
        child = os.fork()
        if child == 0:
            _serve(replies)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == -signal.SIGPROF:  # only armed while a pair is being graded
            print(json.dumps({"kind": "timed_out"}), file=replies)
        elif status != RENEW:
            sys.exit(abs(status))


def _serve(replies: TextIO) -> None:
    """Reply, in the child, until the input ends, or a pair used so much memory that a new child is better."""
    while line := sys.stdin.buffer.readline():
        gold, answer, careful, limit = json.loads(line)
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            kind = _kind(gold, answer, careful)
        except Exception:
            kind = "grader_error"
        signal.setitimer(signal.ITIMER_PROF, 0)
        much = _peak_bytes() > MUCH_BYTES
        if much and kind == "wrong":  # math-verify also returns this if it ran out of memory
            kind = "grader_error"
        print(json.dumps({"kind": kind, "seconds": round(time.process_time() - started, 4)}), file=replies)
        if much:
            os._exit(RENEW)
    os._exit(0)


def _kind(gold: str, answer: str, careful: bool) -> str:
    from math_verify import verify

    if careful:
        return "correct" if judge(gold, answer) else "wrong"
    expected = list(_parse(gold))
    if not expected:
        return "grader_error"
    return "correct" if verify(expected, list(_parse(answer)), timeout_seconds=None) else "wrong"


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[Any, ...]:  # the 32 answers to a problem have the same gold
    from math_verify import parse

    # None is no limit, whatever math-verify's annotation says.
    return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None))  # pyright: ignore[reportArgumentType]


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()

r"""The program in a grading worker: reads `[gold, answer, careful, seconds]` lines, writes `{"kind": ...}` lines.

    echo '["1/2", "0.5", false, null]' | python -m harness.grading.worker 5

The text is a model's output and hostile until proven otherwise: it is parsed by math-verify, never evaluated as
code by us, in a process without a terminal, with a limit on memory and one on the processor time of each pair.
"""

import json
import os
import resource
import signal
import sys
from contextlib import suppress

MEMORY_BYTES = 4 * 2**30


def main() -> None:
    """Serves until its input ends."""
    seconds = float(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not look like a reply
    try:
        import logging

        from math_verify import parse, verify

        from harness.grading.values import same_values

        logging.disable(logging.CRITICAL)
        verify(parse(r"\boxed{\frac12}", parsing_timeout=None), parse(r"\boxed{0.5}", parsing_timeout=None))  # warm up
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=replies)
        return
    with suppress(OSError, ValueError):  # not every system can limit it
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    print(json.dumps({"ready": True}), file=replies)

    def kind(gold: str, answer: str, careful: bool) -> str:
        expected = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
        if not expected:
            return "grader_error"
        found = parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
        if careful and found and (values := same_values(expected[0], found[0])) is not None:
            return "correct" if values else "wrong"
        return "correct" if verify(expected, found, timeout_seconds=None) else "wrong"

    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the default action ends the process, even inside C code
    for line in sys.stdin:
        gold, answer, careful, limit = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, limit or seconds)
        try:
            reply = kind(gold, answer, careful)
        except Exception:
            reply = "grader_error"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"kind": reply}), file=replies)


if __name__ == "__main__":
    main()

"""What is shown while something takes long: on a terminal and elsewhere, of phases in which nothing returns."""

import os
import re
import subprocess
import sys
from pathlib import Path

from harness import progress
from harness.decode.progress import Progress
from harness.progress import phase, say, showing

HOUSE = str(Path(__file__).parents[1])
# A command that compiles for as long as its standard input is open, then counts to three.
COMMAND = """
import sys
from harness.progress import Bar, phase, say, showing
with showing():
    with phase("compiling"):
        sys.stdin.readline()
    with Bar(3, "step", "seed 0") as bar:
        with phase("generating"):
            sys.stdin.readline()
        say("said")
        for _ in range(3):
            bar.update()
        bar.figures("all right")
    with Bar(3, "step", "never"):
        pass
"""


def shown(stderr, read):
    """Runs the command, ends each of its phases once that has been seen twice, and returns what it showed."""
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr, cwd=HOUSE, text=True) as process:
        seen = ""
        for words in (r"compiling 00:\d[1-9]", r"seed 0, generating 00:\d[1-9]"):
            while not re.search(words, seen):
                seen += read(process)
            process.stdin.write("\n")
            process.stdin.flush()
        while more := read(process):
            seen += more
    assert process.returncode == 0
    return seen


def test_off_a_terminal_a_phase_is_a_line():
    seen = shown(subprocess.PIPE, lambda process: process.stderr.readline())
    lines = seen.splitlines()
    assert re.fullmatch(r"compiling 00:\d\d", lines[0])
    assert any(re.fullmatch(r"seed 0, generating 00:\d\d", line) for line in lines)
    assert re.fullmatch(r"seed 0: 100% 3/3 \[\d\d:\d\d, all right\]", lines[-1])  # and no bar of which nothing was done
    assert "\r" not in seen


def test_a_forked_process_shows_nothing_of_its_parents(capfd):
    with showing(), phase("loading"):
        child = os.fork()
        if not child:
            with phase("mine"):
                say("from the child")
                os._exit(len(progress._stack))
        assert os.waitpid(child, 0)[1] == 0
    assert capfd.readouterr().err == "from the child\n"


def test_before_the_first_response_ends_a_log_has_its_tokens():
    """A log had the phase's name alone for as long as no response had ended: eleven minutes at 20,000 tokens."""
    with Progress(10, enabled=True) as bar:
        bar.now("generating")
        bar.show([4000, 321, 0])
        line = bar.line()
    assert re.fullmatch(
        r"decode, generating 00:\d\d: 0% 0/10 \[00:\d\d, \? left, 4,321 tokens, [\d,]+ tok/s, .*\]", line
    )

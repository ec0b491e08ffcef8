"""What is shown while something takes long: on a terminal and elsewhere, of phases in which nothing returns."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rlvr_dir import progress
from rlvr_dir.decode.progress import Progress
from rlvr_dir.progress import phase, say, showing

HOUSE = str(Path(__file__).parents[1])
# A command that compiles for as long as its standard input is open, then counts to three.
COMMAND = """
import sys
from rlvr_dir.progress import Bar, phase, say, showing
with showing():
    with phase("compiling"):
        sys.stdin.readline()
    with Bar(3, "seed 0") as bar:
        with phase("generating"):
            sys.stdin.readline()
        say("said")
        for _ in range(3):
            bar.update()
        bar.figures("all right")
    with Bar(3, "never"):
        pass
"""


def shown(stderr, read):
    """Runs the command, ends each of its phases once that has been seen twice, and returns what it showed."""
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr, cwd=HOUSE, text=True) as process:
        if stderr != subprocess.PIPE:
            os.close(stderr)  # the command has its own
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


def test_on_a_terminal_a_bar_has_its_phase_and_its_count_and_leaves_a_line():
    terminal, end = pty.openpty()

    def read(process):
        with suppress(OSError):  # the other end is closed
            return os.read(terminal, 4096).decode()
        return ""

    seen = shown(end, read)
    os.close(terminal)
    drawn = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen)
    assert re.search(r"seed 0, generating 00:\d[1-9] ━{20} 0% 0/3 \[00:\d\d\]", drawn)
    assert "said\r\n" in drawn
    assert re.search(r"seed 0: 100% 3/3 \[\d\d:\d\d, all right\]\r\n", drawn)
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")  # the cursor is back


def test_a_forked_process_shows_nothing_of_its_parents(capfd):
    with showing(), phase("loading"):
        child = os.fork()
        if not child:
            with phase("mine"):
                say("from the child")
                os._exit(len(progress.display().tasks))
        assert os.waitpid(child, 0)[1] == 0
    assert capfd.readouterr().err == "from the child\n"


def test_before_the_first_response_ends_a_log_has_its_tokens():
    """A log had the phase's name alone for as long as no response had ended: eleven minutes at 20,000 tokens."""
    with Progress(10, enabled=True) as bar:
        bar.set_phase("generating")
        bar.show([4000, 321, 0])
        line = bar.line()
    assert re.fullmatch(
        r"decode, generating 00:\d\d: 0% 0/10 \[00:\d\d, \? left, 4,321 tokens, [\d,]+ tok/s, .*\]", line
    )

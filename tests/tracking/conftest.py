"""One migrated store a session, copied for each test that wants one: migrations take seconds, a copy does not."""

import shutil
import socket

import pytest

from rlvr_dir.tracking.store import TrackingStore


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    TrackingStore.at(folder).client()
    return folder / "mlflow.db"


@pytest.fixture
def store(template, tmp_path):
    """A folder with an empty store."""
    folder = tmp_path / "store"
    folder.mkdir()
    shutil.copy(template, folder)
    return folder


@pytest.fixture
def dead_port():
    """A port that is taken and does not listen: whoever connects is refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]

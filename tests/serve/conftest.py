"""One server for the files that ask for nothing special: tests/conftest.py keeps them on one process."""

import pytest

from tests.serve.server import served


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """A server of the tiny pair, with its playground and else as it is without arguments."""
    with served(tmp_path_factory.mktemp("serve"), "--ui") as running:
        yield running

"""Hold what the tests of graders share."""

import pytest

from rlvr_dir.grading import pool


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    pool.close_workers()

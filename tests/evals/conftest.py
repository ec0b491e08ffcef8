"""An engine on a small random pair."""

import pytest

from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine


@pytest.fixture(scope="session")
def engine(peaked_pair):
    opened = open_engine(peaked_pair, EngineSpec(backend="transformers", dtype="float32", max_model_len=512))
    yield opened
    opened.close()

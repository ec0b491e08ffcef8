"""An engine on a small random pair, stand-in data with the right numbers of rows, and the real data where it is."""

import json

import pytest

from harness.decode import open_engine
from harness.evals.data import SOURCES
from harness.spec import EngineSpec


@pytest.fixture(scope="session")
def engine(peaked_pair):
    opened = open_engine(peaked_pair, EngineSpec(backend="transformers", dtype="float32", max_model_len=512))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A folder with a short made-up benchmark under each name."""
    folder = tmp_path_factory.mktemp("data")
    for name, source in SOURCES.items():
        rows = [{"id": f"{name}-{i}", "problem": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(source.rows)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)

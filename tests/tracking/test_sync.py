"""What MLflow missed is logged later, once."""

import sqlite3

import pytest

from harness.errors import UserError
from harness.tracking import log_result, sync
from tests.tracking.made import GRID, result


@pytest.fixture
def results(tmp_path):
    """A folder of five results and two other JSON files."""
    folder = tmp_path / "results"
    folder.mkdir()
    for i, decoding in enumerate(GRID):
        (folder / f"{i}.json").write_text(result(decoding).to_json())
    (folder / "notes.json").write_text('{"a": 1}')
    (folder / "torn.json").write_text(result().to_json()[:99])
    return folder


def statuses(store):
    with sqlite3.connect(store / "mlflow.db") as db:
        return [status for (status,) in db.execute("select status from runs")]


def test_after_mlflow_was_away_everything_is_logged_once(results, store, dead_port):
    with pytest.warns(UserWarning, match="was not logged"):
        assert log_result(result(GRID[0]), f"http://127.0.0.1:{dead_port}") is None
    run_id = log_result(result(GRID[1]), store, "by-hand")
    report = sync(results, store)
    assert report.logged == ["0.json", "2.json", "3.json", "4.json"]
    assert report.present == ["1.json"]
    assert report.skipped == ["notes.json", "torn.json"]
    assert statuses(store) == ["FINISHED"] * 5
    again = sync(results, store)
    assert (again.logged, len(again.present)) == ([], 5)
    assert "0 logged, 5 there already" in str(again)
    assert len(statuses(store)) == 5
    with sqlite3.connect(store / "mlflow.db") as db:
        ends = dict(db.execute("select run_uuid, end_time from runs"))
    modified = int(1000 * (results / "0.json").stat().st_mtime)
    assert modified in [end for run, end in ends.items() if run != run_id]


def test_what_cannot_be_synced_is_one_sentence(tmp_path, results, dead_port):
    with pytest.raises(UserError, match=r"folder='.*none'"):
        sync(tmp_path / "none", tmp_path)
    with pytest.raises(UserError, match=r"; 0 results were logged before"):
        sync(results, f"http://127.0.0.1:{dead_port}")

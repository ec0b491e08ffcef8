"""Where runs are: any folder's own store, whatever its name; what is none is refused, and no password is repeated."""

import os
import shutil

import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.text import without_passwords
from rlvr_dir.tracking import log_result, result_of_run
from rlvr_dir.tracking.store import TrackingStore, reason, ui_command
from tests.facts import refuses, states, warns_of
from tests.tracking.made import GRID, result


@pytest.mark.parametrize("name", ["a%20b", "a?b", "a?b=c&d#e", "a b#c", "100%"])
def test_a_folder_of_any_name_has_its_own_store(template, tmp_path, name):
    folder = tmp_path / name / "out"
    folder.mkdir(parents=True)
    shutil.copy(template, folder)
    logged = result(GRID[0])
    run = log_result(logged, folder)
    assert run is not None
    assert result_of_run(run, folder).to_json() == logged.to_json()
    assert sorted(os.listdir(folder)) == ["mlartifacts", "mlflow.db", "mlflow.lock"]
    assert os.listdir(tmp_path) == [name]
    place = TrackingStore.at(folder)
    assert TrackingStore.at(place.uri) == place


@pytest.mark.parametrize(
    "named", ["databricks", "databricks-uc", "databricks://profile", "file:./mlruns", "uc:x", "mysql+pymysql://h/d"]
)
def test_what_mlflow_takes_for_an_address_is_no_folder(named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses("tracking", named):
        TrackingStore.at(named)
    assert TrackingStore.at(f"./{named.partition(':')[0]}").database is not None


def test_no_error_repeats_a_password():
    with pytest.raises(UserError) as refused:
        TrackingStore.at("postgresql://me:s3c@ret:x@host/db")
    states(refused.value, "postgresql://me:***@host/db")
    assert without_passwords("see http://host:5000/a@b and http://u@h:1/p") == (
        "see http://host:5000/a@b and http://u@h:1/p"
    )
    assert "pw" not in reason(ValueError("cannot reach http://me:pw@host:1/x"), "store")
    assert ui_command("http://me:pw@host:1") == "rlvr-dir ui --tracking 'http://me:***@host:1'"
    assert ui_command("./my runs") == "rlvr-dir ui --store './my runs'"


def test_a_deleted_experiment_and_a_held_database_are_said_in_our_words(store):
    client = TrackingStore.at(store).client()
    log_result(result(GRID[0]), store)
    client.delete_experiment(client.get_experiment_by_name("rlvr-dir-aime24").experiment_id)
    with warns_of("experiment"):
        assert log_result(result(GRID[1]), store) is None
    assert "another process holds its database" in reason(
        RuntimeError("(sqlite3.OperationalError) database is locked"), "store"
    )

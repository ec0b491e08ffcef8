"""A result in MLflow: one run, readable names, the exact numbers beside it; and evaluation survives without it."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.tracking import (
    log_result,
    resolve_store,
    result_of_run,
    sync,
    tracking_place,
)
from rlvr_dir.tracking.store import VARIABLE, TrackingStore
from tests.commands import run
from tests.facts import refuses
from tests.tracking.made import GRID, result


def run_of(store, run_id):
    return TrackingStore.at(store).client().get_run(run_id)


def test_a_run_for_a_result(store):
    one = result(partial="first 4 of 32 samples")
    run_id = log_result(one, store)
    run = run_of(store, run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "part extrapolate τ-0.3 γ0.05"
    assert run.data.metrics["avg_at_4"] == 33.33
    assert {"mode": "extrapolate", "tau": "-0.3", "base_model": "Qwen/B", "n_samples": "4"}.items() <= (
        run.data.params.items()
    )
    tags = run.data.tags
    assert (tags["kind"], tags["model_pair"], tags["config_hash"]) == ("eval", "B → R", one.config_hash)
    assert (tags["partial"], tags["problems"]) == ("first 4 of 32 samples", "3 of 30 problems")
    [dataset] = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("aime24", one.provenance["data"])
    assert TrackingStore.at(store).client().get_experiment(run.info.experiment_id).name == "rlvr-dir-aime24"


def test_what_a_killed_process_has_left_is_in_no_view_and_the_result_is_logged(store):
    """The tag by which views find runs is set when everything is there."""
    code = (
        "import os\nfrom rlvr_dir.tracking import log\nfrom tests.tracking.made import result\n"
        f"log._fill = lambda *_: os._exit(9)\nlog.log_result(result(), {str(store)!r})"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    client = TrackingStore.at(store).client()
    [half] = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert (half.info.status, half.data.tags.get("kind")) == ("RUNNING", None)
    run = client.get_run(log_result(result(), store))
    assert (run.info.run_id != half.info.run_id, run.info.status, run.data.tags["kind"]) == (True, "FINISHED", "eval")


def test_logged_twice_is_one_run(store):
    one = result()
    assert log_result(one, store) == log_result(one, store)
    with sqlite3.connect(store / "mlflow.db") as db:
        assert db.execute("select count(*) from runs").fetchone() == (1,)
    assert log_result(one, store, "elsewhere") != log_result(one, store)
    assert log_result(result(seed=1), store) != log_result(one, store)


def test_a_run_rebuilds_its_result_and_compares_like_a_file(store, tmp_path):
    from rlvr_dir.results.load_results import read_results

    first, second = result(), result(Decoding(mode="rl"), seed=1)
    run_id = log_result(first, store)
    second.write(tmp_path)
    read = read_results([f"run:{run_id}", str(tmp_path)], run=lambda name: result_of_run(name, store))
    assert [r.config_hash for r in read] == [first.config_hash, second.config_hash]
    assert (read[0].metrics(), read[0].provenance) == (first.metrics(), first.provenance)
    table = json.loads((store / "mlartifacts" / run_id / "artifacts" / "per_problem.json").read_text())
    assert table["columns"][:3] == ["problem", "avg_at_4", "correct"]
    assert table["data"][0][:3] == ["p0", 100.0, 4]
    with refuses("run:nope"):
        result_of_run("nope", store)
    with refuses("run:nope", "mlflow.db"):
        result_of_run("nope", tmp_path)


FOUR = """
import os, sys
import mlflow.tracking  # once, before the fork: the four then start within the same moment
from rlvr_dir.tracking import log_result
from tests.tracking.made import GRID, result

children = []
for i in range(4):
    if not (child := os.fork()):
        runs = [log_result(result(GRID[1], seed=4 * i + j), sys.argv[1]) for j in range(4)]
        print(*runs, flush=True)
        os._exit(None in runs)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_four_processes_on_a_fresh_store_lose_nothing(tmp_path):
    folder = tmp_path / "store"
    done = subprocess.run([sys.executable, "-c", FOUR, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    runs = done.stdout.split()
    with sqlite3.connect(folder / "mlflow.db") as db:
        rows = dict(db.execute("select run_uuid, status from runs"))
        metrics = db.execute("select count(*) from metrics where key = 'avg_at_4'").fetchone()
        experiments = [name for (name,) in db.execute("select name from experiments")]
    assert rows == dict.fromkeys(runs, "FINISHED")
    assert len(runs) == 16
    assert metrics == (16,)
    assert experiments.count("rlvr-dir-aime24") == 1
    assert len(list((folder / "mlartifacts").glob("*/artifacts/result.json"))) == 16


@pytest.mark.parametrize("move", ["rename", "copytree"])
def test_a_store_that_was_moved_or_copied_keeps_its_artifacts_beside_it(tmp_path, move):
    """New runs wrote into the old folder, made again, and into the one that a copy was made of."""
    old, new = tmp_path / "old", tmp_path / "new"
    first = log_result(result(), old)
    if move == "rename":
        old.rename(new)
    else:
        shutil.copytree(old, new)
        shutil.rmtree(new / "mlartifacts" / log_result(result(seed=2), old), ignore_errors=True)  # a later run of old's
    second = log_result(result(seed=1), new)
    assert {path.name for path in (new / "mlartifacts").iterdir()} == {first, second}
    assert result_of_run(first, new).config_hash == result().config_hash
    assert result_of_run(second, new).sampling.seed == 1
    if move == "rename":
        assert not old.exists()
    else:
        assert not (old / "mlartifacts" / second).exists()
        assert result_of_run(first, old).config_hash == result().config_hash


def test_a_place_for_artifacts_that_somebody_chose_stays(tmp_path):
    chosen = tmp_path / "elsewhere" / "mlartifacts"
    chosen.mkdir(parents=True)
    client = TrackingStore.at(tmp_path / "store").client()
    client.create_experiment("rlvr-dir-aime24", artifact_location=chosen.as_uri())
    run_id = log_result(result(), tmp_path / "store")
    assert [path.name for path in chosen.iterdir()] == [run_id]


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        ("ffffffffffff", r"it was written by a newer MLflow than \S+; install that one"),
        ("451aebb31d03", r"it is of an older MLflow; keep a copy, then run: mlflow db upgrade sqlite:///"),
    ],
)
def test_a_store_of_another_mlflow_is_said_in_our_words(tmp_path, revision, sentence):
    log_result(result(), tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as db, db:
        db.execute("update alembic_version set version_num = ?", (revision,))
    code = (  # in a process of its own: MLflow looks once at a file
        "from rlvr_dir.tracking import log_result\nfrom tests.tracking.made import result\n"
        f"assert log_result(result(seed=1), {str(tmp_path)!r}) is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(sentence, done.stderr), done.stderr


@pytest.mark.parametrize("place", ["file", "."])
def test_a_file_in_the_way_or_a_damaged_store_does_no_harm(tmp_path, place):
    for name in ("file", "mlflow.db"):
        (tmp_path / name).write_text("this is no database" * 99)
    with pytest.warns(UserWarning, match="was not logged to MLflow"):
        assert log_result(result(), tmp_path / place) is None


def test_a_server_that_is_down_is_given_up(dead_port):
    with pytest.warns(UserWarning, match="`rlvr-dir track sync` logs it later"):
        assert log_result(result(), f"http://127.0.0.1:{dead_port}") is None


def test_where_runs_go(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert resolve_store(tmp_path) == tmp_path
    monkeypatch.setenv(VARIABLE, "http://tracking:5000/")
    assert resolve_store(tmp_path) == "http://tracking:5000/"
    assert resolve_store(tmp_path, f"sqlite:///{tmp_path}/a.db") == f"sqlite:///{tmp_path}/a.db"
    assert TrackingStore.at(f"sqlite:///{tmp_path}/a.db").database == tmp_path / "a.db"
    assert TrackingStore.at(tmp_path).uri == f"sqlite:///{tmp_path}/mlflow.db"
    with refuses("tracking", "ftp://x"):
        resolve_store(tmp_path, "ftp://x")


def test_off_logs_nothing_and_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert tracking_place(tmp_path) == tmp_path
    assert tracking_place(tmp_path, "off") is None
    assert tracking_place(tmp_path, track=False) is None
    with refuses("tracking", "off"):
        resolve_store(tmp_path, "off")  # nothing is there to be shown
    monkeypatch.setenv(VARIABLE, "off")
    assert tracking_place(tmp_path) is None
    assert tracking_place(tmp_path, str(tmp_path)) == str(tmp_path)
    assert resolve_store(tmp_path) == tmp_path
    monkeypatch.chdir(tmp_path)
    asked = ["--tasks", "tiny_medium", "-d", "rl", "--backend", "transformers", "--limit", "1", "--samples", "1"]
    run("eval", *asked, "--max-tokens", "8", "--tracking", "off", "--out", "o")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o"]
    assert not list(tmp_path.rglob("mlflow.db"))


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
    assert len(statuses(store)) == 5
    with sqlite3.connect(store / "mlflow.db") as db:
        ends = dict(db.execute("select run_uuid, end_time from runs"))
    modified = int(1000 * (results / "0.json").stat().st_mtime)
    assert modified in [end for run, end in ends.items() if run != run_id]


def test_what_cannot_be_synced_is_one_sentence(tmp_path, results, dead_port):
    with refuses("folder", "none"):
        sync(tmp_path / "none", tmp_path)
    with refuses("tracking", "0"):
        sync(results, f"http://127.0.0.1:{dead_port}")

"""A result in MLflow: one run, readable names, the exact numbers beside it; and evaluation survives without it."""

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from harness.evals import EvalResult
from harness.spec import Decoding, Sampling
from harness.tracking import log_result, metrics_of


def result(samples=4, problems=3):
    zero = np.zeros((problems, samples), int)
    correct = zero.copy()
    correct[0] = 1
    return EvalResult(
        task="aime24",
        decoding=Decoding(mode="extrapolate", tau=-0.3, gamma=0.05),
        sampling=Sampling(samples=samples),
        problem_ids=tuple(f"p{i}" for i in range(problems)),
        correct=correct,
        n_tokens=zero + 9,
        n_replaced=zero + 1,
        n_changed=zero,
        truncated=zero,
        no_box=zero,
        ungraded=zero,
        seconds=2.0,
        provenance={"engine": {"pair": {"base": "B", "rl": "R"}}, "data": "d1", "grader": "plain"},
    )


def test_names_and_rounding():
    metrics = metrics_of(result())
    assert metrics["avg_at_4"] == 33.33
    assert metrics["replacement_ratio"] == 11.11
    assert metrics["mean_tokens"] == 9.0
    assert metrics["tokens_per_second"] == 54.0
    assert "avg_at_1_se_sampling" not in metrics_of(result(samples=1))
    assert not [name for name in metrics if "@" in name]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two processes log into a store that does not exist yet."""
    folder = tmp_path_factory.mktemp("mlflow") / "store"
    code = (
        "import sys; from harness.tracking import log_result; from tests.tracking.test_log import result\n"
        f"run = log_result(result(), {str(folder)!r}, 'rlvr-dir-aime24'); print(run); sys.exit(run is None)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error::UserWarning:__main__", "-c", code], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    runs = [process.communicate(timeout=180)[0].split()[-1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return folder, runs


def test_a_run_for_each_result(store):
    folder, runs = store
    with sqlite3.connect(folder / "mlflow.db") as db:
        rows = dict(db.execute("select run_uuid, status from runs"))
        params = dict(db.execute("select key, value from params where run_uuid = ?", runs[:1]))
        metrics = dict(db.execute("select key, value from metrics where run_uuid = ?", runs[:1]))
        experiments = [name for (name,) in db.execute("select name from experiments")]
    assert rows == dict.fromkeys(runs, "FINISHED")
    assert params["mode"] == "extrapolate"
    assert params["tau"] == "-0.3"
    assert (params["base_model"], params["rl_model"], params["n_samples"]) == ("B", "R", "4")
    assert metrics["avg_at_4"] == 33.33
    assert experiments.count("rlvr-dir-aime24") == 1


def test_the_artifact_rebuilds_the_result(store):
    folder, runs = store
    text = (folder / "mlartifacts" / runs[0] / "artifacts" / "result.json").read_text()
    assert EvalResult.from_json(text).metrics() == result().metrics()
    json.loads(text)


def test_no_mlflow_no_harm(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="was not logged to MLflow"):
        assert log_result(result(), tmp_path / "file", "x") is None

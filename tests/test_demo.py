"""`make demo` in small: the table, the files, the MLflow runs, and a word where vLLM is missing."""

import pytest
from mlflow.tracking import MlflowClient

import harness.decode.single
import harness.demo
from harness.demo import DECODINGS, TASKS, run_demo
from harness.errors import UserError


def test_without_vllm_it_says_so_and_runs_on_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(harness.demo, "find_spec", lambda name: None)
    monkeypatch.setattr(harness.decode.single, "find_spec", lambda name: None)
    said = []
    results = run_demo(tmp_path, problems=4, samples=4, say=said.append)
    assert "vLLM is not installed" in said[0]
    assert [(r.decoding, r.task) for r in results] == [(d, t) for d in DECODINGS for t in TASKS]
    table = (tmp_path / "demo.md").read_text()
    lines = [" ".join(line.split()) for line in table.splitlines()]
    for result in results:
        row = f"| {result.task} | {result.decoding.label()} | {100 * result.avg:.1f} ± "
        assert sum(line.startswith(row) for line in lines) == 1
        assert (tmp_path / f"{result.task}-{result.decoding.mode}-{result.config_hash}.json").is_file()
    again = run_demo(tmp_path, problems=4, samples=4, say=said.append)
    assert [result.metrics() for result in results] == [result.metrics() for result in again]
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("rlvr-dir-demo")
    logged = {(r.data.params["task"], r.data.params["mode"]) for r in client.search_runs([experiment.experiment_id])}
    assert logged == {(result.task, result.decoding.mode) for result in results}


def test_an_unknown_engine_is_refused(tmp_path):
    with pytest.raises(UserError, match="backend='sglang'"):
        run_demo(tmp_path, backend="sglang", problems=2, samples=2, say=lambda text: None)

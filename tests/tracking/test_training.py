"""A training in MLflow: a run a seed, told step by step, gone on with after a kill, and never in the training's way."""

import json
import warnings

import pytest

from rlvr_dir.tracking import Training
from rlvr_dir.tracking.store import TrackingStore
from rlvr_dir.tracking.training import EXPERIMENT, metrics_of
from tests.facts import warns_of

STEP = {
    "accuracy": 0.25, "reward": 0.2, "length": 30.0, "entropy": 0.4, "clip_fraction": 0.01, "weight": None,
    "groups": {"rounds": 2, "kept": 16, "dropped": 5, "empty": 0}, "gradient_share": [0.2, 0.2, 0.1, *[0.0] * 6, 0.5],
}  # fmt: skip
SCORES = {"t": {"samples": 8, "avg": 0.5, "pass": 0.75, "tokens": 30.04}}
FACTS = {"scores": SCORES, "seconds": 3.0}
ASKED = {"base": "tiny", "dapo": {"method": "low_prob", "alpha": 0.2}, "seeds": [0, 1]}


def steps(count):
    return [{"step": number, **STEP} for number in range(1, count + 1)]


def runs(store):
    client = TrackingStore.at(store).client()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return client, client.search_runs([experiment.experiment_id])


def test_a_line_of_a_log_is_metrics_and_scores_are_percent():
    found = metrics_of(steps(1)[0])
    assert (found["accuracy"], found["groups/dropped"]) == (0.25, 5.0)
    assert found["gradient_share_below_0.3"] == pytest.approx(0.5)
    assert "weight" not in found
    nothing = metrics_of({"step": 3, "gradient_share": [0.0] * 10, "token_share": [0.0] * 10})
    assert nothing == {}  # a step that learned from nothing
    assert metrics_of({"step": 2, "validation": SCORES}) == {
        "validation/t/avg_at_8": 50.0,
        "validation/t/pass_at_4": 75.0,
        "validation/t/mean_tokens": 30.0,
    }


def test_a_seed_is_a_run_with_every_step_its_scores_and_its_files(store, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n")
    told = Training(store, "low_prob α0.2", ASKED)
    records = [*steps(2), {"step": 2, "validation": SCORES}]
    for record in records:
        told.record(1, record)
    client, [run] = runs(store)
    assert (run.info.status, run.info.run_name) == ("RUNNING", "low_prob α0.2 seed 1")
    told.done(1, FACTS, records, [log])
    told.interrupted()
    client, [run] = runs(store)
    assert run.info.status == "FINISHED"
    assert run.data.params["dapo.alpha"] == "0.2"
    assert (run.data.tags["kind"], run.data.tags["seed"]) == ("train", "1")
    assert run.data.metrics["t/avg_at_8"] == 50.0
    for name in ("accuracy", "validation/t/avg_at_8"):
        history = [m.step for m in client.get_metric_history(run.info.run_id, name)]
        assert history == ([1, 2] if name == "accuracy" else [2]), "nothing twice"
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["log.jsonl"]


def test_a_killed_training_goes_on_in_its_run_and_a_finished_one_is_left_alone(store):
    killed = Training(store, "DAPO", ASKED)
    for record in steps(2):
        killed.record(0, record)
    again = Training(store, "DAPO", {**ASKED, "seeds": [0]})  # other seeds, the same training
    for record in steps(3)[1:]:  # from the checkpoint of step 1 on
        again.record(0, record)
    again.done(0, FACTS, steps(3))
    Training(store, "DAPO", ASKED).done(0, FACTS, steps(3))
    client, [run] = runs(store)
    assert run.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(run.info.run_id, "length")] == [1, 2, 3]


def test_without_mlflow_there_is_one_warning_and_the_next_run_logs_it(store, tmp_path):
    nowhere = tmp_path / "a file"
    nowhere.write_text("")
    told = Training(nowhere, "DAPO", ASKED)
    with warns_of("command"):
        told.record(0, steps(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told.record(0, steps(2)[1])  # said once
        Training(None, "DAPO", ASKED).done(0, FACTS, steps(2))
    Training(store, "DAPO", ASKED).done(0, json.loads(json.dumps(FACTS)), steps(2))
    assert len(runs(store)[1]) == 1

"""Sweeps of trainings on a Ray cluster of several nodes: a node is lost in mid-training, and no number changes."""

import threading
import time

import psutil
import pytest

from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import begun, run_sweep
from rlvr_dir.sweep.training import TrainingObjective
from tests.facts import refuses
from tests.ray_nodes import started_nodes
from tests.sweep.made import sweep

pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")

pytestmark = pytest.mark.whole(reason="a Ray cluster of three nodes, and six trainings")

PATIENCE = 120.0
ONE_SEED = {"kind": "train", "seeds": [0]}


@pytest.fixture(scope="module")
def nodes():
    with started_nodes() as nodes:
        yield nodes


def spec_on(address, **workers):
    return sweep(**ONE_SEED, workers={"count": 3, "gpus_each": 1, "ray_address": address, **workers})


def trainings_on(nodes, node):
    """The processes that train on a node."""
    try:
        found = psutil.Process(nodes.raylet(node)).children(recursive=True)
        return [each for each in found if "rlvr_dir.sweep.train_one" in each.cmdline()]
    except psutil.Error:
        return []


def metrics_of(out, spec):
    """The metrics of each training, by its label."""
    trials = begun(SweepFolder.of(spec, out), spec).trials
    return {trial.label: trial.metrics for trial in trials.values()}


def test_more_gpus_than_the_cluster_has_are_refused(nodes, tmp_path):
    spec = spec_on(nodes.address, gpus_each=2)
    objective = TrainingObjective(spec, Places.under(tmp_path, track=False), print)
    with refuses("workers.gpus_each", 2):
        objective.run(objective.entries([]), lambda *_: None, lambda *_: None)


def test_a_lost_node_loses_no_training(nodes, host, tmp_path):
    assert host.run(tmp_path / "here", **ONE_SEED) == 0
    spec, places, lines = spec_on(nodes.address), Places.under(tmp_path / "there", track=False), []
    run = threading.Thread(target=run_sweep, args=(spec, places), kwargs={"say": lines.append, "progress": False})
    run.start()
    until, seen = time.monotonic() + PATIENCE, []
    while run.is_alive() and time.monotonic() < until and not any(places.trainings.glob("*/seed-0/log.jsonl")):
        seen = trainings_on(nodes, nodes.one) or seen
        time.sleep(0.05)
    assert len(trainings_on(nodes, nodes.two)) == 2, lines
    assert seen, "none trains on the node that is lost"
    assert all(process.is_running() for process in seen)
    nodes.lose(nodes.one)
    run.join()
    assert psutil.wait_procs(seen, timeout=PATIENCE)[1] == [], "a training outlives its node"
    found = metrics_of(tmp_path / "there", spec)
    assert len(found) == 3, lines
    assert found == metrics_of(tmp_path / "here", sweep(**ONE_SEED))

"""Sweeps of trainings: what a file may say, and that a killed sweep ends with the very values of an undisturbed one."""

import contextlib
import json
import threading
import time

import psutil
import pytest
import yaml

from rlvr_dir.errors import UserError
from rlvr_dir.records import RecordStore
from rlvr_dir.sweep import sweeps_dir
from rlvr_dir.sweep.confirm import confirm
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.run import begun, open_sweep, run_sweep
from rlvr_dir.sweep.specs import load
from rlvr_dir.sweep.training import TrainingObjective, folder_of, metrics
from tests.facts import refuses
from tests.ray_nodes import started_nodes
from tests.sweep.made import TRAINING, sweep

TRAIN = {"kind": "train"}
PATIENCE = 120.0  # seconds


def train(**parts):
    """The small file with parts of its `train` changed."""
    return {"train": {**TRAINING["train"], **parts}}


@pytest.mark.parametrize(
    ("changes", "argument", "suggested"),
    [
        ({"kind": "trian"}, "kind", "train"),
        ({"parameters": {"train.alhpa": {"values": [1]}}}, "parameters", "train.alpha"),
        ({"parameters": {"decode.tau": {"values": [-1]}}}, "parameters", ""),
        ({"parameters": {"train.alpha": {"values": [20]}}}, None, ""),
        ({"parameters": {"train.alpha": {"ratio": [0.1]}}}, "parameters.train.alpha", ""),
        ({"parameters": {"train.prompts": {"min": 4, "max": 8}}}, "parameters.train.prompts", ""),
        (
            {"parameters": {"train.prompts": {"values": [16, 5]}, "train.samples": {"values": [3]}}, **train(dapo={})},
            None, "",
        ),
        ({"parameters": {"train.method": {"values": ["low_porb"]}}, **train(dapo={})}, None, "low_prob"),
        ({"parameters": {"train.method": {"values": ["ppl"]}}}, "train.method", ""),
        ({"parameters": {"train.alpha": {"min": 0.1, "max": 1}}}, "parameters.train.alpha", ""),
        ({"parameters": {"train.pi_source": {"values": ["old", "now"]}}}, None, ""),
        ({"seeds": [0, 0]}, None, ""),
        (train(seeds=[1]), "train.seeds", ""),
        (train(dapo=7), None, ""),
        (train(dapo={"metod": 1}), None, "method"),
        (train(dapo={"alpha": 0.1}), None, ""),
        (train(validation={"tasks": []}), "train.validation.tasks", ""),
        ({"metric": "avg_at_32"}, "metric", ""),
        ({"tasks": ["tiny_easy"]}, None, ""),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_mistake_names_its_argument(changes, argument, suggested):
    with pytest.raises(UserError) as caught:
        sweep(**{**TRAIN, **changes})
    assert argument in (None, caught.value.argument)
    assert suggested in str(caught.value)  # the spelling of a key, and no sentence


def test_a_point_is_what_rlvr_dir_train_would_train_and_the_reference_is_plain():
    spec = sweep(**TRAIN, **train(dapo={**TRAINING["train"]["dapo"], "clip_high": 0.3}))
    one, other = (spec.training(point).dapo for point in listed_points(spec))
    assert (one.method, one.alpha, other.alpha, one.clip_high, one.steps) == ("low_prob", 0.2, 2.0, 0.3, 3)
    plain = spec.plain_dapo
    assert (plain.dapo.method, plain.dapo.alpha, plain.dapo.clip_high, plain.dapo.steps) == ("none", 0, 0.3, 3)
    assert plain.seeds == (0, 1)


@pytest.mark.parametrize("name", ["alpha", "reweight", "rollout_top_p"])
def test_shipped_sweeps_of_trainings_have_plain_dapo_and_a_tiny_twin(name, tmp_path):
    paper, tiny = (load(yaml.safe_load((sweeps_dir() / f"{each}.yaml").read_text())) for each in (name, f"tiny_{name}"))
    assert paper.parameters == tiny.parameters
    assert (paper.plain_dapo.backend, tiny.plain_dapo.backend) == ("verl", "trl")
    for spec, seeds in ((paper, "1 seed"), (tiny, "5 seeds")):
        assert load(yaml.safe_load(yaml.safe_dump(spec.plain()))) == spec
        told = open_sweep(spec, Places.under(tmp_path, track=False)).objective.estimate().text()
        assert f"4 trainings × {seeds}\n" in told


def test_a_folder_is_a_function_of_what_was_asked_and_not_of_its_seeds(tmp_path):
    spec = sweep(**TRAIN)
    one, other = (spec.training(point) for point in listed_points(spec))
    assert folder_of(one, tmp_path) == folder_of(one.replace(seeds=(5,)), tmp_path) != folder_of(other, tmp_path)
    assert folder_of(one, tmp_path).name.startswith("low_prob-0.2-")


TRAINED = pytest.mark.whole(reason="six trainings, of which half a dozen tests ask")


@pytest.fixture(scope="module")
def whole(host, tmp_path_factory):
    out = tmp_path_factory.mktemp("trainings")
    assert host.run(out, **TRAIN, track=True) == 0
    return out


def values(out, **changes):
    """Each point's metrics and each of its seeds', by point."""
    spec = sweep(**TRAIN, **changes)
    study = begun(SweepFolder.of(spec, out), spec)
    assert len(study.trials) == 3, "each point once"
    assert not study.todo()
    return {
        str(entry.point): (entry.metrics, {str(one.seed): metrics(spec, [one]) for one in entry.results})
        for entry, entry in study.trials.items()
    }


@TRAINED
def test_a_trial_is_the_mean_over_its_seeds_and_each_is_kept(whole):
    for means, seeds in values(whole).values():
        assert list(seeds) == ["0", "1"]
        for name, mean in means.items():
            assert mean == pytest.approx((seeds["0"][name] + seeds["1"][name]) / 2)
    spec = sweep(**TRAIN)
    training = folder_of(spec.training(listed_points(spec)[0]), whole / "trainings")
    [_, of_seed] = values(whole)[str(listed_points(spec)[0])]
    for seed in ("0", "1"):
        facts = json.loads((training / f"seed-{seed}/done.json").read_text())
        assert facts["scores"]["tiny_easy"]["avg"] == of_seed[seed]["avg_at_2"]


@TRAINED
def test_the_summary_pairs_seeds_with_plain_dapo(whole):
    made = begun(SweepFolder.of(sweep(**TRAIN), whole), sweep(**TRAIN)).summary()
    assert [entry.label for entry in made.entries] == ["DAPO", "low_prob α0.2", "low_prob α2"]
    plain, one, _ = (entry.trained.runs["tiny_easy"].values for entry in made.entries)
    assert [row.result.label for row in made.comparisons] == ["low_prob α0.2", "low_prob α2"]
    assert made.comparisons[0].difference.mean == pytest.approx((one - plain).mean())
    bases = RecordStore(whole / "trainings" / "bases")
    [(_, task)] = bases.names()  # the base is validated once
    assert task == "tiny_easy"


@TRAINED
def test_the_sweep_and_each_seed_are_runs(whole):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{whole / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("rlvr-dir-trained").experiment_id
    runs = client.search_runs([experiment])
    [parent] = [run for run in runs if run.data.tags["kind"] == "sweep"]
    mine = [run for run in runs if run.data.tags["kind"] == "train"]
    assert sorted((r.data.tags["label"], r.data.tags["seed"]) for r in mine) == [
        (label, seed) for label in ("DAPO", "low_prob α0.2", "low_prob α2") for seed in "01"
    ]
    assert {run.data.tags["mlflow.parentRunId"] for run in mine} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert [m.step for m in client.get_metric_history(mine[0].info.run_id, "accuracy")] == [1, 2, 3]


@TRAINED
def test_a_sweep_whose_complete_points_read_other_files_is_not_gone_on_with(whole):
    """One point is made to look as if it had been trained from other weights: no other would be paired with it."""
    [file] = whole.glob("trainings/low_prob-0.2-*/inputs.json")
    before = json.loads(file.read_text())
    assert list(before) == ["base", "validation.tasks tiny_easy"]
    file.write_text(json.dumps({**before, "base": {**before["base"], "digest": "weights:other"}}))
    with pytest.raises(UserError, match=r"base: .*weights:\w+ .*weights:other"):
        run_sweep(sweep(**TRAIN), Places.under(whole, track=False), say=print)
    file.write_text(json.dumps(before))
    assert run_sweep(sweep(**TRAIN), Places.under(whole, track=False), say=print).entries


@TRAINED
def test_confirm_trains_the_winner_and_plain_dapo_with_new_seeds(whole):
    spec = sweep(**TRAIN)
    folder, places = SweepFolder.of(spec, whole), Places.under(whole, track=False)
    opened = open_sweep(spec, places, lambda text: None)
    for asked, argument in ((([1],), "seeds"), (([2], ["tiny_hard"]), "tasks")):
        with pytest.raises(UserError) as caught:
            confirm(opened, *asked)
        assert caught.value.argument == argument
    confirm(opened, [2, 3])
    assert json.loads((folder.path / "confirm.json").read_text())[0]["before"] is not None
    assert begun(folder, spec).summary().reference.results[-1].seed == 1, "the sweep keeps its own seeds"


@TRAINED
def test_a_lost_node_of_a_ray_cluster_loses_no_training_and_changes_no_number(whole, tmp_path):
    """Three trainings on two nodes with GPUs in name; one node is lost while it trains, the other finishes its work."""
    pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")
    with started_nodes() as nodes:
        workers = {"count": 3, "gpus_each": 1, "ray_address": nodes.address}
        spec, places, lines = sweep(**TRAIN, seeds=[0], workers=workers), Places.under(tmp_path, track=False), []
        greedy = TrainingObjective(sweep(**TRAIN, workers={**workers, "gpus_each": 2}), places, print)
        with refuses("workers.gpus_each", 2):
            greedy.run(greedy.entries([]), lambda *_: None, lambda *_: None)
        run = threading.Thread(target=run_sweep, args=(spec, places), kwargs={"say": lines.append, "progress": False})
        run.start()
        until, lost = time.monotonic() + PATIENCE, []
        while run.is_alive() and time.monotonic() < until and not any(places.trainings.glob("*/seed-0/log.jsonl")):
            lost = trainings_on(nodes, nodes.one) or lost
            time.sleep(0.05)
        assert lost, lines
        assert all(process.is_running() for process in lost)
        nodes.lose(nodes.one)
        run.join()
        assert psutil.wait_procs(lost, timeout=PATIENCE)[1] == [], "a training outlives its node"
    found = begun(SweepFolder.of(spec, tmp_path), spec).trials
    expected = {point: seeds["0"] for point, (_, seeds) in values(whole).items()}
    assert {str(entry.point): trial.metrics for entry, trial in found.items()} == expected, lines


def trainings_on(nodes, node):
    """The processes that train on a node."""
    found = []
    for process in psutil.Process(nodes.raylet(node)).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [process] if "rlvr_dir.sweep.train_one" in process.cmdline() else []
    return found

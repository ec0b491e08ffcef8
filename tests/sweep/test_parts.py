"""The parts of a sweep that need no engine: what is left to do, which GPUs, what Optuna shows, the command line."""

from types import SimpleNamespace

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from harness.cli.sweep import read
from harness.errors import UserError
from harness.sweep.base import Places, open_sweep
from harness.sweep.decoding import metrics
from harness.sweep.points import listed_points
from harness.sweep.run import gpus, status
from harness.sweep.study import Study
from harness.sweep.track import SweepRun
from tests.sweep.made import sweep
from tests.tracking.made import result


def test_what_failed_is_said_and_what_was_done_since_is_no_failure(tmp_path):
    spec = sweep()
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    points = listed_points(spec)
    first, vetoes = begun.todo()[: -len(points)], {point["decode.tau"] for point in points}
    assert [one["reference"]["mode"] for one in first] == ["base", "rl", *["veto"] * len(vetoes)]
    assert begun.todo()[len(first) :] == points, "after the references"
    begun.fail(points[2], "RuntimeError: no")
    told = status(begun.folder, spec)
    assert "points; 1 failed; references: 0 complete" in told
    assert "failed: trial 2: RuntimeError: no" in told
    for point in points:
        begun.complete(point, [], [], {"avg_at_2": 0.5})
    assert "points; 4 complete; references: 0 complete" in status(begun.folder, spec)
    assert "failed" not in status(begun.folder, spec)
    assert begun.todo() == first


def test_every_worker_has_gpus_of_its_own(monkeypatch):
    spec = sweep(workers={"count": 2, "gpus_each": 2})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpus(spec, i) for i in (0, 1)] == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert gpus(spec, 1) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES names 3"):
        gpus(spec, 1)
    assert gpus(sweep(), 0) == {}


def test_a_point_that_fails_too_often_is_given_up(tmp_path):
    spec = sweep(retries=1)
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    point = listed_points(spec)[0]
    for _ in range(2):
        assert point in begun.todo()
        begun.fail(point, "RuntimeError: no")
    assert point not in begun.todo()
    again = open_sweep(spec, Places.under(tmp_path, track=False))
    assert point in again.todo(), "the command again is another chance"


def test_a_search_that_has_proposed_all_there_is_comes_to_an_end(tmp_path):
    few = {"method": "tpe", "parameters": {"decode.tau": {"values": [-0.3, -0.1]}}}
    begun = open_sweep(sweep(run_cap=10, **few), Places.under(tmp_path, track=False))
    begun.folder.make()
    begun.study = Study(begun.spec, begun.folder)
    found = []
    while points := begun.study.propose(1):
        found += [point["decode.tau"] for point in points]
        begun.complete(points[0], [], [], {"avg_at_2": 0.5})
    assert sorted(found) == [-0.3, -0.1]
    assert {trial.params["decode.tau"] for trial in study_of(begun).trials} == {-0.3, -0.1}


def test_what_a_killed_search_was_at_is_proposed_again(tmp_path):
    spec = sweep(method="tpe", run_cap=3, parameters={"decode.tau": {"min": -2.0, "max": -0.01}})
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    lost = Study(spec, begun.folder).propose(2)
    begun.study = Study(spec, begun.folder)
    begun.study.resume()
    assert begun.study.propose(2) == lost
    assert len(begun.study.propose(9)) == 1


def test_the_best_point_is_the_first_of_the_best_by_the_metrics_goal(tmp_path):
    for goal, number in (("maximize", 1), ("minimize", 0)):
        spec = sweep(metric={"name": "avg_at_2", "goal": goal})
        begun = open_sweep(spec, Places.under(tmp_path / goal, track=False))
        begun.folder.make()
        assert begun.trials.best() is None
        for point, value in zip(listed_points(spec), (0.25, 0.75, 0.75, 0.25), strict=True):
            begun.complete(point, [], [], {"avg_at_2": value})
        assert begun.trials.best().number == number


def test_the_error_of_a_mean_over_benchmarks_is_that_of_the_mean():
    results = [result(samples=2, problems=problems, task=f"task {problems}") for problems in (3, 8)]
    found = metrics(sweep(), results)
    assert found["avg_at_2"] == pytest.approx((1 / 3 + 1 / 8) / 2)
    assert found["avg_at_2_se"] == pytest.approx(sum(each.standard_error**2 for each in results) ** 0.5 / 2)
    assert "avg_at_2_se" in metrics(sweep(), results[:1])


def test_the_best_point_of_each_pair_is_logged_under_its_name(tmp_path):
    """That of the first one alone stood there as the sweep's."""
    logged = {}
    client = SimpleNamespace(
        log_batch=lambda run, metrics=(), params=(): logged.update({each.key: each.value for each in metrics}),
        get_run=lambda run: SimpleNamespace(data=SimpleNamespace(params={})),
        set_tag=lambda run, name, value: logged.update({name: value}),
        log_artifact=lambda run, file: None,
        set_terminated=lambda run, status: None,
    )
    (tmp_path / "summary.md").touch()
    folder = SimpleNamespace(path=tmp_path, spec=tmp_path / "sweep.yaml")
    run = SweepRun(SimpleNamespace(places=SimpleNamespace(tracking=None), spec=sweep(), folder=folder, params=dict))
    run.id, run._client = "run", client
    best = [
        SimpleNamespace(pair=f"tiny@{step}", label=f"τ{step}", metrics={"avg_at_2": step / 8, "mean_tokens": 9})
        for step in (4, 8)
    ]
    spec = sweep(pair={"rl": ["tiny@4", "tiny@8"]})
    run._close(SimpleNamespace(best=best, points=best, spec=spec))
    assert (logged["best"], logged["best/tiny_4/avg_at_2"], logged["best/tiny_8/avg_at_2"]) == (
        "tiny@4: τ4; tiny@8: τ8",
        50,
        100,
    )
    run._close(SimpleNamespace(best=best[:1], points=best, spec=sweep()))
    assert (logged["best"], logged["best/avg_at_2"]) == ("τ4", 50)


def study_of(begun):
    """What Optuna's own dashboard would show."""
    journal = begun.folder.journal
    return optuna.load_study(study_name="small", storage=JournalStorage(JournalFileBackend(str(journal))))


def test_a_file_or_a_shipped_name_with_changes():
    spec = read("tiny_tau_gamma", ["sampling.samples=4", "metric=avg_at_4", "parameters.decode.tau.values=[-0.3]"])
    assert (spec.sampling.samples, spec.parameters["decode.tau"].values) == (4, (-0.3,))
    for name, changes, words in (
        ("nope", [], "is no file, and none that ships: .*tiny_criteria"),
        ("tiny_tau_gamma", ["sampling.sample=4"], "did you mean 'samples'"),
        ("tiny_tau_gamma", ["sampling"], "accepted: KEY=VALUE"),
    ):
        with pytest.raises(UserError, match=words):
            read(name, changes)

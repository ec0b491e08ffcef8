"""The parts of a sweep that need no engine: what is left to do, which GPUs, what Optuna shows, the command line."""

from types import SimpleNamespace

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rlvr_dir.cli.sweep import read
from rlvr_dir.errors import UserError
from rlvr_dir.sweep.decoding import metrics
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Outcome, Places
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.run import gpus, status, work
from rlvr_dir.sweep.study import Study
from rlvr_dir.sweep.sweep import open_sweep
from rlvr_dir.sweep.track import SweepRun
from tests.sweep.made import sweep
from tests.tracking.made import result


def test_what_failed_is_said_and_what_was_done_since_is_no_failure(tmp_path):
    spec = sweep()
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    points = listed_points(spec)
    first, taus = begun.todo()[: -len(points)], {point["decode.tau"] for point in points}
    assert [one["reference"]["mode"] for one in first] == ["base", "rl", *["veto", "reject"] * len(taus)]
    assert begun.todo()[len(first) :] == points, "after the references"
    begun.fail(points[2], "RuntimeError: no")
    told = status(begun.folder, spec)
    assert "points; 1 failed; references: 0 complete" in told
    assert "failed: trial 2: RuntimeError: no" in told
    for point in points:
        begun.complete(Outcome(point, [], {"avg_at_2": 0.5}))
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


def test_the_torn_end_of_a_journal_is_cut_off_and_its_point_done_again(tmp_path):
    """As a full disk or a power cut leaves it: Optuna would go on in the same line, and read no later one."""
    spec = sweep()
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    points = listed_points(spec)
    for point in points[:2]:
        begun.complete(Outcome(point, [], {"avg_at_2": 0.5}))
    journal = begun.folder.journal
    journal.write_bytes(journal.read_bytes()[:-20])
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    assert [trial.point for trial in begun.study] == points[:1]
    begun.complete(Outcome(points[2], [], {"avg_at_2": 0.75}))
    again = Study(spec, begun.folder)
    assert [trial.point for trial in again] == [points[0], points[2]]
    assert points[1] in begun.todo()


def test_a_folder_that_was_renamed_is_refused_by_its_name(typed, tmp_path):
    """It would be looked for under its old name, and found to have no trial yet."""
    folder = SweepFolder.of(sweep(), tmp_path)
    folder.make()
    folder.create_or_verify(sweep())
    renamed = folder.path.rename(tmp_path / "sweeps" / "copy")
    for command in ("status", "resume"):
        done = typed("sweep", command, str(renamed))
        assert done.returncode == 2
        assert f"is the folder of sweep 'small'; accepted: '{folder.path}'" in " ".join(done.stderr.split())


def test_who_only_looks_writes_nothing(tmp_path):
    begun = open_sweep(sweep(), Places.under(tmp_path, track=False))
    assert begun.study.states() == {"complete": 0, "failed": 0}
    assert "no trial yet" in status(begun.folder, begun.spec)
    assert not list(tmp_path.iterdir())


def test_the_last_trial_of_a_point_counts(tmp_path):
    spec = sweep()
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    point = listed_points(spec)[1]
    for metric in (0.5, 0.75):
        begun.complete(Outcome(point, [], {"avg_at_2": metric}))
        [trial] = Study(spec, begun.folder)
        assert (trial.number, trial.state, trial.metrics) == (1, "complete", {"avg_at_2": metric})
        begun.invalidate(trial, "its results are missing")
        [trial] = Study(spec, begun.folder).failed()
        assert trial.error == "its results are missing"
        assert point in begun.todo()


class Refusing:
    """An objective of which some points, by number, refuse."""

    def __init__(self, sweep, *refused):
        self.points, self.calls = listed_points(sweep.spec), []
        self.refused = [self.points[number] for number in refused]

    def references(self, points):
        return []

    def run(self, points, outcomes):
        self.calls.append(len(points))
        for point in points:
            if point in self.refused:
                raise UserError(f"{point['decode.tau']} cannot be decoded")
            outcomes.complete(Outcome(point, [], {"avg_at_2": 0.5}))


def test_a_point_that_fails_takes_no_other_along(tmp_path):
    spec = sweep(retries=1, parameters={"decode.tau": {"values": [-0.1, -0.2, -0.3, -0.4]}})
    begun = open_sweep(spec, Places.under(tmp_path, track=False), lambda text: None)
    begun.folder.make()
    begun.objective = Refusing(begun, 1)
    work(begun)
    assert begun.objective.calls == [4, 1, 1, 1, 1], "together, three apart, and the failed one once more"
    assert [trial.state for trial in Study(spec, begun.folder)] == ["complete", "failed", "complete", "complete"]
    assert [trial.error for trial in begun.study.failed()] == ["-0.2 cannot be decoded"]
    resumed = open_sweep(spec, Places.under(tmp_path, track=False), lambda text: None)
    resumed.objective = Refusing(resumed)
    work(resumed)
    assert resumed.objective.calls == [1], "running it again is another chance"
    assert not Study(spec, begun.folder).failed()


def test_what_is_refused_whatever_the_point_ends_a_sweep_at_once(tmp_path):
    spec = sweep(parameters={"decode.tau": {"values": [-0.1, -0.2, -0.3, -0.4]}})
    begun = open_sweep(spec, Places.under(tmp_path, track=False), lambda text: None)
    begun.folder.make()
    begun.objective = Refusing(begun, 0, 1, 2, 3)
    with pytest.raises(UserError, match=r"-0\.2 cannot be decoded"):
        work(begun)
    assert begun.objective.calls == [4, 1, 1]


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
    found = []
    while points := begun.study.propose(1):
        found += [point["decode.tau"] for point in points]
        begun.complete(Outcome(points[0], [], {"avg_at_2": 0.5}))
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


def test_what_another_worker_did_of_a_killed_search_is_not_proposed_again(tmp_path):
    spec = sweep(method="tpe", run_cap=2, parameters={"decode.tau": {"min": -2.0, "max": -0.01}})
    begun = open_sweep(spec, Places.under(tmp_path, track=False))
    begun.folder.make()
    lost, left = Study(spec, begun.folder).propose(2)
    begun.complete(Outcome(lost, [], {"avg_at_2": 0.5}))
    resumed = Study(spec, begun.folder)
    resumed.resume()
    assert resumed.propose(2) == [left]
    assert [trial.metrics for trial in resumed] == [{"avg_at_2": 0.5}]


def test_the_best_point_is_the_first_of_the_best_by_the_metrics_goal(tmp_path):
    for goal, number in (("maximize", 1), ("minimize", 0)):
        spec = sweep(metric={"name": "avg_at_2", "goal": goal})
        begun = open_sweep(spec, Places.under(tmp_path / goal, track=False))
        begun.folder.make()
        assert begun.study.best() is None
        for point, value in zip(listed_points(spec), (0.25, 0.75, 0.75, 0.25), strict=True):
            begun.complete(Outcome(point, [], {"avg_at_2": value}))
        assert begun.study.best().number == number


def test_the_error_of_a_mean_over_benchmarks_is_that_of_the_mean():
    results = [result(samples=2, problems=problems, task=f"task {problems}") for problems in (3, 8)]
    found = metrics(sweep(), results)
    assert found["avg_at_2"] == pytest.approx((1 / 3 + 1 / 8) / 2)
    assert found["avg_at_2_se"] == pytest.approx(sum(each.standard_error**2 for each in results) ** 0.5 / 2)
    assert "avg_at_2_se" in metrics(sweep(), results[:1])


def test_any_pass_at_k_can_be_the_metric_of_a_sweep():
    results = [result(samples=4, problems=problems, task=f"task {problems}") for problems in (3, 8)]
    sampling = {"sampling": {"samples": 4, "max_tokens": 40}}
    assert "pass_at_3" not in metrics(sweep(**sampling), results)
    values = metrics(sweep(metric="pass_at_3", **sampling), results)
    assert values["pass_at_3"] == pytest.approx(sum(each.pass_at(3) for each in results) / 2)
    greedy = [result(samples=1, problems=3, task="one")]
    assert "pass_at_3" not in metrics(sweep(metric="pass_at_3", **sampling), greedy)


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
    spec = sweep(pair={"rl": ["tiny@4", "tiny@8"]})
    run = SweepRun(spec, folder, None)
    run.id, run._client = "run", client
    best = [
        SimpleNamespace(pair=f"tiny@{step}", label=f"τ{step}", metrics={"avg_at_2": step / 8, "mean_tokens": 9.26})
        for step in (4, 8)
    ]
    run._close(SimpleNamespace(best=best, points=best))
    assert (logged["best/tiny_4/mean_tokens"], logged["points"]) == (9.3, 2)
    assert (logged["best"], logged["best/tiny_4/avg_at_2"], logged["best/tiny_8/avg_at_2"]) == (
        "tiny@4: τ4; tiny@8: τ8",
        50,
        100,
    )
    run = SweepRun(sweep(), folder, None)
    run.id, run._client = "run", client
    run._close(SimpleNamespace(best=best[:1], points=best))
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
        ("tiny_tau_gama", [], "did you mean .tiny_tau_gamma"),
        ("tiny_tau_gamma", ["sampling.sample=4"], "did you mean 'samples'"),
        ("tiny_tau_gamma", ["sampling"], "accepted: KEY=VALUE"),
    ):
        with pytest.raises(UserError, match=words):
            read(name, changes)

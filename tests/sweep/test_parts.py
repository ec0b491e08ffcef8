"""The parts of a sweep that need no engine: what is left to do, which GPUs, what Optuna shows, the command line."""

from types import SimpleNamespace

import numpy as np
import optuna
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rlvr_dir.cli.sweep import _stored, read
from rlvr_dir.errors import UserError
from rlvr_dir.sweep.decoding import metrics
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import key
from rlvr_dir.sweep.run import open_sweep, status
from rlvr_dir.sweep.track import SweepRun
from rlvr_dir.sweep.training import gpus
from tests.facts import ROBUST
from tests.results.made import made
from tests.sweep.made import sweep
from tests.tracking.made import result


def result_of(entry, spec, right=0.5):
    decoding, sampling = entry.item
    return made(
        decoding, np.arange(6).reshape(3, 2) < 6 * right, task="tiny_easy", problem_ids=("0", "1", "2"),
        sampling=sampling, provenance={"grader": ROBUST},
    )  # fmt: skip


def opened(tmp_path, **changes):
    begun = open_sweep(sweep(**changes), Places.under(tmp_path, track=False), lambda text: None)
    begun.folder.make()
    return begun


def points_of(begun):
    """The points that are left, by number."""
    return sorted((entry for entry in begun.todo() if entry.point is not None), key=lambda entry: entry.number)


def test_what_failed_is_kept_until_the_next_run(tmp_path):
    begun = opened(tmp_path)
    points = points_of(begun)
    begun.fail(points[2], "RuntimeError: no")
    [failure] = begun.folder.read_failures()
    assert (failure.number, bool(failure.reference), failure.reason) == (2, False, "RuntimeError: no")
    assert "RuntimeError: no" in status(begun.folder, begun.spec)
    assert points[2] not in begun.todo()
    assert points[2] in opened(tmp_path).todo(), "the command again is another chance"


def test_every_worker_has_gpus_of_its_own(monkeypatch):
    spec = sweep(kind="train", workers={"count": 2, "gpus_each": 2})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpus(spec, i) for i in (0, 1)] == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert gpus(spec, 1) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    with pytest.raises(UserError) as caught:
        gpus(spec, 1)
    assert (caught.value.argument, caught.value.value) == ("workers.gpus_each", 2)
    assert gpus(sweep(kind="train"), 0) == {}


SEARCH = {"method": "tpe", "run_cap": 7, "batch": 2, "parameters": {"decode.tau": {"min": -2.0, "max": -0.01}}}


def searched(folder, *, batches=99, told=99, fails=(), **changes):
    """Run a search whose results are made up, until some batches and some trials of the next one are told."""
    begun = opened(folder, **{**SEARCH, **changes})
    begun.study.open()
    begun.look()
    for number, points in enumerate(begun.study.batches()):
        for entry in begun.todo():
            if entry.point is not None and entry.point["decode.tau"] in fails:
                begun.fail(entry, "no")
            else:
                begun.complete(entry, [result_of(entry, begun.spec, share_of(entry))])
        trials = list(begun.trials.values())
        if number == batches:
            names = [key(point) for point in points[:told]]
            trials = [trial for trial in trials if trial.point is not None and key(trial.point) in names]
        begun.study.tell_batch(trials, {key(entry.point) for entry in begun.failures if entry.point is not None})
        if number == batches:
            break
    return begun


def share_of(entry):
    return 0.5 if entry.point is None else 1 / (1 + abs(entry.point["decode.tau"] + 0.7))


def taus_of(begun):
    return [trial.params["decode.tau"] for trial in study_of(begun).trials]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return taus_of(searched(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize(("batches", "told"), [(0, 0), (0, 1), (1, 0), (2, 1), (2, 0), (3, 0)])
def test_a_search_that_was_killed_proposes_the_same_points(tmp_path, undisturbed, batches, told):
    """The batch that was decoded, or that was only partly told, is proposed again."""
    begun = searched(tmp_path, batches=batches, told=told)
    assert len(taus_of(begun)) == 2 * batches + told
    again = searched(tmp_path)
    assert taus_of(again) == undisturbed
    numbers = [(trial.user_attrs["batch"], trial.user_attrs["size"]) for trial in study_of(again).trials]
    assert numbers == [(0, 2), (0, 2), (1, 2), (1, 2), (2, 2), (2, 2), (3, 1)]


def test_a_search_of_another_version_of_optuna_is_continued(tmp_path, undisturbed):
    """Points that the search would not propose count: as many are tried as were asked for, and none twice."""
    begun = searched(tmp_path, batches=1, told=0)
    study = study_of(begun)
    kinds = study.trials[0].distributions
    for place, tau in enumerate((-1.25, -0.75)):
        more = {"point": {"pair": "tiny", "decode.tau": tau}, "batch": 1, "size": 2}
        facts = {"params": {"decode.tau": tau}, "distributions": kinds, "value": 0.5 + place}
        study.add_trial(optuna.trial.create_trial(user_attrs=more, **facts))
    taus = taus_of(searched(tmp_path))
    assert taus[:4] == [*undisturbed[:2], -1.25, -0.75]
    assert len(set(taus)) == len(taus) == 7


def test_a_point_that_failed_in_a_search_is_tried_again_by_the_next_run(tmp_path, undisturbed):
    begun = searched(tmp_path, fails=undisturbed[1:2])
    states = [trial.state.name for trial in study_of(begun).trials]
    assert states == ["COMPLETE", "FAIL", *["COMPLETE"] * 5]
    before = taus_of(begun)
    again = taus_of(searched(tmp_path))
    assert again == [*before, undisturbed[1]]
    assert taus_of(searched(tmp_path)) == again


def test_a_search_whose_space_has_changed_begins_a_new_study(tmp_path):
    searched(tmp_path)
    other = searched(tmp_path, parameters={"decode.tau": {"min": -3.0, "max": -2.5}}, run_cap=3)
    assert len(taus_of(other)) == 3
    assert all(-3 <= tau <= -2.5 for tau in taus_of(other))


def test_the_torn_end_of_a_journal_is_cut_off(tmp_path, undisturbed):
    """As a full disk or a power cut leaves it: Optuna would continue in the same line, and read no later one."""
    begun = searched(tmp_path, batches=1)
    journal = begun.folder.journal
    journal.write_bytes(journal.read_bytes()[:-20])
    begun = opened(tmp_path, **SEARCH)
    begun.study.open()
    assert taus_of(begun) == undisturbed[:3]
    assert taus_of(searched(tmp_path)) == undisturbed


def test_a_folder_that_was_renamed_is_refused_by_its_name(tmp_path):
    """It would be looked for under its old name, and found to have no trial yet."""
    folder = SweepFolder.of(sweep(), tmp_path)
    folder.make()
    folder.create_or_verify(sweep(), print)
    renamed = folder.path.rename(tmp_path / "sweeps" / "copy")
    with pytest.raises(UserError) as caught:
        _stored(str(renamed), tmp_path)
    assert (caught.value.value, caught.value.accepted) == (str(renamed), str(folder.path))


@pytest.mark.parametrize("kind", ["decode", "train"])
def test_a_folder_of_an_older_version_is_read_without_the_keys_that_are_gone(tmp_path, kind):
    spec = sweep(**({"kind": "train"} if kind == "train" else {}))
    folder = SweepFolder.of(spec, tmp_path)
    folder.make()
    old = {"storage": "journal", "retries": 3, "workers": {"count": 1, "gpus_each": 0}}
    folder.spec.write_text(yaml.safe_dump({**spec.plain(), **old}))
    assert folder.stored() == spec
    assert folder.create_or_verify(spec, print) == spec


def test_who_only_looks_writes_nothing(tmp_path):
    begun = open_sweep(sweep(), Places.under(tmp_path, track=False))
    status(begun.folder, begun.spec)
    assert not begun.trials
    assert not list(tmp_path.iterdir())


def refusing(begun, *refused):
    """Have some points, by number, refuse; the counts of what is run together are returned."""
    calls, spec = [], begun.spec

    def run(entries, complete, fail):
        calls.append(len(entries))
        for entry in entries:
            if entry.number in refused:
                raise UserError(f"{entry.point['decode.tau']} cannot be decoded")
            complete(entry, [result_of(entry, spec)])

    begun.objective.run, entries = run, begun.objective.entries
    begun.objective.entries = lambda points: [entry for entry in entries(points) if entry.point is not None]
    begun.study.open()
    begun.run()
    return calls


FOUR = {"parameters": {"decode.tau": {"values": [-0.1, -0.2, -0.3, -0.4]}}}


def test_a_point_that_fails_takes_no_other_along(tmp_path):
    begun = opened(tmp_path, **FOUR)
    calls = refusing(begun, 1)
    assert calls == [4, 1, 2], "together, the one that fails, and the rest"
    assert list(begun.failures.values()) == ["-0.2 cannot be decoded"]
    assert [entry.number for entry in begun.trials] == [0, 2, 3]
    again = opened(tmp_path, **FOUR)
    assert refusing(again) == [4], "nothing was written here: the loop's store is not asked"


def test_what_is_refused_whatever_the_point_ends_a_sweep_at_once(tmp_path):
    begun = opened(tmp_path, **FOUR)
    with pytest.raises(UserError):
        refusing(begun, 0, 1, 2, 3)
    assert len(begun.failures) == 2


def test_a_search_that_has_proposed_all_there_is_comes_to_an_end(tmp_path):
    few = {"method": "tpe", "batch": 1, "parameters": {"decode.tau": {"values": [-0.3, -0.1]}}}
    begun = opened(tmp_path, run_cap=10, **few)
    refusing(begun)
    assert {trial.params["decode.tau"] for trial in study_of(begun).trials} == {-0.3, -0.1}
    assert len(study_of(begun).trials) == 2


def test_the_best_point_is_the_first_of_the_best_by_the_metrics_goal(tmp_path):
    for goal, number in (("maximize", 1), ("minimize", 0)):
        begun = opened(tmp_path / goal, metric={"name": "avg_at_2", "goal": goal})
        assert begun.best() is None
        points = points_of(begun)
        for entry, value in zip(points, (0.25, 0.75, 0.75, 0.25), strict=True):
            begun.complete(entry, [result_of(entry, begun.spec, value)])
        assert begun.best().number == number


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
    for name, changes, word in (
        ("nope", [], "tiny_criteria"),
        ("tiny_tau_gama", [], "tiny_tau_gamma"),
        ("tiny_tau_gamma", ["sampling.sample=4"], "samples"),
        ("tiny_tau_gamma", ["sampling"], "KEY=VALUE"),
    ):
        with pytest.raises(UserError) as caught:
            read(name, changes)
        assert word in str(caught.value)  # a name that is accepted

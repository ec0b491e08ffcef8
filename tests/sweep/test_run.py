"""Whole sweeps on the tiny pair: one stream, resumed, extended, refused, searched, confirmed, by workers."""

import json
import shutil
import time

import optuna
import pytest
from mlflow.tracking import MlflowClient
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rlvr_dir.config import Decoding
from rlvr_dir.errors import Busy, UserError
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.report.sweep import CompleteTrial
from rlvr_dir.sweep.confirm import confirm
from rlvr_dir.sweep.decoding import unused
from rlvr_dir.sweep.estimate import estimate
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import key
from rlvr_dir.sweep.run import best, open_sweep, run_sweep, status
from tests.records.made import stored
from tests.sweep.made import sweep


def points_of(study):
    return sorted(key(entry.point) for entry in study.trials if entry.point is not None)


def references_of(study):
    return [entry for entry in study.trials if entry.point is None]


def numbers_of(study):
    """Return what is known of each point and reference: its number, metrics and details."""
    return {
        (str(entry.point), trial.label): (trial.number, trial.metrics, trial.details)
        for entry, trial in study.trials.items()
    }


def once(records):
    """Every response of every record has been decoded exactly once; how many there are."""
    found = stored(records)
    for name, keys in found.items():
        assert len(keys) == len(set(keys)), name
    return sum(map(len, found.values()))


@pytest.fixture(scope="module")
def grid(host, tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    assert host.run(out, track=True) == 0
    return out


def test_its_results_are_runs_of_one_parent(grid):
    client = MlflowClient(f"sqlite:///{grid}/mlflow.db")
    experiment = client.get_experiment_by_name("rlvr-dir-small")
    runs = client.search_runs([experiment.experiment_id])
    [parent] = [run for run in runs if run.data.tags["kind"] == "sweep"]
    results = [run for run in runs if run.data.tags["kind"] == "eval"]
    assert len({run.data.tags["config_hash"] for run in results}) == len(results) == 10
    assert {run.data.tags["mlflow.parentRunId"] for run in results} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_grid_runs_to_the_end_and_says_what_it_found(grid, look):
    study, folder = look(grid)
    assert len(points_of(study)) == 4
    assert once(grid / "records") == 10 * 3 * 2
    told = json.loads((folder.path / "summary.json").read_text())
    assert told["states"]["complete"] == 4
    assert "best of 4 on these problems" in told["verdicts"][0]
    assert "Holm over 15: " in told["verdicts"][0]
    assert {row["minus"] for row in told["comparisons"]} == {
        "base", "rl", "replace τ-0.3", "replace τ-0.1", "reject τ-0.3", "reject τ-0.1", "veto τ-0.3", "veto τ-0.1",
    }  # fmt: skip
    text = (folder.path / "summary.md").read_text()
    for name in ("heat-tiny_easy.svg", "ratio-tiny_easy.svg"):
        assert (folder.path / name).read_text().rstrip().endswith("</svg>")
        assert name in text
    assert "4 complete; references: 6 complete" in status(folder, study.spec)
    assert best(folder, study.spec) == "\n".join(told["verdicts"])


def test_result_files_that_are_missing_or_damaged_are_made_again_from_the_records(grid, host, look):
    _, folder = look(grid)
    lost, damaged, *_ = sorted(folder.results.iterdir())
    before = {path: json.loads(path.read_text()) for path in (lost, damaged)}
    journals = {path: path.read_bytes() for path in grid.glob("records/*/*/journal.bin")}
    lost.unlink()
    damaged.write_text(damaged.read_text()[:100])
    assert host.run(grid) == 0
    for path, old in before.items():
        new = json.loads(path.read_text())
        assert {name: new[name] for name in new if name not in ("seconds", "provenance")} == {
            name: old[name] for name in old if name not in ("seconds", "provenance")
        }
    assert {path: path.read_bytes() for path in grid.glob("records/*/*/journal.bin")} == journals
    assert len(look(grid)[0].trials) == 10


def test_a_study_that_is_lost_costs_no_response(grid, host, look):
    study, folder = look(grid)
    before = numbers_of(study)
    journals = {path: path.read_bytes() for path in grid.glob("records/*/*/journal.bin")}
    folder.journal.unlink()
    assert host.run(grid) == 0
    assert {path: path.read_bytes() for path in grid.glob("records/*/*/journal.bin")} == journals
    assert numbers_of(look(grid)[0]) == before


def test_a_folder_without_its_records_still_says_what_came_out(grid, tmp_path, look):
    study, folder = look(grid)
    moved = SweepFolder(shutil.copytree(folder.path, tmp_path / "elsewhere" / "sweeps" / folder.path.name))
    assert status(moved, study.spec) == status(folder, study.spec)
    assert best(moved, study.spec) == best(folder, study.spec)


def test_a_dry_run_says_what_is_held_and_what_the_rest_costs(grid, tmp_path):
    spec = sweep(parameters={"decode.tau": {"values": [-0.3, -0.1, -0.2]}, "decode.gamma": {"values": [0.0, 0.1]}})
    found = estimate(spec, grid, grid / "records")
    assert spec.size() == "3 values of tau × 2 values of gamma = 6 points"
    held = [6] * 2 + [6] * 8 + [0] * 4  # base, RL, and of each τ extrapolate, replace, its reject and veto
    assert [row.cached for row in found.rows] == held
    assert found.missing == 24
    assert found.mean
    fresh = estimate(spec, tmp_path, tmp_path / "records")
    assert (fresh.mean, fresh.most) == (None, 84 * 40)
    matched = {"decode": {"gamma": 0.1}, "parameters": {"decode.tau": {"ratio": [0.1]}}}
    found = estimate(sweep(**matched), grid, grid / "records")
    labels = [
        "base",
        "rl",
        "extrapolate at 10 % flagged γ0.1",
        *(f"{entry} at 10 % flagged" for entry in ("replace", "reject", "veto")),
    ]
    assert [row.label for row in found.rows] == labels
    assert not list(tmp_path.iterdir())


def test_a_changed_sweep_is_refused_with_the_difference(grid):
    folder = SweepFolder.of(sweep(), grid)
    with pytest.raises(UserError) as caught:
        folder.create_or_verify(sweep(sampling={"samples": 3, "max_tokens": 40}), print)
    assert (caught.value.argument, caught.value.value) == ("sweep", "small")
    assert "-sampling: {temperature: 1.0, top_p: 0.7, max_tokens: 40, seed: 0, samples: 2}" in caught.value.more
    assert "+sampling: {temperature: 1.0, top_p: 0.7, max_tokens: 40, seed: 0, samples: 3}" in caught.value.more
    said = []
    args = {"disable_custom_all_reduce": True}
    engine = {"backend": "transformers", "max_num_seqs": 7, "tensor_parallel_size": 8, "vllm_args": args}
    free = sweep(batch=1, engine=engine)  # changes no result
    folder.create_or_verify(free, said.append)
    assert not said
    folder.create_or_verify(sweep(parameters=_more(-0.2)), said.append)
    assert len(said) == 1
    assert "-0.2" in said[0]
    folder.create_or_verify(sweep(), print)


def test_a_begun_sweep_may_get_a_larger_context_and_decodes_again_what_the_old_one_cut(host, look, tmp_path):
    narrow, wide = ({"engine": {"backend": "transformers", "max_model_len": length}} for length in (45, 200))
    assert host.run(tmp_path, **narrow) == 0
    _, folder = look(tmp_path, **narrow)

    def cut():
        return {
            result.decoding: int((result.truncated & (result.n_tokens < result.sampling.max_tokens)).sum())
            for result in folder.read_results()
        }

    before, decoded = cut(), once(tmp_path / "records")
    assert any(before.values())
    assert host.run(tmp_path, **wide) == 0
    assert not any(cut().values())
    again = [decoding for decoding, count in before.items() if count]
    assert once(tmp_path / "records") == decoded + 6 * len(again), "and nothing else"
    with pytest.raises(UserError):
        folder.create_or_verify(sweep(**narrow), print)


def test_a_sweep_of_an_older_version_is_refused_with_the_way_out(tmp_path):
    folder = SweepFolder.of(sweep(), tmp_path)
    folder.make()
    folder.create_or_verify(sweep(), print)
    (folder.path / "points").mkdir()
    with pytest.raises(UserError) as caught:
        folder.stored()
    assert caught.value.value == str(folder.path)


def _more(*taus):
    return {"decode.tau": {"values": [-0.3, -0.1, *taus]}, "decode.gamma": {"values": [0.0, 0.1]}}


def test_a_sweep_gains_and_loses_points_and_repeats_none(host, look, tmp_path):
    few, more = {"parameters": _more()}, {"parameters": _more(-0.2)}
    assert host.run(tmp_path, **few) == 0
    responses = once(tmp_path / "records")
    assert host.run(tmp_path, **more, controls=["reject"]) == 0
    study, folder = look(tmp_path, **more, controls=["reject"])
    assert len(points_of(study)) == 6
    assert once(tmp_path / "records") == responses + 3 * 6, "the new points, and the reject of one of them"
    assert len(list(folder.results.iterdir())) == 2 + 6 + 3, "without the vetoes, which are not asked for any more"
    assert host.run(tmp_path, **few) == 0
    study, folder = look(tmp_path, **few)
    assert (len(points_of(study)), len(references_of(study))) == (4, 6)
    assert once(tmp_path / "records") == responses + 3 * 6


def test_the_study_is_one_trial_a_point_that_optuna_reads(grid, look):
    """Other programs, as optuna-dashboard, read it with a storage of their own."""
    study, folder = look(grid)
    storage = JournalStorage(JournalFileBackend(str(folder.journal)))
    assert optuna.get_all_study_names(storage) == ["small"]
    shown = optuna.load_study(study_name="small", storage=storage)
    points = {key(trial.point): trial for trial in study.trials.values() if trial.point is not None}
    assert {key(trial.user_attrs["point"]) for trial in shown.trials} == points.keys()
    assert len(shown.trials) == len(points) == 4
    for trial in shown.trials:
        point = points[key(trial.user_attrs["point"])]
        assert trial.params == {name: point.point[name] for name in ("decode.tau", "decode.gamma")}
        assert (trial.state.name, trial.value) == ("COMPLETE", point.metrics["avg_at_2"])
        assert (trial.user_attrs["label"], trial.user_attrs["metrics"]) == (point.label, point.metrics)
    assert shown.metric_names == ["avg_at_2"]
    assert shown.best_trial.value == study.best().metrics["avg_at_2"]
    assert not shown.trials_dataframe().empty


def test_two_processes_on_one_sweep_do_its_work_once(host, tmp_path):
    """The second is refused, and names the first, which goes on."""
    host.start(tmp_path)
    lock = SweepFolder.of(sweep(), tmp_path).lock
    while not (lock.is_file() and lock.read_text().strip()):
        time.sleep(0.01)
    with pytest.raises(Busy):
        run_sweep(sweep(), Places.under(tmp_path, track=False), say=lambda text: None)
    assert host.answer() == 0
    assert once(tmp_path / "records") == 10 * 3 * 2


def test_one_sweep_draws_in_several_ways_and_prices_them_at_equal_forwards(host, look, tmp_path):
    others = [{"temperature": 0, "decodings": ["rl", "replace,tau=-0.1"]}, {"top_p": 0.2}, {"top_p": 1.0}]
    changes = {"samplings": others, "equal_forwards": True, "parameters": {"decode.tau": {"values": [-0.3]}}}
    planned = estimate(sweep(**changes), tmp_path, tmp_path / "records")
    assert (len(planned.rows), planned.missing) == (9, 48)
    assert host.run(tmp_path, **changes) == 0
    study, folder = look(tmp_path, **changes)
    assert len(references_of(study)) == 8
    assert once(tmp_path / "records") == 3 * (7 * 2 + 2)
    told = json.loads((folder.path / "summary.json").read_text())
    labels = [entry["label"] for entry in told["entries"]]
    assert labels == [
        "base", "rl", "reject τ-0.3", "veto τ-0.3", "rl (greedy)", "rl (top-p 0.2)", "rl (top-p 1)",
        "replace τ-0.1 (greedy)",
        "replace τ-0.3",
    ]  # fmt: skip
    priced = {answer["label"]: answer["models"] for lot in told["equal_forwards"] for answer in lot["answers"]}
    assert priced == {label: 1 + ("τ" in label) for label in labels}


def test_ratios_are_matched_and_refined_once(host, look, tmp_path):
    changes = {
        "limit": 12,
        "sampling": {"samples": 2, "max_tokens": 20},
        "engine": {"backend": "transformers", "max_num_seqs": 24},
        "decode": {"mode": "replace"},
        "parameters": {
            "decode.criterion": {"values": ["delta_logp", "delta_logp above", "js", "random"]},
            "decode.tau": {"ratio": [0.02, 0.2]},
        },
    }
    assert host.run(tmp_path, **changes) == 0
    _, folder = look(tmp_path, **changes)
    found = json.loads((folder.path / "summary.json").read_text())["matched"]
    assert [(row["criterion"], row["wanted"]) for row in found] == [
        (gate, ratio) for gate in ("delta_logp", "delta_logp above", "js", "random") for ratio in (0.02, 0.2)
    ]
    for row in found:
        assert row["expected"] == pytest.approx(row["wanted"], abs=0.01)
        assert row["reached"] == pytest.approx(row["wanted"], abs=0.12)
    refined = json.loads((folder.path / "matched.json").read_text())["tiny"]
    assert [row["first"] is None for row in refined] == [row["criterion"] == "random" for row in refined]
    others = {row["first"] for row in refined} - {None} - {row["tau"] for row in refined}  # decoded for that alone
    assert others
    assert once(tmp_path / "records") == (26 + len(others)) * 12 * 2  # the base generation serves as reference too
    changes["parameters"]["decode.tau"]["refine"] = False
    assert host.run(tmp_path, name="unrefined", **changes) == 0
    _, folder = look(tmp_path, name="unrefined", **changes)
    unrefined = json.loads((folder.path / "matched.json").read_text())["tiny"]
    assert [row["tau"] for row in unrefined] == [row["first"] or row["tau"] for row in refined]
    assert once(tmp_path / "records") == (26 + 3 * len(others)) * 12 * 2  # the controls are new, all else was decoded
    begun, _ = look(tmp_path, name="unrefined", **changes)
    assert not begun.todo()  # run again, it makes none again


def test_a_search_asks_and_tells_and_knows_its_best_point(host, look, tmp_path):
    changes = {
        "method": "tpe",
        "run_cap": 5,
        "batch": 2,
        "parameters": {"decode.tau": {"min": -2.0, "max": -0.01}, "decode.gamma": {"values": [0.05, 0.1]}},
        "metric": {"name": "replacement_ratio", "goal": "minimize"},
    }
    assert host.run(tmp_path, **changes) == 0
    study, folder = look(tmp_path, **changes)
    assert len(points_of(study)) == 5
    points = [entry for entry in study.trials.values() if entry.point is not None]
    journal = JournalStorage(JournalFileBackend(str(folder.journal)))
    shown = optuna.load_study(study_name="small", storage=journal)
    values = {trial.user_attrs["point"]["decode.tau"]: trial.value for trial in shown.trials}
    assert values == {trial.point["decode.tau"]: trial.metrics["replacement_ratio"] for trial in points}
    assert shown.direction.name == "MINIMIZE"
    assert len(references_of(study)) == 2 + 5 * 3  # each with its own controls
    assert study.best().metrics["replacement_ratio"] == min(t.metrics["replacement_ratio"] for t in points)
    once(tmp_path / "records")


def test_the_winner_is_confirmed_with_new_seeds_and_elsewhere(grid):
    spec = sweep()
    folder, places = SweepFolder.of(spec, grid), Places.under(grid, track=False)
    begun = open_sweep(spec, places, lambda text: None)
    with pytest.raises(UserError) as caught:
        confirm(begun, [0, 1])
    assert (caught.value.argument, caught.value.value) == ("seeds", "0,1")
    with pytest.raises(UserError) as caught:
        confirm(open_sweep(sweep(sampling={"temperature": 0}), Places.under(grid / "other", track=False)), [5])
    assert caught.value.value == "5"
    confirm(begun, [5, 6], ["tiny_easy", "tiny_medium"], limit=2)
    rows = json.loads((folder.path / "confirm.json").read_text())
    assert [row["before"] is None for row in rows if row["minus"] == "rl"] == [False, True]
    assert {row["task"]: row["problems"] for row in rows} == {
        "tiny_easy": "2 others",
        "tiny_medium": "2 of another benchmark",
    }
    used = {problem for path in (folder.path / "results").glob("*.json") for problem in _ids(path)}
    new = {problem for path in (folder.path / "confirm").glob("*.json") for problem in _ids(path, "tiny_easy")}
    assert len(used) == 3
    assert len(new) == 2
    assert not used & new


def test_rl_as_a_winner_is_confirmed_against_base(host, look, tmp_path):
    changes = {"parameters": {"decode.mode": {"values": ["rl"]}}, "limit": 2}
    assert host.run(tmp_path, **changes) == 0
    confirm(open_sweep(sweep(**changes), Places.under(tmp_path, track=False), lambda text: None), [5], limit=2)
    [row] = json.loads((look(tmp_path, **changes)[1].path / "confirm.json").read_text())
    assert (row["winner"], row["minus"]) == ("rl", "base")
    assert row["before"] is not None


def _ids(path, task=None):
    told = json.loads(path.read_text())
    return told["problem_ids"] if task in (None, told["task"]) else []


def test_a_declared_split_is_held_out_of_the_sweep_and_confirms_it():
    spec = sweep(limit=None, confirm={"split": 0.25})
    easy, medium = find_benchmark("tiny_easy"), find_benchmark("tiny_medium")
    ids = [row["id"] for row in easy.problems]
    chosen, kept = spec.part.select(ids), unused(spec, easy).select(ids)
    assert len(chosen) == len(ids) // 4
    assert sorted(chosen + kept) == sorted(ids)
    assert set(spec.part.select(ids[::-1])) == set(chosen)  # whatever the order of the file
    assert unused(spec, medium).select(ids) == ids
    assert spec.evaluation("tiny", [Decoding()]).problem_ids(ids) == chosen
    assert unused(whole := sweep(limit=None), easy) == whole.part, "the same, where there are no others"
    with pytest.raises(UserError):
        sweep(confirm={"split": 1.5})


@pytest.mark.parametrize("parts", [{"confirm": {"split": 0.5}, "limit": None}, {"limit": 2}])
def test_what_confirms_a_sweep_has_no_family_that_chose(tmp_path, parts):
    """Split 12 problems in families of 3, which take turns: none has a part on either side."""
    mine, alone = tmp_path / "mine.jsonl", tmp_path / "alone.jsonl"
    family = {str(i): f"f{i % 4}" for i in range(12)}
    rows = [{"id": key, "problem": f"{key}+1", "answer": int(key) + 1, "family": of} for key, of in family.items()]
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, benchmark = sweep(tasks=[str(mine)], **parts), find_benchmark(str(mine))
    chosen, kept = spec.part.select([*family], family)[: spec.limit], unused(spec, benchmark).select([*family], family)
    assert {family[key] for key in chosen}.isdisjoint(family[key] for key in kept)
    assert (len(chosen), len(kept)) == ((6, 6) if "confirm" in parts else (2, 6))
    alone.write_text("".join(json.dumps(row | {"family": "all"}) + "\n" for row in rows))
    spec = sweep(tasks=[str(alone)], **parts)
    assert unused(spec, find_benchmark(str(alone))) == spec.part, "the same, where one family has them all"


def test_what_cannot_work_is_said(host, look, tmp_path):
    changes = {"engine": {"backend": "transformers", "tensor_parallel_size": 2}}
    assert host.run(tmp_path, **changes) == 1
    study, folder = look(tmp_path, **changes)
    assert not study.trials
    assert all("tensor_parallel_size" in failure.reason for failure in folder.read_failures())
    assert len(folder.read_failures()) == 2


def test_a_metric_that_is_no_number_is_a_failed_point(tmp_path):
    asked = open_sweep(sweep(), Places.under(tmp_path, track=False), lambda text: None)
    asked.folder.make()
    points = sorted((entry for entry in asked.todo() if entry.point is not None), key=lambda entry: entry.number)
    asked.objective.trial = lambda entry, results: CompleteTrial(
        "tiny", entry.number, entry.point, "point", (), results
    )
    for entry, metrics in zip(
        points, ({"avg_at_2": 40.0}, {"avg_at_2": float("nan")}, {}, {"avg_at_2": 30.0}), strict=True
    ):
        asked.complete(entry, metrics)
    assert [entry.number for entry in asked.trials] == [0, 3]
    assert list(asked.failures) == points[1:3]
    assert [failure.number for failure in asked.folder.read_failures()] == [1, 2]

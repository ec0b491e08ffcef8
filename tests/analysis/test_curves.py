"""Validations of a training become curves, and are never mixed up with what was seen of its rollouts."""

import json

import numpy as np
import pytest
import yaml

from rlvr_dir.analysis.curves import curves
from rlvr_dir.config import Sampling
from rlvr_dir.report.training import training_chapter
from tests.facts import refuses

PROBLEMS = 12


def scores(right, samples=4):
    right = dict(zip([f"p{i}" for i in range(PROBLEMS)], right, strict=True))
    return {"t": {"samples": samples, "avg": sum(right.values()) / samples / PROBLEMS, "right": right}}


def training(folder, logs, top_p=1.0, **drawn):
    """A training's folder with the base's validation and a log a seed."""
    folder.mkdir()
    sampling = Sampling(**{"samples": 4, "max_tokens": 64, **drawn}).model_dump()
    about = {"dapo": {"top_p": top_p}, "validation": {"sampling": sampling}}
    (folder / "train.yaml").write_text(yaml.safe_dump(about))
    (folder / "base.json").write_text(json.dumps(scores([1] * PROBLEMS)))
    files = []
    for seed, records in enumerate(logs):
        files.append(folder / f"seed-{seed}" / "log.jsonl")
        files[-1].parent.mkdir()
        files[-1].write_text("\n".join(map(json.dumps, records)))
    return files


def log(*validations):
    steps = [{"step": step, "accuracy": 0.4, "reward": -0.2} for step in (1, 2, 3)]
    return [*steps, *({"step": step, "validation": scores(right)} for step, right in validations)]


HALF, MOST = [2] * PROBLEMS, [4] * 8 + [0] * 4


def test_validations_are_curves_with_intervals_that_begin_at_the_base(tmp_path):
    files = training(tmp_path / "a", [log((2, HALF), (3, MOST)), log((2, MOST), (3, MOST))])
    made = curves({"DAPO": files})
    means = made.tables["means"]
    assert {(row["benchmark"], row["samples"], row["drawn"]) for row in means} == {
        ("t", 4, "T = 1, top-p 0.7, 64 tokens")
    }
    assert [(row["step"], row["avg"]) for row in means] == [
        (0.0, 0.25), (2.0, pytest.approx((1 / 2 + 2 / 3) / 2)), (3.0, pytest.approx(2 / 3)),
    ]  # fmt: skip
    assert all(row["avg_low"] < row["avg"] < row["avg_high"] for row in means)
    assert {row["run"] for row in made.tables["runs"]} == {1, 2}
    figures = training_chapter(made).sections
    assert "drawn at T = 1, top-p 0.7, 64 tokens" in figures[0].title
    # Where the rollouts' accuracy is known, a reward beside it says no more.
    assert set(figures[2].frame["curve"]) == {"rollout_accuracy"}


@pytest.mark.parametrize(
    ("drawn", "words"),
    [({"temperature": 0, "samples": 1}, "greedy, 64 tokens"), ({"temperature": 0.5}, "T = 0.5, top-p 0.7, 64 tokens")],
)
def test_validations_say_how_they_are_drawn(tmp_path, drawn, words):
    made = curves({"DAPO": training(tmp_path / "a", [log((2, HALF))], **drawn)})
    assert {row["drawn"] for row in made.tables["means"]} == {words}


def test_rollouts_drawn_at_different_top_p_are_not_compared(tmp_path):
    logs = {name: training(tmp_path / name, [log((2, HALF))], top_p=p) for name, p in (("full", 1.0), ("cut", 0.7))}
    made = curves(logs)
    section = training_chapter(made)
    assert [one.name for one in section.sections] == ["validation"]
    assert "full: 1, cut: 0.7" in section.paragraphs[0]
    assert {row["method"] for row in made.tables["means"]} == {"cut", "full"}


def test_runs_that_share_no_step_or_no_problem_have_no_mean_or_no_interval(tmp_path):
    one, other = (training(tmp_path / name, [log((step, HALF))]) for name, step in (("a", 2), ("b", 3)))
    (tmp_path / "b" / "base.json").unlink()
    made = curves({"DAPO": [*one, *other]})
    assert made.tables["means"] == ()
    assert {(row["run"], row["step"]) for row in made.tables["runs"]} == {(1, 0.0), (1, 2.0), (2, 3.0)}
    lines = other[0].read_text().replace('"p0"', '"q0"').replace('"step": 3', '"step": 2')
    other[0].write_text(lines)
    means = [row for row in curves({"DAPO": [*one, *other]}).tables["means"] if row["step"] == 2.0]
    assert [row["avg"] for row in means] == [0.5, 0.5]  # two axes: of other problems


def test_verls_own_validations_are_curves_without_an_interval(tmp_path):
    """As verl's file logger writes them, and as our log keeps them under `verl`."""
    name = "val-core/aime24/acc/mean@32"
    raw = [{"step": s, "data": {name: s / 10, "critic/score/mean": -0.4}} for s in (5, 10)]
    raw.insert(0, {"step": 0, "data": {name: 0.1}})
    kept = [{"step": s, "reward": -0.4, "accuracy": 0.3, "verl": {name: s / 10}} for s in (5, 10)]
    for file, rows in (("raw", raw), ("kept", kept)):
        (tmp_path / file).write_text("\n".join(map(json.dumps, rows)))
    made = curves({"raw": [tmp_path / "raw"], "kept": [tmp_path / "kept"]})
    told = [(row["method"], row["step"], row["avg"], row["avg_low"]) for row in made.tables["means"]]
    assert {row["benchmark"] for row in made.tables["means"]} == {"aime24 (verl)"}
    assert told == [
        ("raw", 0.0, 0.1, None), ("raw", 5.0, 0.5, None), ("raw", 10.0, 1.0, None),
        ("kept", 5.0, 0.5, None), ("kept", 10.0, 1.0, None),
    ]  # fmt: skip
    seen = {(row["curve"], row["method"], row["step"], row["value"]) for row in made.tables["curves"]}
    assert {("reward", "raw", 5.0, -0.4), ("reward", "raw", 10.0, -0.4)} <= seen
    assert {method for curve, method, *_ in seen if curve == "rollout_accuracy"} == {"kept"}


def test_the_best_checkpoint_is_scored_on_problems_that_did_not_choose_it(tmp_path):
    random = np.random.default_rng(0)
    rows = [(step, random.binomial(4, 0.5, PROBLEMS).tolist()) for step in range(1, 21)]
    made = curves({"DAPO": training(tmp_path / "a", [log(*rows)])})
    [chosen] = made.tables["choices"]
    assert chosen["best"] > max(chosen["elsewhere"], chosen["last"])
    assert chosen["last_mean"] == pytest.approx(np.mean([right for _, right in rows[-5:]]) / 4)


def test_checkpoints_are_chosen_among_the_validations_that_all_runs_have(tmp_path):
    """Average no third validation with another's second: one of two trainings is not at its end yet."""
    [chosen] = curves(
        {"DAPO": training(tmp_path / "a", [log((1, HALF), (2, HALF), (3, MOST)), log((1, HALF), (2, HALF))])}
    ).tables["choices"]
    assert (chosen["last"], chosen["last_step"], chosen["validations"]) == (0.5, 2.0, 2)


def test_a_run_without_validations_keeps_its_number(tmp_path):
    made = curves({"DAPO": training(tmp_path / "a", [log(), log((2, HALF))])})
    assert {row["run"] for row in made.tables["runs"]} == {2}


def test_of_verl_the_rollouts_are_those_that_were_learned_from(tmp_path):
    files = training(tmp_path / "a", [log()])
    about = tmp_path / "a" / "train.yaml"
    about.write_text(about.read_text().replace("dapo:", "backend: verl\ndapo:\n  dynamic_sampling: true"))
    found = curves({"ours": training(tmp_path / "b", [log()]), "theirs": files})
    [rollouts] = training_chapter(found).sections
    assert "Of theirs only those rollouts that were learned from" in rollouts.notes[0]


def test_curves_of_every_trainer(tmp_path):
    trl = [{"step": i, "reward": i / 10, "entropy": 1.0, "completions/mean_length": 30 + i} for i in (1, 2)]
    verl = [{"step": i, "data": {"critic/score/mean": i / 5, "actor/entropy": 0.5}} for i in (1, 2)]
    files = {
        "trl": json.dumps(trl),
        "verl": "\n".join(map(json.dumps, verl)),
        "state": json.dumps({"log_history": trl}),
    }
    ours = [
        {"step": i, "accuracy": 0.3, "length": 9.0, "token_share": [0.2, 0.8], "gradient_share": [0.9, 0.1]}
        for i in (1, 2)
    ]
    files["ours"] = "\n".join(map(json.dumps, [*ours, {"validation": {"avg": 0.1}}]))
    paths = {}
    for name, text in files.items():
        paths[name] = [tmp_path / f"{name}.json"]
        paths[name][0].write_text(text)
    made = curves(paths)
    shares = [(row["token_share"], row["gradient_share"]) for row in made.tables["gradient"]]
    assert shares == [(0.2, 0.9), (0.8, 0.1)]
    assert curves(paths, step=2).tables["gradient"] == made.tables["gradient"]
    nothing = {"step": 3, "accuracy": 1.0, "token_share": [0.0, 0.0], "gradient_share": [0.0, 0.0]}
    paths["ours"][0].write_text("\n".join(map(json.dumps, [*ours, nothing])))
    assert curves(paths).tables["gradient"] == made.tables["gradient"]  # what taught nothing has no share, and not 0
    with refuses("step", "9"):
        curves(paths, step=9)
    found = {}
    for row in made.tables["curves"]:
        found.setdefault((row["curve"], row["method"]), []).append((row["step"], row["value"]))
    # A reward is never called accuracy: neither TRL's nor verl's, which may have a length penalty in it.
    assert found["reward", "trl"] == [(1.0, 0.1), (2.0, 0.2)] == found["reward", "state"]
    assert found["reward", "verl"] == [(1.0, 0.2), (2.0, 0.4)]
    assert [method for curve, method in found if curve == "rollout_accuracy"] == ["ours"]
    assert found["length", "ours"] == [(1.0, 9.0), (2.0, 9.0)]


@pytest.mark.parametrize("text", ["not json", "[]", '[{"step": 1, "other": 2}]', '[{"reward": NaN}]'])
def test_a_log_without_numbers_is_one_sentence(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with refuses("logs"):
        curves({"x": [tmp_path / "log"]})

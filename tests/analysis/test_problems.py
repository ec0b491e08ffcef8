"""The kinds of problem, by cases that leave no doubt; and training curves from every trainer's log."""

import json

import numpy as np
import pytest

from harness.analysis.curves import curves
from harness.analysis.problems import problem_kind, problems
from harness.errors import UserError
from harness.evals.settings import Setting
from harness.spec import Decoding
from tests.report import made


def result(*args, **how):
    return Setting.of([made.result(*args, **how)])


CASES = [
    ([0, 0, 0, 0], "never solved"),
    ([1, 1, 1, 1], "always solved"),
    ([0.5, 0.1, 0.6, 0.9], "dips first"),
    ([0.5, 0.9, 0.1, 0.8], "dips first"),
    ([0.1, 0.3, 0.6, 0.9], "rises"),
    ([0.9, 0.6, 0.3, 0.1], "falls"),
    ([0.5, 0.45, 0.5, 0.55], "unclear"),
    ([0.0, 0.03, 0.0, 0.03], "unclear"),
    ([0.1, 0.9], "rises"),
]


@pytest.mark.parametrize(("accuracy", "expected"), CASES)
def test_kinds(accuracy, expected):
    assert problem_kind(np.array(accuracy, float), samples=32) == expected


def test_steps_go_by_ratio_and_all_problems_are_there():
    steps = [result(Decoding(mode="replace", tau=tau), seed=i) for i, tau in enumerate((-0.1, -0.5), 1)]
    found = problems(result(Decoding(mode="base")), steps, result(Decoding()))
    assert found.accuracy.shape == (6, 3)
    assert list(found.ratios) == sorted(found.ratios)
    assert sum(found.counts.values()) == 6
    with pytest.raises(UserError, match="the same problems"):
        problems(result(Decoding(mode="base")), [result(Decoding(mode="replace", tau=-1.0), problems=5)])
    with pytest.raises(UserError, match="at least one"):
        problems(result(Decoding(mode="base")), [])


def test_what_rl_solves_is_not_called_never_solved():
    steps = [result(Decoding(mode="replace", tau=tau), 0.0) for tau in (-0.1, -0.5)]
    base = result(Decoding(mode="base"), 0.0)
    never = problems(base, steps)
    assert set(never.kinds) == {"never solved"}
    assert never.seen == 3 * base.samples
    rl = result(Decoding(), 0.5)
    solved = rl.values.mean(axis=1) > 0
    assert [kind == "never solved" for kind in problems(base, steps, rl).kinds] == (~solved).tolist()


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
    with pytest.raises(UserError, match="step=9:"):
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
    with pytest.raises(UserError, match="accepted"):
        curves({"x": [tmp_path / "log"]})

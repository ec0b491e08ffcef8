"""`rlvr-dir report` and `rlvr-dir analyse` as they are typed."""

import json

import numpy as np
import pytest

from rlvr_dir.config import Decoding
from tests.commands import refused, run
from tests.facts import states
from tests.report.made import grid
from tests.results.made import made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for one in grid():
        one.write(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report",), "results"),
        (("report", "nowhere"), "nowhere"),
        (("report", "--analysis", "nowhere"), "nowhere"),
        (("analyse", "curves", "A=nowhere"), "nowhere"),
        (("score", "nowhere", "--pair", "tiny"), "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    states(refused(*arguments), sentence)


def test_responses_without_an_answer_are_warned_of_as_eval_does(tmp_path):
    (tmp_path / "runs").mkdir()
    no_box = np.array([[1, 1], [1, 0]])
    made(Decoding(mode="rl"), [[0, 0], [0, 1]], no_box=no_box, truncated=1 - no_box).write(tmp_path / "runs")
    done = run("report", tmp_path / "runs", "--out", tmp_path / "out")
    warned = "75% (rl on aime24 (2 of 30 problems))"
    states(done.stderr, "warning: ", warned)
    assert "--max-tokens" not in done.stderr  # few responses are cut
    page = (tmp_path / "out" / "report.md").read_text()
    assert page.index(warned) < page.index("**")


def test_curves_are_drawn_and_a_result_beside_them_is_left_alone(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": i, "reward": i / 9}) for i in range(9)))
    where = tmp_path / "analysis"
    run("analyse", "curves", f"DAPO={log}", f"DAPO={log}", "--out", where)
    (where / "tiny_easy-rl-0.json").write_text("{}")  # a result, as `--out runs` of both puts it there
    run("report", "--analysis", where, "--out", tmp_path / "out")
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert {name.rpartition("-")[0] or name for name in names} == {"training"}

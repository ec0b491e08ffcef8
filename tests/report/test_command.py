"""`rlvr-dir report` and `rlvr-dir analyse` as they are typed."""

import json

import pytest

from tests.commands import refused, run
from tests.report.made import grid


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for one in grid():
        one.write(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report",), "nothing to report"),
        (("report", "nowhere"), "does not exist"),
        (("report", "--analysis", "nowhere"), "holds nothing that `rlvr-dir analyse` wrote"),
        (("analyse", "curves", "A=nowhere"), "there is no such file or training"),
        (("analyse", "texts", "nowhere"), "cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(*arguments)


def test_theorem_and_curves_are_drawn(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": i, "reward": i / 9}) for i in range(9)))
    where = tmp_path / "analysis"
    run("analyse", "theorem", "--bandits", 20, "--out", where)
    run("analyse", "curves", f"DAPO={log}", f"DAPO={log}", "--out", where)
    run("report", "--analysis", where, "--out", tmp_path / "out")
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert {name.rpartition("-")[0] or name for name in names} == {"theorem", "training"}


def test_texts_are_scored_a_line_each(tmp_path):
    file = tmp_path / "given.jsonl"
    file.write_text('{"response": "so 45 a + 7 = 52 .", "id": 1}\n\n{"response": "then", "prompt": "Ann has"}\n')
    run("analyse", "texts", file, "--out", tmp_path / "scored.jsonl")
    first, second = map(json.loads, (tmp_path / "scored.jsonl").read_text().splitlines())
    assert first["id"] == 1
    assert len(first["tokens"]) == len(first["delta_logp"])
    assert second["prompt"] == "Ann has"

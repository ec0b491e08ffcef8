"""A grid and a search that earlier code began, both killed with -9 half way, go on: nothing complete is done again.

`begun-2026-11-22.tar.gz` was made by the code of commit 766439b, on the tiny pair: their folders and the records.
"""

import json
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from harness.sweep.points import key
from tests.records.made import stored

BEGUN = Path(__file__).with_name("begun-2026-11-22.tar.gz")
SEARCH = {
    "name": "search",
    "method": "tpe",
    "run_cap": 5,
    "batch": 2,
    "parameters": {"decode.tau": {"min": -2.0, "max": -0.01}, "decode.gamma": {"values": [0.05, 0.1]}},
}


def everything(trials):
    return trials.all(), trials.all(trials.references)


def is_running(trial):
    return trial.state.name == "RUNNING"


@pytest.mark.parametrize(("changes", "points", "references"), [({}, 4, 2), (SEARCH, 5, 7)], ids=["grid", "search"])
def test_a_sweep_that_earlier_code_began_goes_on(host, look, tmp_path, changes, points, references):
    with tarfile.open(BEGUN) as archive:
        archive.extractall(tmp_path, filter="data")
    trials, folder = look(tmp_path, **changes)
    before = {key(trial.user_attrs["point"]): trial.number for trial in trials.complete()}
    running = [(trial.number, study) for study in (0, 1) for trial in everything(trials)[study] if is_running(trial)]
    results = {path: path.read_bytes() for path in folder.results.iterdir()}
    held = stored(tmp_path / "records")
    assert before
    assert running
    assert host.run(tmp_path, **changes) == 0
    trials, folder = look(tmp_path, **changes)
    after = {key(trial.user_attrs["point"]): trial.number for trial in trials.complete()}
    assert len(after) == points
    assert len(trials.complete(trials.references)) == references
    assert before.items() <= after.items(), "a point that was complete has been done again"
    assert {everything(trials)[study][number].state.name for number, study in running} == {"FAIL"}
    assert all(path.read_bytes() == text for path, text in results.items())
    assert f"{points} complete" in (folder.path / "summary.md").read_text()
    now = stored(tmp_path / "records")
    for name, keys in now.items():
        assert len(keys) == len(set(keys)), f"record {name} has a response twice"
    if (version("torch"), version("transformers")) == ("2.13.0+cpu", "5.19.0"):  # others decode into other records
        assert all(now[name][: len(keys)] == keys for name, keys in held.items())
        found = [json.loads(path.read_text())["provenance"]["record"] for path in folder.results.iterdir()]
        assert {len(now[name.partition("/")[0]]) for name in found} == {6}

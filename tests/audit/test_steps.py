"""A folder of checkpoints: which steps are taken, and an audit of the tiny pair's."""

import json
from pathlib import Path

import pytest

from rlvr_dir.analysis.result import Analysis
from rlvr_dir.audit.steps import steps_of
from rlvr_dir.audit.weights import CLAIMS, weight_changes
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Pair
from tests.facts import refuses


def touched(folder, *places):
    for place in places:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("{}")
    return folder


def test_steps_of_every_layout(tmp_path):
    trl = touched(
        tmp_path / "trl", *(f"checkpoint-{step}/config.json" for step in (50, 100, 125, 150, 175)), "logs-5/x"
    )
    assert list(steps_of(trl, 50)) == [50, 100, 150, 175], "each that 50 divides, and the last"
    assert list(steps_of(trl, 1)) == [50, 100, 125, 150, 175]
    verl = touched(
        tmp_path / "verl", "global_step_9/actor/huggingface/config.json", "global_step_10/adapter_config.json"
    )
    assert steps_of(verl, 1) == {
        9: verl / "global_step_9" / "actor" / "huggingface", 10: verl / "global_step_10"
    }  # fmt: skip
    with refuses("rl", tmp_path / "trl" / "logs-5"):
        steps_of(tmp_path / "trl" / "logs-5", 1)


@pytest.fixture
def run(tmp_path):
    """The steps of the tiny pair in one folder."""
    for step in (2, 4, 6, 8):
        (tmp_path / f"step-{step}").symlink_to(resolve(Pair(base="tiny@base", rl=f"tiny@{step}")).rl)
    return tmp_path


def test_the_tiny_pair_at_its_steps(run, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("audit", "tiny@base", run, "--every", "4", "--rows", "weights", "--no-track")
    done = typed(*words, "--fail-if", "weights/change/all > 0.5", "--fail-if", "equal < 10")
    assert done.returncode == 1, done.stderr
    found = Analysis.read(tmp_path / "audit" / "audit.json")
    numbers = {(row["name"], row["pair"]): row["value"] for row in found.tables["rows"]}
    assert found.context["steps"] == {"step 4": 4, "this pair": 8}
    [change] = [claim for claim in CLAIMS if claim.name == "weights/change/all"]
    for column, step in found.context["steps"].items():
        alone = weight_changes(resolve(Pair(base="tiny@base", rl=f"tiny@{step}")))
        assert numbers["weights/change/all", column] == pytest.approx(change.estimate(alone).value)
    assert numbers["weights/change/all", "step 4"] < numbers["weights/change/all", "this pair"]
    assert (tmp_path / "audit" / "figures" / "steps-weights-change-all.svg").is_file()
    assert typed(*words, "--fail-if", "weights/change/all > 0.5").returncode == 0
    assert typed(*words, "--fail-if", "gain < 0").returncode == 2, "a row that was not asked for"
    assert json.loads(Path("audit/audit.json").read_text())["facts"]["pairs"]["step 4"][0]["rl"].endswith("step-4")


def test_a_sharpened_copy_is_a_column(typed, tmp_path, monkeypatch, peaked_pair):
    monkeypatch.chdir(tmp_path)
    words = ("audit", peaked_pair.base, peaked_pair.rl, "--tasks", "tiny_easy", "--limit", "2", "--samples", "2")
    words = (*words, "--rows", "tokens", "--backend", "transformers", "--max-tokens", "12", "--no-track", "--no-floor")
    done = typed(*words, "--placebo", "sharp", "--sharp-temperature", "0.25")
    assert done.returncode == 0, done.stderr
    rows = Analysis.read(tmp_path / "audit" / "audit.json").tables["rows"]
    numbers = {row["name"]: row["value"] for row in rows if row["pair"] == "sharpened base"}
    assert numbers["tokens/same_top/rl"] == numbers["tokens/same_top/base"] == 1
    assert numbers["tokens/entropy_rl/rl"] < numbers["tokens/entropy_base/rl"]
    assert {row["pair"] for row in rows} == {"this pair", "sharpened base"}
    assert typed(*words, "--placebo", "blunt").returncode == 2

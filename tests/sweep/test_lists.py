"""Several sweeps as one list: what is left of each is priced and added up, and all of them run."""

import pytest
import yaml

from rlvr_dir.cli.sweep import read
from rlvr_dir.config import parse
from rlvr_dir.errors import UserError
from rlvr_dir.sweep import sweeps_dir
from rlvr_dir.sweep.lists import Cost, SweepList, cost_table
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import open_sweep
from tests.sweep.made import SMALL, sweep


def test_the_paper_names_shipped_sweeps_alone():
    paper = SweepList.model_validate(yaml.safe_load((sweeps_dir() / "lists" / "paper.yaml").read_text()))
    assert [read(name, []).name for name in paper.sweeps] == list(paper.sweeps)
    with pytest.raises(UserError):
        parse(SweepList, {"name": "x", "sweep": {"a": "b"}})


def test_a_total_counts_what_is_missing_and_the_thresholds(tmp_path):
    total = open_sweep(sweep(), Places.under(tmp_path)).objective.estimate().total
    assert total == Cost(jobs=10, responses=10 * 3 * 2, thresholds=0, tokens=10 * 3 * 2 * 40)
    matched = sweep(parameters={"decode.tau": {"ratio": [0.1, 0.2]}}, decode={})
    estimate = open_sweep(matched, Places.under(tmp_path)).objective.estimate()
    ways = [f"{way} at {share} % flagged" for share in (10, 20) for way in ("replace", "reject", "veto")]
    assert [row.label for row in estimate.rows] == ["base", "rl", *ways]
    assert estimate.thresholds == (2 * 6, 2 * 6 * 40)
    assert len(estimate.notes) == 1
    total = estimate.total
    gated = open_sweep(matched.replace(decode={"gamma": 0.05}), Places.under(tmp_path)).objective.estimate()
    assert gated.rows[-4].label == "extrapolate at 20 % flagged γ0.05"
    assert (total.thresholds, total.responses) == (2 * 6, 8 * 6)
    assert total.tokens == 60 * 40
    for gamma, ways in ({}, 2 + 15), ({"decode.gamma": {"values": [0.1]}}, 2 + 20):  # with controls
        search = {"method": "tpe", "run_cap": 5, "parameters": {"decode.tau": {"min": -1, "max": -0.1}, **gamma}}
        total = open_sweep(sweep(**search, decode={}), Places.under(tmp_path)).objective.estimate().total
        assert (total.jobs, total.responses) == (ways, ways * 6)


def test_the_table_adds_what_is_left():
    costs = {"a": ("tab:a", Cost(3, 10, 2, 10_800_000)), "b": ("tab:b", Cost(1, 5, 0, 3_600_001))}
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in cost_table(costs).split("\n")[2:5]]
    assert rows == [
        ["a", "tab:a", "3", "10", "2", "10,800,000"],
        ["b", "tab:b", "1", "5", "0", "3,600,001"],
        ["all", "", "4", "15", "2", "14,400,001"],
    ]


def test_all_of_them_run_and_what_is_said_of_one_is_refused(typed, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**SMALL, "name": name, "limit": 1}))
    both = tmp_path / "both.yaml"
    both.write_text(
        yaml.safe_dump({"name": "both", "sweeps": {str(tmp_path / f"{n}.yaml"): n for n in ("one", "two")}})
    )
    done = typed("sweep", "run", str(both), "--no-track", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "| tiny_easy (1 of 240 problems) |" in " ".join(done.stdout.split())
    assert not any(mark in done.stdout for mark in ("\\_", "**", "<u>", "!["))
    assert all((tmp_path / "sweeps" / name / "summary.json").is_file() for name in ("one", "two"))
    done = typed("sweep", "run", str(both), "--dry-run", "--out", str(tmp_path))
    assert " 0 |" in done.stdout  # all is in the records
    done = typed("sweep", "run", str(both), "--set", "limit=2", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "--set" in done.stderr

"""Links from a report's numbers to runs, and to comparisons; what a view of them has."""

import json
from urllib.parse import unquote

import pytest

from rlvr_dir.tracking import comparison_link, log_result, run_links, views
from rlvr_dir.tracking.store import TrackingStore
from rlvr_dir.tracking.views import all_links
from tests import commands
from tests.tracking.made import GRID, result


@pytest.fixture
def three(store):
    """A store with three runs, and the folder of their results."""
    folder = store / "results"
    folder.mkdir()
    for decoding in GRID[:3]:
        one = result(decoding)
        log_result(one, store)
        one.write(folder)
    return store, folder


def test_every_result_of_a_report_leads_to_its_run(three):
    store, folder = three
    links = run_links(store, 5999)
    assert set(links) == {result(decoding).config_hash for decoding in GRID[:3]}
    words = ["report", str(folder), "--runs", str(store), "--ui", "5999", "--out", str(store / "out"), "--tokens", "0"]
    commands.run(*words)
    page = (store / "out/report.html").read_text()
    assert all(page.count(address) == 1 for address in links.values())


def test_a_report_to_be_sent_has_no_address_of_this_machine(three):
    store, folder = three
    commands.run("report", folder, "--runs", store, "--out", store / "out")
    assert "127.0.0.1" not in (store / "out/report.html").read_text()


@pytest.mark.parametrize(("version", "known"), [("3.17.9", True), ("4.0.0", False), ("", False), ("3.2.1", False)])
def test_pages_of_another_version_get_the_filter(three, version, known, monkeypatch):
    monkeypatch.setattr(views, "_version", lambda place: version)
    links = comparison_link(three[0], "rlvr-dir-aime24")
    assert (links.charts != links.plain) is known


def states(store, name):
    tags = TrackingStore.at(store).client().get_experiment_by_name(name).tags
    return {key: json.loads(value) for key, value in tags.items() if key.startswith("mlflow.sharedViewState.")}


def test_what_differs_between_runs_gets_a_column(store):
    for run in (result(GRID[0]), result(GRID[2]), result(GRID[2], seed=1), result(GRID[3], samples=2)):
        log_result(run, store)
    comparison_link(store, "rlvr-dir-aime24")
    [view] = states(store, "rlvr-dir-aime24").values()
    names = [column.split("`")[1] for column in view["selectedColumns"]]
    assert names[:6] == ["avg_at_4", "avg_at_4_se", "pass_at_2", "changed_ratio", "replacement_ratio", "tau"]
    assert names[6:] == ["gamma", "n_samples", "seed"]


def test_an_experiment_of_two_tasks_has_a_link_for_each(store):
    for task in ("tiny_easy", "tiny_medium"):
        for decoding in GRID[:2]:
            log_result(result(decoding, task=task), store, "rlvr-dir-demo")
    titled = all_links(store, 5999)
    assert [title for title, _ in titled] == [f"rlvr-dir-demo: {task}, 2 runs" for task in ("tiny_easy", "tiny_medium")]
    assert len(states(store, "rlvr-dir-demo")) == 2
    links = comparison_link(store, "rlvr-dir-demo", 5999, task="tiny_easy")
    assert links == titled[0][1]
    assert 'searchFilter=tags.kind = "eval" and params.task = "tiny_easy"' in unquote(links.plain)


def test_no_runs_no_link(store):
    assert comparison_link(store, "rlvr-dir-aime24") is None
    assert all_links(store) == []

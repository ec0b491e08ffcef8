"""Numbers lead to their runs; a view that MLflow's pages no longer know is a plain filter; imports become runs."""

import json

import pytest

from harness.exchange.imported import import_foreign
from harness.spec import Decoding
from harness.tracking import comparison_link, log_result, run_links, sync, views
from harness.tracking.store import TrackingStore
from tests import commands
from tests.exchange.foreign import inspect_log
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
    run = TrackingStore.at(store).client().get_run(links[result(GRID[0]).config_hash].rpartition("/")[2])
    assert run.data.params["mode"] == "base"


def test_a_report_to_be_sent_has_no_address_of_this_machine(three):
    store, folder = three
    commands.run("report", folder, "--runs", store, "--out", store / "out")
    assert "127.0.0.1" not in (store / "out/report.html").read_text()


def _runs(store):
    client = TrackingStore.at(store).client()
    return client.search_runs([each.experiment_id for each in client.search_experiments()])


@pytest.mark.parametrize(("version", "known"), [("3.17.9", True), ("4.0.0", False), ("", False), ("3.2.1", False)])
def test_pages_of_another_version_get_the_filter(three, version, known, monkeypatch):
    monkeypatch.setattr(views, "_version", lambda place: version)
    links = comparison_link(three[0], "rlvr-dir-aime24")
    assert (links.charts != links.plain) is known


def test_imported_records_become_runs_that_say_what_is_not_known(store, tmp_path):
    log = inspect_log()
    for sample in log["samples"]:
        del sample["output"]["usage"]
    (tmp_path / "log.json").write_text(json.dumps(log))
    import_foreign(tmp_path / "claims", [tmp_path / "log.json"], decoding=Decoding(mode="rl"))
    words = ["track", "sync", str(tmp_path / "claims"), "--tracking", TrackingStore.at(store).uri]
    done = commands.run(*words)
    assert "1 logged, 0 there already" in done.stdout
    [run] = _runs(store)
    assert run.data.metrics["avg_at_2"] == 75.0
    assert "mean_tokens" not in run.data.metrics
    assert run.data.params["imported"] == "inspect"
    assert run.data.params["lacks"] == "seed, n_tokens, token_ids, delta_logp"
    assert "seed" not in run.data.params
    assert run.data.params["temperature"] == "0.6"
    said = run.data.tags["mlflow.note.content"]
    assert "seed 0" not in said
    assert len(sync(tmp_path / "claims", store).present) == 1

"""Links to a comparison: which columns, which runs, one link a task."""

import json
from urllib.parse import unquote

from harness.tracking import comparison_link, log_result
from harness.tracking.store import TrackingStore
from harness.tracking.views import all_links
from tests.tracking.made import GRID, result


def views(store, name):
    tags = TrackingStore.at(store).client().get_experiment_by_name(name).tags
    return {key: json.loads(value) for key, value in tags.items() if key.startswith("mlflow.sharedViewState.")}


def test_what_differs_between_runs_gets_a_column(store):
    for run in (result(GRID[0]), result(GRID[2]), result(GRID[2], seed=1), result(GRID[3], samples=2)):
        log_result(run, store)
    comparison_link(store, "rlvr-dir-aime24")
    [view] = views(store, "rlvr-dir-aime24").values()
    names = [column.split("`")[1] for column in view["selectedColumns"]]
    assert names[:6] == ["avg_at_4", "avg_at_4_se", "pass_at_2", "changed_ratio", "replacement_ratio", "tau"]
    assert names[6:] == ["gamma", "n_samples", "seed"]
    assert view["orderByKey"] == "metrics.`avg_at_4`"


def test_an_experiment_of_two_tasks_has_a_link_for_each(store):
    for task in ("tiny_easy", "tiny_medium"):
        for decoding in GRID[:2]:
            log_result(result(decoding, task=task), store, "rlvr-dir-demo")
    titled = all_links(store, 5999)
    assert [title for title, _ in titled] == [f"rlvr-dir-demo: {task}, 2 runs" for task in ("tiny_easy", "tiny_medium")]
    assert len(views(store, "rlvr-dir-demo")) == 2
    links = comparison_link(store, "rlvr-dir-demo", 5999, task="tiny_easy")
    assert links == titled[0][1]
    assert links.table + "&compareRunsMode=CHART" == links.charts
    assert 'searchFilter=tags.kind = "eval" and params.task = "tiny_easy"' in unquote(links.plain)


def test_no_runs_no_link(store):
    assert comparison_link(store, "rlvr-dir-aime24") is None
    assert all_links(store) == []

"""Link to MLflow's pages: a saved comparison of one task's runs, and a plain filter that needs no saved view."""

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from rlvr_dir.tracking.store import TrackingStore, every, patience

KIND = 'tags.kind = "eval"'
FINISHED = "attributes.status = 'FINISHED'"
SEEN = "3.17"  # MLflow's minor version for which the saved view was made and tested in a browser
_SECONDS = 5.0  # for a server to return its version
_TAG = "mlflow.sharedViewState."  # where MLflow's pages look up a shared view, by its key
# What distinguishes runs besides τ and γ: a column each, if the runs differ in it.
_TELLING = ("criterion", "primary", "base_model", "rl_model", "temperature", "top_p", "n_samples", "n_problems", "seed")


class Links(NamedTuple):
    """Hold three links: `charts` and `table` open the two sides of the saved comparison, between which the page
    switches.

    `plain` shows the same runs by a filter only. All three are equal if the view could not be saved, or the pages do
    not know its form.
    """

    charts: str
    table: str
    plain: str


def comparison_link(store: Path | str, experiment: str, port: int = 5000, task: str | None = None) -> Links | None:
    """Save a comparison of an experiment's evaluations in its tags and link to it; None if that is not possible.

    `task` restricts an experiment with several tasks to one. `port` is that of `rlvr-dir ui`; links of a server lead to
    it.
    """
    try:
        place = TrackingStore.at(store)
        if not place.exists:
            return None
        with patience():
            client = place.client()
            return _links(client, place, client.get_experiment_by_name(experiment).experiment_id, port, task)
    except Exception:
        return None


def all_links(store: Path | str, port: int = 5000) -> list[tuple[str, Links]]:
    """Return a title and the links of each task in each experiment with evaluations.

    Raises:
        Exception: Any error of MLflow, if the store cannot be read.
    """
    place, titled = TrackingStore.at(store), []
    with patience():
        client = place.client()
        for experiment in every(client.search_experiments):
            kind_runs = every(client.search_runs, [experiment.experiment_id], KIND)
            tasks = Counter(run.data.params.get("task", "") for run in kind_runs)
            for task, runs in sorted(tasks.items()):
                links = _links(client, place, experiment.experiment_id, port, task if len(tasks) > 1 else None)
                if links is not None:
                    titled.append((f"{experiment.name}: {task}, {runs} runs", links))
    return titled


def _links(client: Any, place: TrackingStore, experiment_id: str, port: int, task: str | None) -> Links | None:
    wanted = KIND + (f' and params.task = "{task}"' if task else "")
    evaluations = every(client.search_runs, [experiment_id], wanted)
    if not evaluations:
        return None
    view = comparison(evaluations, wanted)
    pages = f"{_home(place, port)}/#/experiments/{experiment_id}/runs?workflowType=machine_learning&"
    order = {"searchFilter": wanted, "orderByKey": view["orderByKey"], "orderByAsc": "false"}
    plain = pages + urlencode(order, quote_via=quote)
    key = re.sub(r"[^\w.-]", "-", f"rlvr-dir-{task}" if task else "rlvr-dir")
    if _version(place).startswith(f"{SEEN}."):  # the view is MLflow's own, and may change; then the filter is used
        with suppress(Exception):
            client.set_experiment_tag(experiment_id, _TAG + key, json.dumps(view))
            table = f"{pages}viewStateShareKey={key}"
            return Links(f"{table}&compareRunsMode=CHART", table, plain)
    return Links(plain, plain, plain)


def run_links(store: Path | str, port: int = 5000) -> dict[str, str]:
    """Return the address of the latest finished run of each config hash in a store; for a folder, in `rlvr-dir ui`.

    Raises:
        Exception: Any error of MLflow, if the store cannot be read.
    """
    place = TrackingStore.at(store)
    if not place.exists:
        return {}
    with patience():
        client = place.client()
        experiments = [experiment.experiment_id for experiment in every(client.search_experiments)]
        runs = every(client.search_runs, experiments, f"{KIND} and {FINISHED}")
    runs.sort(key=lambda run: run.info.start_time)
    pages = f"{_home(place, port)}/#/experiments"
    addresses = [(run, f"{pages}/{run.info.experiment_id}/runs/{run.info.run_id}") for run in runs]
    return {run.data.tags.get("config_hash", ""): address for run, address in addresses}


def _version(place: TrackingStore) -> str:
    """Return the version of a store's pages: that of MLflow here, or the server's; empty if the server does not return
    it."""
    if place.database is not None:
        import mlflow

        return mlflow.__version__
    try:
        with urlopen(f"{place.uri}/version", timeout=_SECONDS) as answer:
            return answer.read(100).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""


def _home(place: TrackingStore, port: int) -> str:
    return place.uri if place.database is None else f"http://127.0.0.1:{port}"


def comparison(evaluations: list[Any], wanted: str) -> dict[str, Any]:
    """Return the state of MLflow's runs page (as of 3.17) that shows evaluations as one comparison.

    Columns: Avg@n, its error, Pass@k, changed and replaced shares, τ, γ, and what else distinguishes the runs. One
    chart shows Avg@n against the share of changed tokens; base and RL are at 0 there, as levels for comparison.
    """
    average, passing = _scores(evaluations)
    metrics = [name for name in (average, f"{average}_se", passing, "changed_ratio", "replacement_ratio") if name]
    params = ["tau", "gamma"]
    telling = [name for name in _TELLING if len({run.data.params.get(name) for run in evaluations} - {None}) > 1]
    columns = [*(f"metrics.`{name}`" for name in metrics), *(f"params.`{name}`" for name in params + telling)]
    view = {"isReordered": False, "columns": 1, "cardHeight": 460}  # pixels
    axes = {"xaxis": "changed_ratio", "yaxis": average}
    chart = {"type": "SCATTER", **{axis: {"key": name, "type": "METRIC"} for axis, name in axes.items()}}
    common = {"metricSectionId": "comparison", "runsCountToCompare": 100, "deleted": False, "isGenerated": False}
    return {
        "searchFilter": wanted,
        "orderByKey": f"metrics.`{average}`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {name: max(60, 7 * len(name.split("`")[1]) + 34) for name in columns},  # pixels
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsVisibilityMap": {},
        "runsHiddenMode": "SHOW_ALL",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "autoRefreshEnabled": True,
        "compareRunSections": [
            {**view, "uuid": "comparison", "name": "Comparison", "display": True},
            {**view, "uuid": "rest", "name": "Model metrics", "display": False},
        ],
        "compareRunCharts": [{"uuid": "rlvr-dir-scatter", **common, **chart}],
    }


def _scores(evaluations: list[Any]) -> tuple[str, str | None]:
    """Return the names of Avg@n, with the n of most runs, and of Pass@k with the largest k up to n/2."""
    names = Counter(name for run in evaluations for name in run.data.metrics)
    averages = [name for name in names if re.fullmatch(r"avg_at_\d+", name)]
    if not averages:
        return "avg_at_32", None
    average = max(averages, key=lambda name: (names[name], _k(name)))
    ks = [_k(name) for name in names if re.fullmatch(r"pass_at_\d+", name) and _k(name) <= max(2, _k(average) // 2)]
    return average, f"pass_at_{max(ks)}" if ks else None


def _k(name: str) -> int:
    return int(name.rpartition("_")[2])

"""What the stock `lm_eval` command keeps by default: rollouts in a record store, results in MLflow.

`harness._autoload` puts `evaluated` around lm-eval's `evaluate`. Which places are meant is said by the model arguments
`records` and `tracking`, which `harness.evals.front` fills in for the command; `off` declines.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.evals.chat import completed
from harness.evals.lm import RlvrDirLM
from harness.evals.lm_task import task_scores
from harness.evals.loop import versions
from harness.evals.result import EvalResult
from harness.evals.task import SampledMathTask
from harness.evals.task_file import ScoredTask
from harness.text import visible


def evaluated(evaluate: Callable[..., Any], lm: RlvrDirLM, arguments: Mapping[str, Any]) -> Any:
    """Run lm-eval's `evaluate` of our model: prompts through its chat template; keep and log what came of it.

    Of tasks that are not ours, samples are logged for their scores by problem, and taken out again where the user has
    not asked for them. Nothing depends on the log in MLflow: what fails there is a warning.
    """
    from harness.tracking import resolve_store

    own = lm.own
    store = resolve_store(own.runs, own.runs) if own.runs else None  # a bad one is refused before any weights load
    given = completed(lm, arguments)
    loaded, chosen = (given.get("task_dict") or {}).get("tasks", {}), given.get("samples") or {}
    keeps = store is not None or own.store is not None
    theirs = {name: task for name, task in loaded.items() if keeps and not isinstance(task, SampledMathTask)}
    lm.tasks = {name: ScoredTask.of(task, chosen.get(name)) for name, task in theirs.items()}
    asked = given.get("log_samples", True)  # as in lm-eval
    try:
        found = evaluate(**{**given, "log_samples": bool(asked or theirs)})
    except KeyboardInterrupt:
        if own.store:
            _say(f"interrupted; what was decoded is kept in {own.store}, and the same command goes on from there")
        raise
    if found is None:
        return None
    _mark_limited(found)
    results = _results(lm, found, arguments.get("limit")) if keeps else []
    if not asked:
        found.pop("samples", None)
    places = [f"rollouts are kept in {own.store}"] if own.store else []
    if store is not None and _log(results, store):
        option = "tracking" if "://" in str(store) else "store"
        places.append(f"results are in MLflow at {store} (`rlvr-dir ui --{option} {store}` shows them)")
    if places:
        _say(f"{'; '.join(places)}; the model arguments records=off and tracking=off decline")
    return found


def _results(lm: RlvrDirLM, found: Mapping[str, Any], limit: Any) -> list[EvalResult]:
    """Return the result of each job, others' tasks by the metrics that lm-eval computed; those are kept as well."""
    about = {"chat": lm.get_model_info()["rlvr_dir"]["chat"], "versions": versions(), "limit": limit, "argv": sys.argv}
    results: list[EvalResult] = []
    for each in lm.done:
        name = each.job.task
        if each.job.golds:
            results.append(each.result(about))
        elif name in lm.tasks:
            task = lm.tasks[name]
            results.append(
                each.scored(task, task_scores(task.task, found["results"][name], found["samples"][name]), about)
            )
    return results


def _log(results: list[EvalResult], store: Path | str) -> bool:
    """Write and log each result, as `rlvr-dir eval` does; whether all are logged."""
    from harness.tracking import log_result

    logged = True
    for result in results:
        if "://" not in str(store):
            Path(store).mkdir(parents=True, exist_ok=True)
            result.write(Path(store))
        logged = log_result(result, store) is not None and logged
    return logged


def _mark_limited(reported: Mapping[str, Any]) -> None:
    """Say in lm-eval's tables, beside the name, of how many problems a score is, where that is not all of them."""
    sizes = {task: (n["effective"], n["original"]) for task, n in reported.get("n-samples", {}).items()}
    for group, tasks in reported.get("group_subtasks", {}).items():
        if tasks and all(task in sizes for task in tasks):
            sizes[group] = tuple(map(sum, zip(*(sizes[task] for task in tasks), strict=True)))
    for rows in (reported["results"], reported.get("groups", {})):
        for name, row in rows.items():
            asked, whole = sizes.get(name, (0, 0))
            if asked < whole and "problems)" not in row.get("alias", name):  # a group is in both, as one object
                row["alias"] = f"{row.get('alias', name)} ({asked} of {whole} problems)"


def _say(text: str) -> None:
    print(f"rlvr_dir: {visible(text, None)}", file=sys.stderr)

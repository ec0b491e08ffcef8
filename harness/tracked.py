"""What the stock `lm_eval` command keeps by default: rollouts in a record store, results in MLflow.

`harness._autoload` puts `tracked` around lm-eval's `simple_evaluate`, and `evaluated` around its `evaluate`. Which
places are meant is said by the model arguments `records` and `tracking`, which `harness.evals.front` fills in for the
command; `off` declines.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evals.args import parse_model_args
from harness.evals.chat import completed
from harness.evals.lm_task import task_scores
from harness.evals.loop import Done, versions
from harness.evals.result import EvalResult
from harness.evals.task_file import ScoredTask
from harness.text import visible


def tracked(simple_evaluate: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Run lm-eval's evaluation of our model, keep and log what came of it, and say in one line where things went.

    Nothing depends on the log: what fails there is a warning.
    """
    from lm_eval.utils import simple_parse_args_string

    from harness.evals.lm import RlvrDirLM
    from harness.tracking import resolve_store

    given = arguments.get("model_args") or {}
    own = parse_model_args(simple_parse_args_string(given) if isinstance(given, str) else given).own
    store = resolve_store(own.runs, own.runs) if own.runs else None  # a bad one is refused before anything loads
    done: list[Done] = []
    seen = _Seen()
    RlvrDirLM.listeners.append(done.append)
    _watched.append(seen)
    try:
        reported = simple_evaluate(**arguments)
    except KeyboardInterrupt:
        if own.store:
            _say(f"interrupted; what was decoded is kept in {own.store}, and the same command goes on from there")
        raise
    finally:
        RlvrDirLM.listeners.remove(done.append)
        _watched.pop()
    if reported is not None:
        _mark_limited(reported)
    places = [f"rollouts are kept in {own.store}"] if own.store else []
    results = [] if reported is None else _results(done, reported, seen, arguments.get("limit"))
    if store is not None and reported is not None and _log(results, store):
        option = "tracking" if "://" in str(store) else "store"
        places.append(f"results are in MLflow at {store} (`rlvr-dir ui --{option} {store}` shows them)")
    if places:
        _say(f"{'; '.join(places)}; the model arguments records=off and tracking=off decline")
    return reported


@dataclass
class _Seen:
    """What lm-eval's `evaluate` was given and has found: the tasks that are not ours, and their logged samples."""

    tasks: dict[str, ScoredTask] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


_watched: list[_Seen] = []  # by `tracked`; empty where lm-eval is called from Python with a model of ours


def evaluated(evaluate: Callable[..., Any], lm: Any, arguments: Mapping[str, Any]) -> Any:
    """Run lm-eval's `evaluate` of our model: prompts through its chat template, and others' tasks noted for `tracked`.

    `evaluate` alone knows the task objects and what each problem scored. Its samples are logged for that, and taken out
    again where the user has not asked for them.
    """
    from harness.evals.task import SampledMathTask

    given = completed(lm, arguments)
    loaded = (given.get("task_dict") or {}).get("tasks", {})
    theirs = {name: task for name, task in loaded.items() if not isinstance(task, SampledMathTask)}
    if not theirs or not _watched:
        return evaluate(**given)
    seen, chosen = _watched[-1], given.get("samples") or {}
    seen.tasks = lm.tasks = {name: ScoredTask.of(task, chosen.get(name)) for name, task in theirs.items()}
    found = evaluate(**{**given, "log_samples": True})
    seen.samples = {name: found["samples"][name] for name in theirs}
    if not given.get("log_samples"):
        del found["samples"]
    return found


def _results(done: list[Done], reported: Mapping[str, Any], seen: _Seen, limit: Any) -> list[EvalResult]:
    """Return the result of each job, others' tasks by the metrics that lm-eval computed; those are kept as well."""
    chat = reported["config"]["rlvr_dir"]["chat"]
    about = {"chat": chat, "versions": versions(), "limit": limit, "argv": sys.argv}
    results: list[EvalResult] = []
    for each in done:
        name = each.job.task
        if each.job.golds:
            results.append(each.result(about))
        elif name in seen.tasks:
            task = seen.tasks[name]
            scored = task_scores(task.task, reported["results"][name], seen.samples[name])
            results.append(each.scored(task, scored, about))
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

"""Store what the `lm_eval` command produces: rollouts in a record store, results in MLflow.

`rlvr_dir_autoload` wraps lm-eval's `evaluate` in `evaluated`. The model arguments `records` and `tracking` set the
places; `rlvr_dir.lm_eval_model.args` fills them in for the command, and `off` turns them off.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlvr_dir.evals.loop import versions
from rlvr_dir.lm_eval_model.lm import RlvrDirLM
from rlvr_dir.problems.generation import has_template
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark, refuse_likelihoods, task_scores
from rlvr_dir.problems.task import SampledMathTask
from rlvr_dir.results.show import warnings
from rlvr_dir.text import visible


def evaluated(evaluate: Callable[..., Any], lm: RlvrDirLM, arguments: Mapping[str, Any]) -> Any:
    """Run lm-eval's `evaluate` for our model with its chat template, and store and log the results.

    For tasks that are not ours, samples are logged to get their scores by problem, and removed again if the user did
    not request them. Logging to MLflow is optional, so a failure is a warning.

    Raises:
        UserError: A task needs likelihoods; nothing has been decoded then.
    """
    from rlvr_dir.tracking import log_result, resolve_store
    from rlvr_dir.tracking.store import ui_command

    own, call = lm.own, dict(arguments)
    store = resolve_store(own.tracking, own.tracking) if own.tracking else None  # checked before any weights load
    if not call.get("apply_chat_template") and own.chat != "off" and has_template(lm.engine):
        turns = call.get("fewshot_as_multiturn") is not False  # lm-eval's default with a template
        call |= {"apply_chat_template": True, "fewshot_as_multiturn": turns}
    loaded, chosen = (call.get("task_dict") or {}).get("tasks", {}), call.get("samples") or {}
    for name, task in loaded.items():
        refuse_likelihoods(task, name)
    keeps, log_samples = bool(store or own.records), call.get("log_samples", True)  # as in lm-eval
    others = {name: task for name, task in loaded.items() if keeps and not isinstance(task, SampledMathTask)}
    lm.tasks = {name: LmEvalBenchmark.of_task(task, chosen.get(name)) for name, task in others.items()}
    try:
        evaluation = evaluate(**{**call, "log_samples": bool(log_samples or others)})
    except KeyboardInterrupt:
        if own.records:
            _say(f"interrupted; finished responses are stored in {own.records}: run the same command again to resume")
        raise
    if evaluation is None:
        return None
    _mark_limited(evaluation)
    chat, logged = lm.get_model_info()["rlvr_dir"]["chat"], store is not None
    provenance = {"chat": chat, "versions": versions(), "limit": arguments.get("limit"), "argv": sys.argv}
    results = []
    for done in lm.done if keeps else ():
        name, task = done.job.task, done.job.lm_eval_task
        if task is None and not done.job.golds:
            continue
        scores = task_scores(task.task, evaluation["results"][name], evaluation["samples"][name]) if task else None
        result = done.result(provenance, scores)
        results.append(result)
        if store is not None and "://" not in str(store):
            Path(store).mkdir(parents=True, exist_ok=True)
            result.write(Path(store))
        logged = store is not None and log_result(result, store) is not None and logged
    for sentence in warnings(results):
        _say(sentence)
    if not log_samples:
        evaluation.pop("samples", None)
    places = [f"responses are stored in {own.records}"] if own.records else []
    if logged and store is not None:
        places.append(f"results are in MLflow (`{ui_command(store)}` shows them)")
    if places:
        _say(f"{'; '.join(places)}; the model arguments records=off and tracking=off turn this off")
    return evaluation


def _mark_limited(reported: Mapping[str, Any]) -> None:
    """Add the number of problems to a score's name in lm-eval's tables, if these are not all of them."""
    sizes = {task: (n["effective"], n["original"]) for task, n in reported.get("n-samples", {}).items()}
    for group, tasks in reported.get("group_subtasks", {}).items():
        if tasks and all(task in sizes for task in tasks):
            sizes[group] = tuple(map(sum, zip(*(sizes[task] for task in tasks), strict=True)))
    for rows in (reported["results"], reported.get("groups", {})):
        for name, row in rows.items():
            n_asked, whole = sizes.get(name, (0, 0))
            if n_asked < whole and "problems)" not in row.get("alias", name):  # a group is in both, as one object
                row["alias"] = f"{row.get('alias', name)} ({n_asked} of {whole} problems)"


def _say(text: str) -> None:
    print(f"rlvr_dir: {visible(text, None)}", file=sys.stderr)

"""What the stock `lm_eval` command keeps by default: rollouts in a record store, results in MLflow.

`harness._autoload` puts `tracked` around lm-eval's `simple_evaluate`. Which places are meant is said by the model
arguments `records` and `tracking`, which `harness.evals.front` fills in for the command; `off` declines.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.evals.args import parse_model_args
from harness.evals.loop import Done, versions


def tracked(simple_evaluate: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Run lm-eval's evaluation of our model, log what came of it, and say in one line where things went.

    Nothing depends on the log: what fails there is a warning.
    """
    from lm_eval.utils import simple_parse_args_string

    from harness.evals.lm import RlvrDirLM
    from harness.tracking import resolve_store

    given = arguments.get("model_args") or {}
    own = parse_model_args(simple_parse_args_string(given) if isinstance(given, str) else given).own
    store = resolve_store(own.runs, own.runs) if own.runs else None  # a bad one is refused before anything loads
    done: list[Done] = []
    RlvrDirLM.listeners.append(done.append)
    try:
        reported = simple_evaluate(**arguments)
    except KeyboardInterrupt:
        if own.store:
            _say(f"interrupted; what was decoded is kept in {own.store}, and the same command goes on from there")
        raise
    finally:
        RlvrDirLM.listeners.remove(done.append)
    if reported is not None:
        _mark_limited(reported)
    places = [f"rollouts are kept in {own.store}"] if own.store else []
    if store is not None and reported is not None and _log(done, reported, store, arguments.get("limit")):
        option = "tracking" if "://" in str(store) else "store"
        places.append(f"results are in MLflow at {store} (`rlvr-dir ui --{option} {store}` shows them)")
    if places:
        _say(f"{'; '.join(places)}; the model arguments records=off and tracking=off decline")
    return reported


def _log(done: list[Done], reported: Mapping[str, Any], store: Path | str, limit: Any) -> bool:
    """Log each job: ours as `rlvr-dir eval` does, others with the metrics that lm-eval computed; whether all are."""
    from harness.evals.foreign import LmEvalResult
    from harness.tracking import log_result

    chat = reported["config"]["rlvr_dir"]["chat"]
    about = {"chat": chat, "versions": versions(), "limit": limit, "argv": sys.argv}
    logged = True
    for each in done:
        if each.job.golds:
            result = each.result(about)
            if "://" not in str(store):
                Path(store).mkdir(parents=True, exist_ok=True)
                result.write(Path(store))
        else:
            result = LmEvalResult.of(each, reported["results"].get(each.job.task, {}), about)
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
    print(f"rlvr_dir: {text}", file=sys.stderr)

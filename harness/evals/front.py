"""What happens before the stock `lm_eval` command evaluates our model: our tasks put first, the request checked."""

import os
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from types import TracebackType
from typing import Any

from harness.errors import UserError
from harness.evals.args import CACHE_REFUSAL, announce_tiny, parse_model_args
from harness.evals.data import BENCHMARKS, GROUPS, find_benchmark, named, preflight, task_config, tasks_dir
from harness.spec import TINY
from harness.spec.pair import OPTIONS

# Where the stock command keeps rollouts and logs results, as `rlvr-dir eval` does; `off` declines.
PLACES = {"records": "runs/records", "tracking": os.environ.get("RLVR_DIR_TRACKING_URI") or "runs"}


def prepare(config: Any) -> list[Any]:
    """Check and complete a request of the stock command for our model, before tasks are indexed or models load.

    `config` is lm-eval's `EvaluatorConfig`. Return the tasks of benchmarks that are files (`PATH.jsonl`, `NAME=PATH`):
    lm-eval cannot find those, and they are taken off its list.

    Raises:
        UserError: a cache that would mix samples up, a bad model argument, or a benchmark without data.
    """
    sys.excepthook = one_line(sys.excepthook)
    if config.use_cache:
        raise UserError(CACHE_REFUSAL)
    if config.cache_requests:
        raise UserError("cache_requests is refused: its key knows neither the data file nor the prompt of a task")
    args = {**PLACES, **(config.model_args or {})}
    parsed = parse_model_args(args)
    config.model_args = args
    rest = {name: value for name, value in args.items() if name != "pair"}
    if parsed.spec.pair == TINY:  # lm-eval names its output folder after `pretrained`
        announce_tiny(parsed.spec, args)
        config.model_args = {"pretrained": TINY, **rest}
    elif "pair" in args:
        pair = parsed.spec.pair.model_dump(exclude_defaults=True)
        config.model_args = {**{OPTIONS.get(field, field): value for field, value in pair.items()}, **rest}
    given = config.include_path or []
    config.include_path = [str(tasks_dir()), *([given] if isinstance(given, str) else given)]
    names = [config.tasks] if isinstance(config.tasks, str) else config.tasks or []
    tasks = [part for name in names for part in (name.split(",") if isinstance(name, str) else [name])]
    files = [task for task in tasks if isinstance(task, str) and named(task)[1]]
    config.tasks = [task for task in tasks if task not in files]
    if doubled := [task for task in files if named(task)[0] in config.tasks]:
        raise UserError(f"task={doubled[0]!r} has the name of another task that is asked for; accepted: NAME=PATH")
    check_data([task for task in config.tasks if isinstance(task, str)], config.metadata or {})
    found = preflight(files, presentation=parsed.spec) if files else {}
    return [task_config(task, benchmark) for task, benchmark in found.items()]


def check_data(tasks: Iterable[str], metadata: Mapping[str, Any]) -> None:
    """Load the problems of every benchmark of ours among `tasks` (names, groups, patterns), to fail early."""
    patterns = list(tasks)
    for name in (*BENCHMARKS, *GROUPS):
        if any(fnmatch(name, pattern.strip()) for pattern in patterns):
            for benchmark in GROUPS.get(name, (name,)):
                find_benchmark(benchmark, metadata.get("data_dir"))


def one_line(previous: Any) -> Any:
    """Make an exception hook: a `UserError` is one line and status 2, all else is left to `previous`."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, UserError):
            print(f"rlvr_dir: {error}", file=sys.stderr)
            raise SystemExit(2)  # Python ends with the status that its hook asks for
        else:
            previous(kind, error, trace)

    return hook

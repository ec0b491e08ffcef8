"""What happens before the stock `lm_eval` command evaluates our model: our tasks put first, the request checked."""

import os
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from types import TracebackType
from typing import Any

from harness.errors import UserError
from harness.evals.args import CACHE_REFUSAL, announce_tiny, parse_model_args
from harness.evals.data import BENCHMARKS, GROUPS, problems, tasks_dir
from harness.spec import TINY

# Where the stock command keeps rollouts and logs results, as `rlvr-dir eval` does; `off` declines.
PLACES = {"records": "runs/records", "tracking": os.environ.get("RLVR_DIR_TRACKING_URI") or "runs"}


def prepare(config: Any) -> None:
    """Check and complete a request of the stock command for our model, before tasks are indexed or models load.

    `config` is lm-eval's `EvaluatorConfig`.

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
        config.model_args = {"pretrained": parsed.spec.pair.rl, "base": parsed.spec.pair.base, **rest}
    names = config.tasks.split(",") if isinstance(config.tasks, str) else config.tasks or []
    check_data([part for name in names if isinstance(name, str) for part in name.split(",")], config.metadata or {})
    given = config.include_path or []
    config.include_path = [str(tasks_dir()), *([given] if isinstance(given, str) else given)]


def check_data(tasks: Iterable[str], metadata: Mapping[str, Any]) -> None:
    """Load the problems of every benchmark of ours among `tasks` (names, groups, patterns), to fail early."""
    patterns = list(tasks)
    for name in (*BENCHMARKS, *GROUPS):
        if any(fnmatch(name, pattern.strip()) for pattern in patterns):
            for benchmark in GROUPS.get(name, (name,)):
                problems(benchmark, metadata.get("data_dir"))


def one_line(previous: Any) -> Any:
    """An exception hook that prints a `UserError` as one line and leaves everything else to `previous`."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, UserError):
            print(f"rlvr_dir: {error}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    return hook

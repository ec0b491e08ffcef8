"""Tasks of lm-eval that are not ours: loaded from a YAML that the user names, and what identifies one.

    rlvr-dir eval --tasks path/to/task.yaml
    rlvr-dir eval --tasks gsm8k,mine --include-path path/to

Functions that the YAML names (`!function judge.distance`) are run, as under `lm_eval --include_path`: a path comes from
a command line or a spec, never from a record.
"""

import inspect
import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.digest import digest, digest_of
from harness.errors import UserError
from harness.evals.benchmark import NAME, Benchmark, BenchmarkFacts
from harness.evals.chat import build_requests
from harness.evals.sampling import sampling_of
from harness.spec import Sampling
from harness.spec.evaluation import is_task_file

if TYPE_CHECKING:
    from harness.decode import Engine  # which imports torch; whoever reads results needs none

__all__ = ["LmEvalBenchmark", "ScoredTask", "declared", "instance_key", "is_task_file", "read_task", "score_name"]

GRADER = "lm-eval"
# What of a task's configuration makes a score of a response. Its documents and prompts identify the record.
_SCORES_BY = ("doc_to_target", "doc_to_choice", "process_results", "metric_list", "filter_list")
# A task's name in its YAML; lm-eval's own index, which reads 14,000 files as YAML for it, takes 25 s.
_DECLARES = re.compile(r"""^["']?task["']?:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9_.-]*)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)
_SEEDS = {"python": 0, "numpy": 1234, "fewshot": 1234}  # those of the `lm_eval` command


@dataclass(frozen=True, slots=True, eq=False)
class ScoredTask:
    """A task object of lm-eval's with what identifies it: its documents (`facts`), and what it scores by."""

    task: Any
    facts: BenchmarkFacts
    graded_with: dict[str, str]
    repeats: int = 1

    @classmethod
    def of(cls, task: Any, chosen: Sequence[int] | None = None) -> "ScoredTask":
        """Identify a task of lm-eval's; `chosen` are the documents of `--samples`, None is all."""
        docs = [json.dumps(doc, sort_keys=True, default=str) for doc in task.eval_docs]
        by = {name: _plain(getattr(task.config, name, None)) for name in _SCORES_BY}
        found = {"task": digest_of([by, task.OUTPUT_TYPE]), "version": str(task.VERSION), GRADER: version("lm_eval")}
        data = digest_of(docs if chosen is None else [docs, list(chosen)])
        return cls(task, BenchmarkFacts(data, len(docs)), found, task.config.repeats)

    def sampling(self, given: Sampling | None) -> tuple[Sampling, tuple[str, ...]]:
        """Return how its responses are drawn, and where they stop: as it says, but for what `given` says by name."""
        own, stop = sampling_of(self.task.config.generation_kwargs, samples=self.repeats, seed=0)
        return own if given is None else own.replace(**{"seed": given.seed, **given.said()}), stop

    def metrics(self, *, means: bool = False) -> dict[str, bool]:
        """Return the metrics that it declares, as its scores are named, and whether more of each is better.

        With `means` only those that lm-eval aggregates by its own `mean`.
        """
        from lm_eval.api.metrics import mean

        better, filters = self.task.higher_is_better(), [each.name for each in self.task._filters]
        by = self.task.aggregation()
        named = [metric for metric in better if not means or by.get(metric, mean) is mean]
        return {score_name(metric, f): better.get(metric) is not False for metric in named for f in filters}

    def instances(self, engine: "Engine", limit: int | None) -> list[Any]:
        """Return lm-eval's requests, one a document, with the prompts that the `lm_eval` command makes."""
        if self.task.config.num_fewshot is None:
            self.task.set_config(key="num_fewshot", value=0)
        self.task.set_fewshot_seed(seed=_SEEDS["fewshot"])
        with redirect_stderr(io.StringIO()):  # its bar
            return build_requests(self.task, engine, limit)


@dataclass(frozen=True, eq=False)
class LmEvalBenchmark(Benchmark):
    """A task of lm-eval's in the place of a benchmark; its problems are documents, of which only the ids are told."""

    theirs: ScoredTask = field(kw_only=True)

    @property
    def facts(self) -> BenchmarkFacts:
        """Return what identifies it."""
        return self.theirs.facts

    @property
    def grader(self) -> str:
        """Return who grades the responses: lm-eval, by the task's own metrics."""
        return GRADER

    @property
    def data(self) -> str:
        """Return the digest of its documents."""
        return str(self.theirs.facts.data)


def instance_key(instance: Any) -> str:
    """Name the problem of a request of lm-eval's within its task."""
    return f"{instance.doc_id}.{instance.idx}"


def score_name(metric: str, named: str) -> str:
    """Name a metric of the responses that a filter of that name gives."""
    return metric if named == "none" else f"{metric}/{named}"


def declared(include_path: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the YAML files of tasks by the names that they declare; those in `include_path` hide lm-eval's own.

    Raises:
        UserError: `include_path` is no folder.
    """
    if include_path is not None and not Path(include_path).expanduser().is_dir():
        raise UserError(f"include_path={include_path!r} is no folder; accepted: one with YAML files of tasks")
    package = find_spec("lm_eval")
    shipped = Path((package.submodule_search_locations or [""])[0] if package else "") / "tasks"
    folders = [shipped, *([Path(include_path).expanduser()] if include_path is not None else [])]
    return {name: files for folder in folders for name, files in _declared(str(folder.resolve())).items()}


@lru_cache(maxsize=8)
def _declared(folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for file in sorted(path for ending in ("yaml", "yml") for path in Path(folder).rglob(f"*.{ending}")):
        for name in _DECLARES.findall(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else ():
            found.setdefault(name, []).append(str(file))
    return {name: tuple(files) for name, files in found.items()}


def read_task(path: str) -> LmEvalBenchmark:
    """Load a task from its YAML, once a process; its code is run and its data read.

    Raises:
        UserError: no such file, lm-eval cannot load it, or it is no task whose responses are generated text.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"task={path!r}: {path} does not exist; accepted: the YAML file of a task of lm-eval")
    return _loaded(path, str(file.resolve()))


@lru_cache(maxsize=32)
def _loaded(path: str, file: str) -> LmEvalBenchmark:
    """Load the task in `file`, which is called `path` in what is said of it."""
    from lm_eval.tasks import TaskManager

    try:
        with _seeded(), redirect_stderr(io.StringIO()):
            loaded = TaskManager(include_defaults=False, metadata={}).load([file])
            tasks = list(loaded["tasks"].values())
            theirs = [ScoredTask.of(task) for task in tasks]
    except Exception as error:  # of lm-eval, of the data's library, of the user's own code
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"task={path!r} cannot be loaded by lm-eval ({type(error).__name__}: {reason})") from error
    if len(theirs) != 1 or loaded.get("groups"):
        raise UserError(f"task={path!r} is a group; accepted: the YAML file of a task, or several of them")
    [task], [scored] = tasks, theirs
    name = str(task.config.task)
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(
            f"task={path!r} has output_type={task.OUTPUT_TYPE!r}; accepted: generate_until, since a rule for decoding "
            "with two models assigns no likelihood to a given text"
        )
    if getattr(task, "MULTIMODAL", False) or getattr(task, "UNSAFE_CODE", False):
        what = "shows images or sound" if getattr(task, "MULTIMODAL", False) else "runs code that the models write"
        raise UserError(f"task={path!r} {what}, which is refused; accepted: a task of text that runs none")
    if not NAME.fullmatch(name):
        raise UserError(f"task={path!r}: task: {name!r} names folders; accepted: letters, digits, '_', '-' and '.'")
    return LmEvalBenchmark(name, tuple({"id": f"{i}.0"} for i in range(scored.facts.problems or 0)), theirs=scored)


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed what a task may draw from when it is loaded, as the `lm_eval` command does, and restore it."""
    state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(_SEEDS["python"])
    np.random.seed(_SEEDS["numpy"])
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _plain(value: Any) -> Any:
    """Return a part of a task's configuration as plain values; of code, its name and a digest of its whole file."""
    if callable(value):
        code = getattr(value, "func", value)
        try:
            source = Path(inspect.getsourcefile(code) or "").read_text(encoding="utf-8")
        except (OSError, TypeError):
            source = ""
        return [getattr(code, "__qualname__", type(code).__name__), digest(source)]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)

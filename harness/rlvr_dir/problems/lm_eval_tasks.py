"""Load tasks of lm-eval that are not ours from a YAML that the user names, identify them, and score like lm-eval.

    rlvr-dir eval --tasks path/to/task.yaml
    rlvr-dir eval --tasks gsm8k,mine --include-path path/to

Functions that the YAML names (`!function judge.distance`) are run, as under `lm_eval --include_path`. A path comes from
a command line or a spec, never from a record.

A score is what lm-eval's own `evaluate` computes from the responses: its filters, `process_results`, metrics and
aggregation, in its own units. It is stored in the result's file and in MLflow; the record contains the responses. Such
scores are not compared, so sweeps, trainings and reports reject the task (`rlvr_dir.results.result.lm_eval_refusal`).
"""

import inspect
import io
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rlvr_dir.config import Sampling
from rlvr_dir.digest import digest, digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.problems.benchmark import LM_EVAL, NAME, Benchmark, BenchmarkMetadata
from rlvr_dir.problems.generation import build_requests, sampling_of
from rlvr_dir.records import Key, Row
from rlvr_dir.stats import standard_error

if TYPE_CHECKING:
    from rlvr_dir.decode import Engine  # importing it imports torch, which reading results does not need

# The part of a task's configuration that determines a score. Its documents and prompts identify the record.
_SCORES_BY = ("doc_to_target", "doc_to_choice", "process_results", "metric_list", "filter_list")
# A task's name in its YAML. lm-eval's own index parses 14,000 files as YAML, which takes 25 s.
_DECLARES = re.compile(r"""^["']?task["']?:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9_.-]*)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)
_SEEDS = {"python": 0, "numpy": 1234, "fewshot": 1234}  # as in the `lm_eval` command
_NUMBERS = (int, float, np.number, np.bool_)


@dataclass(frozen=True, eq=False, kw_only=True)
class LmEvalBenchmark(Benchmark):
    """Present an lm-eval task as a benchmark; its problems are documents, of which only the ids are known.

    `of_documents` identifies these, and `graded_with` how the task scores.
    """

    task: Any
    of_documents: BenchmarkMetadata
    graded_with: dict[str, str] = field(default_factory=dict)
    repeats: int = 1  # samples per document in its file; scoring changes the task's own

    @classmethod
    def of_task(cls, task: Any, chosen: Sequence[int] | None = None) -> "LmEvalBenchmark":
        """Identify an lm-eval task. `chosen` are the documents of `--samples`; None means all."""
        docs = [json.dumps(doc, sort_keys=True, default=str) for doc in task.eval_docs]
        by = {name: _plain(getattr(task.config, name, None)) for name in _SCORES_BY}
        graded_with = {
            "task": digest_of([by, task.OUTPUT_TYPE]),
            "version": str(task.VERSION),
            LM_EVAL: version("lm_eval"),
        }
        data = digest_of(docs if chosen is None else [docs, list(chosen)])
        metadata = BenchmarkMetadata(data, len(docs), grader=LM_EVAL)
        problems = tuple({"id": f"{i}.0"} for i in range(len(docs)))
        name, repeats = str(task.config.task), task.config.repeats
        return cls(name, problems, task=task, of_documents=metadata, graded_with=graded_with, repeats=repeats)

    @property
    def metadata(self) -> BenchmarkMetadata:
        """Return what identifies it."""
        return self.of_documents

    @property
    def grader(self) -> str:
        """Return the grader: lm-eval, with the task's own metrics."""
        return LM_EVAL

    @property
    def data(self) -> str:
        """Return the digest of its documents."""
        return str(self.of_documents.data)

    def sampling(self, explicit: Sampling | None) -> tuple[Sampling, tuple[str, ...]]:
        """Return how its responses are sampled, and where they stop: its own settings, overridden by `explicit`."""
        own, stop = sampling_of(self.task.config.generation_kwargs, samples=self.repeats, seed=0)
        return own if explicit is None else own.replace(**{"seed": explicit.seed, **explicit.explicit()}), stop

    def requests(self, engine: "Engine", limit: int | None) -> list[Any]:
        """Return lm-eval's requests, one per document, with the prompts of the `lm_eval` command."""
        if self.task.config.num_fewshot is None:
            self.task.set_config(key="num_fewshot", value=0)
        self.task.set_fewshot_seed(seed=_SEEDS["fewshot"])
        return build_requests(self.task, engine, limit)


def instance_key(instance: Any) -> str:
    """Name the problem of an lm-eval request within its task."""
    return f"{instance.doc_id}.{instance.idx}"


def score_name(metric: str, named: str) -> str:
    """Name a metric of the responses that a filter returns."""
    return metric if named == "none" else f"{metric}/{named}"


def declared(include_path: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the YAML files of tasks by their declared names; those in `include_path` hide lm-eval's own.

    Raises:
        UserError: `include_path` is not a folder.
    """
    if include_path is not None and not Path(include_path).expanduser().is_dir():
        raise UserError(
            "is no folder", argument="include_path", value=include_path, accepted="one with YAML files of tasks"
        )
    package = find_spec("lm_eval")
    shipped = Path((package.submodule_search_locations or [""])[0] if package else "") / "tasks"
    folders = [shipped, *([Path(include_path).expanduser()] if include_path is not None else [])]
    return {name: files for folder in folders for name, files in _declared(str(folder.resolve())).items()}


@lru_cache(maxsize=8)
def _declared(folder: str) -> dict[str, tuple[str, ...]]:
    files: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for file in sorted(path for ending in ("yaml", "yml") for path in Path(folder).rglob(f"*.{ending}")):
        for name in _DECLARES.findall(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else ():
            files[name] += (str(file),)
    return files


def read_task(path: str) -> LmEvalBenchmark:
    """Load a task from its YAML, once per process. Its code is run and its data read.

    Raises:
        UserError: There is no such file, lm-eval cannot load it, or its responses are not generated text.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(
            f": {path} does not exist", argument="task", value=path, accepted="the YAML file of a task of lm-eval"
        )
    return _loaded(path, str(file.resolve()))


@lru_cache(maxsize=32)
def _loaded(path: str, file: str) -> LmEvalBenchmark:
    """Load the task in `file`. Messages call it `path`."""
    from lm_eval.tasks import TaskManager

    try:
        with _seeded(), redirect_stderr(io.StringIO()):
            loaded = TaskManager(include_defaults=False, metadata={}).load([file])
            benchmarks = [LmEvalBenchmark.of_task(task) for task in loaded["tasks"].values()]
    except Exception as error:  # from lm-eval, the data's library, or the user's own code
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"cannot be loaded by lm-eval ({type(error).__name__}: {reason})", argument="task", value=path
        ) from error
    if len(benchmarks) != 1 or loaded.get("groups"):
        raise UserError(
            "is a group", argument="task", value=path, accepted="the YAML file of a task, or several of them"
        )
    [benchmark] = benchmarks
    task = benchmark.task
    refuse_likelihoods(task, path)
    problem, accepted = "", "a task of text that runs no code"
    if getattr(task, "MULTIMODAL", False):
        problem = "shows images or sound"
    elif getattr(task, "UNSAFE_CODE", False):
        problem = "runs code that the models write"
    elif not NAME.fullmatch(benchmark.name):
        problem = f"has task: {benchmark.name!r}, which becomes the name of a folder"
        accepted = "letters, digits, '_', '-' and '.'"
    if problem:
        raise UserError(problem, argument="task", value=path, accepted=accepted)
    return benchmark


def refuse_likelihoods(task: Any, name: object) -> None:
    """Raise UserError if an lm-eval task asks for likelihoods instead of text.

    Args:
        task: lm-eval's task.
        name: What the user calls it.
    """
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(
            f"has output_type={task.OUTPUT_TYPE!r}, and a rule for decoding with two models assigns no likelihood to a "
            "given text",
            argument="task",
            value=name,
            accepted="generate_until",
        )


@contextmanager
def _seeded() -> Iterator[None]:
    """Set the random seeds for loading a task, as the `lm_eval` command does, and restore them."""
    state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(_SEEDS["python"])
    np.random.seed(_SEEDS["numpy"])
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _plain(value: Any) -> Any:
    """Return a part of a task's configuration as plain values; for code, its name and a digest of its whole file."""
    if callable(value):
        code = getattr(value, "func", value)
        try:
            source = Path(inspect.getsourcefile(code) or "").read_text(encoding="utf-8")
        except (OSError, TypeError):
            source = ""
        return [getattr(code, "__qualname__", type(code).__name__), digest(source)]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


# Scores


def task_scores(task: Any, reported: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `scores` and `lower_is_better` of a task: its entry in `results` of lm-eval's `evaluate`, and its samples.

    The error of a metric that is a mean over problems is computed if lm-eval did not compute it.
    """
    from lm_eval.api.metrics import mean

    scores = {
        score_name(*key.split(",", 1)): float(value)
        for key, value in reported.items()
        if "," in key and isinstance(value, _NUMBERS)
    }
    filters = Counter(sample["filter"] for sample in samples)
    named = dict.fromkeys((sample["filter"], metric) for sample in samples for metric in sample["metrics"])
    for f, metric in named:
        values = [sample[metric] for sample in samples if sample["filter"] == f and metric in sample["metrics"]]
        numbers = all(isinstance(value, _NUMBERS) and math.isfinite(value) for value in values)
        if task.aggregation().get(metric, mean) is mean and numbers and len(values) == filters[f] > 1:
            scores.setdefault(score_name(f"{metric}_stderr", f), standard_error(values))
    better = task.higher_is_better()
    lower = [score_name(metric, f) for f, metric in named if better.get(metric) is False]
    return {"scores": scores, "lower_is_better": tuple(lower)}


def computed_scores(benchmark: LmEvalBenchmark, responses: Mapping[Key, Row]) -> dict[str, Any]:
    """Let lm-eval score the responses to some documents of a task, with all of their samples.

    Raises:
        UserError: The task's own code failed; the rollouts are safe.
    """
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate

    name, task = benchmark.name, benchmark.task
    documents = sorted({int(problem.removeprefix(f"{name}/").partition(".")[0]) for problem, _ in responses})

    class StoredResponses(LM):
        """Return stored responses, each as often as it is requested."""

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            seen: Counter[int] = Counter()
            texts = []
            for request in requests:  # lm-eval numbers the documents that it received
                key = f"{name}/{documents[request.doc_id]}.{request.idx}"
                texts.append(responses[key, seen[id(request)]].text)
                seen[id(request)] += 1
            return texts

        def loglikelihood(self, requests: list[Any]) -> NoReturn:
            raise UserError(f"task {name} asks for likelihoods", accepted="generate_until")

        loglikelihood_rolling = loglikelihood

    task.set_config(key="repeats", value=len(responses) // len(documents))
    first = documents == list(range(len(documents)))
    part: dict[str, Any] = {"limit": len(documents)} if first else {"samples": {name: documents}}
    try:
        with redirect_stderr(io.StringIO()):  # hides its bar
            kwargs = {**part, "bootstrap_iters": 0, "log_samples": True}
            reported: Any = evaluate(lm=StoredResponses(), task_dict={"tasks": {name: task}}, **kwargs)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"cannot be scored by lm-eval ({type(error).__name__}: {reason}); its rollouts are safe",
            argument="task",
            value=name,
        ) from error
    return task_scores(task, reported["results"][name], reported["samples"][name])

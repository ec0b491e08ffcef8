"""A benchmark as it is put to the models: the prompts that our lm-eval task makes, through the pair's chat template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.decode import Engine
from harness.evals.benchmark import BenchmarkFacts
from harness.evals.chat import build_requests
from harness.evals.data import all_golds, find_benchmark, preflight, task_config, tasks_dir
from harness.evals.sampling import sampling_of
from harness.evals.task_file import LmEvalBenchmark, ScoredTask, instance_key, is_task_file, read_task
from harness.grading import Gold
from harness.spec import EvalSpec, Sampling


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts and gold answers of a benchmark, by problem id, in order; a task of lm-eval has no gold answers here.

    `golds` has each version of the gold answers that can be graded, the one asked for first.
    """

    task: str
    sampling: Sampling
    stop: tuple[str, ...]
    prompts: Mapping[str, str]
    golds: Mapping[str, Mapping[str, Gold]]
    benchmark: BenchmarkFacts
    theirs: ScoredTask | None = None


def prompt_sets(spec: EvalSpec, engine: Engine) -> list[PromptSet]:
    """Return the prompts of each benchmark of an evaluation, groups expanded.

    Raises:
        UserError: what `preflight` refuses.
    """
    from lm_eval.tasks import TaskManager

    tasks = {
        find_benchmark(task, spec.data_dir).name: task for task in preflight(spec.tasks, spec.data_dir, spec.golds)
    }
    metadata = {"data_dir": spec.data_dir, "golds": spec.golds}
    metadata |= {"repeats": spec.sampling.samples} if spec.sampling else {}
    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False, metadata=metadata)
    ours = [task for task in tasks.values() if not is_task_file(task)]
    loaded = manager.load([task_config(task, spec.data_dir) for task in ours])["tasks"]
    return [
        _prompt_set(name, loaded[name], task, spec, engine)
        if name in loaded
        else _foreign_set(read_task(task), spec, engine)
        for name, task in tasks.items()
    ]


def _foreign_set(found: LmEvalBenchmark, spec: EvalSpec, engine: Engine) -> PromptSet:
    """Put a task of lm-eval's as the `lm_eval` command does; what the spec does not say of sampling, the task does."""
    sampling, stop = found.theirs.sampling(spec.sampling)
    texts = {instance_key(each): each.args[0] for each in found.theirs.instances(engine, _first(spec))}
    prompts = {key: texts[key] for key in spec.asked(list(texts))}
    return PromptSet(found.name, sampling, stop, prompts, {}, found.facts, found.theirs)


def _prompt_set(name: str, task: Any, asked: str, spec: EvalSpec, engine: Engine) -> PromptSet:
    own, stop = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=0)
    texts = {instance.doc["id"]: instance.args[0] for instance in build_requests(task, engine, _first(spec))}
    prompts = {key: texts[key] for key in spec.asked(list(texts))}
    golds = all_golds(asked, spec.golds, spec.data_dir)
    return PromptSet(
        task=name,
        sampling=spec.sampling or own,
        stop=stop,
        prompts=prompts,
        golds={v: {key: answers[key] for key in prompts} for v, answers in golds.items()},
        benchmark=find_benchmark(asked, spec.data_dir).facts,
    )


def _first(spec: EvalSpec) -> int | None:
    """Return how many of a benchmark's first problems have to be made into prompts; None for all."""
    return None if spec.part.words else spec.limit

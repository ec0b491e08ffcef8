"""A benchmark as it is put to the models: the prompts that our lm-eval task makes, through the pair's chat template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.decode import Engine
from harness.evals.benchmark import Benchmark, BenchmarkFacts
from harness.evals.chat import build_requests
from harness.evals.data import preflight_of, task_config, tasks_dir
from harness.evals.sampling import sampling_of
from harness.evals.task_file import LmEvalBenchmark, ScoredTask, instance_key
from harness.grading import Gold
from harness.spec import EvalSpec, Presentation, Sampling


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts and gold answers of a benchmark, by problem id, in order; a task of lm-eval has no answers here."""

    task: str
    sampling: Sampling
    stop: tuple[str, ...]
    prompts: Mapping[str, str]
    golds: Mapping[str, Gold]
    benchmark: BenchmarkFacts
    theirs: ScoredTask | None = None


def prompt_sets(spec: EvalSpec, engine: Engine) -> list[PromptSet]:
    """Return the prompts of each benchmark of an evaluation, groups expanded.

    Raises:
        UserError: what `preflight` refuses.
    """
    from lm_eval.tasks import TaskManager

    found = preflight_of(spec)
    metadata = spec.model_dump(mode="json", include={"data_dir", *Presentation.model_fields})
    metadata |= {"repeats": spec.sampling.samples} if spec.sampling else {}
    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False, metadata=metadata)
    ours = [
        task_config(task, benchmark) for task, benchmark in found.items() if not isinstance(benchmark, LmEvalBenchmark)
    ]
    loaded = manager.load(ours)["tasks"]
    return [
        _foreign_set(benchmark, spec, engine)
        if isinstance(benchmark, LmEvalBenchmark)
        else _prompt_set(loaded[benchmark.name], benchmark, spec, engine)
        for benchmark in found.values()
    ]


def _foreign_set(found: LmEvalBenchmark, spec: EvalSpec, engine: Engine) -> PromptSet:
    """Put a task of lm-eval's as the `lm_eval` command does; what the spec does not say of sampling, the task does."""
    sampling, stop = found.theirs.sampling(spec.sampling)
    texts = {instance_key(each): each.args[0] for each in found.theirs.instances(engine, _first(spec))}
    prompts = {key: texts[key] for key in spec.asked(list(texts))}
    return PromptSet(found.name, sampling, stop, prompts, {}, found.facts, found.theirs)


def _prompt_set(task: Any, benchmark: Benchmark, spec: EvalSpec, engine: Engine) -> PromptSet:
    own, stop = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=0)
    texts = {instance.doc["id"]: instance.args[0] for instance in build_requests(task, engine, _first(spec))}
    prompts = {key: texts[key] for key in spec.asked(list(texts))}
    return PromptSet(
        task=benchmark.name,
        sampling=spec.sampling or own,
        stop=stop,
        prompts=prompts,
        golds={key: benchmark.golds[key] for key in prompts},
        benchmark=benchmark.facts,
    )


def _first(spec: EvalSpec) -> int | None:
    """Return how many of a benchmark's first problems have to be made into prompts; None for all."""
    return None if spec.part.words else spec.limit

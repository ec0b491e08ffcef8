"""A benchmark as it is put to the models: the prompts that our lm-eval task makes, through the pair's chat template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.decode import Engine
from harness.evals.benchmark import BenchmarkFacts
from harness.evals.data import all_golds, find_benchmark, preflight, task_config, tasks_dir
from harness.evals.sampling import sampling_of
from harness.grading import Gold
from harness.spec import EvalSpec, Sampling


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts and gold answers of a benchmark, by problem id, in order.

    `golds` has each version of the gold answers that can be graded, the one asked for first.
    """

    task: str
    sampling: Sampling
    stop: tuple[str, ...]
    prompts: Mapping[str, str]
    golds: Mapping[str, Mapping[str, Gold]]
    benchmark: BenchmarkFacts


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
    loaded = manager.load([task_config(task, spec.data_dir) for task in tasks.values()])["tasks"]
    return [_prompt_set(name, loaded[name], tasks[name], spec, engine) for name in tasks]


def _prompt_set(name: str, task: Any, asked: str, spec: EvalSpec, engine: Engine) -> PromptSet:
    task.build_all_requests(limit=spec.limit, rank=0, world_size=1)
    own, stop = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=0)
    chat = bool(getattr(engine.tokenizer, "chat_template", None))
    prompts = {}
    for instance in task.instances:
        text = instance.args[0]
        prompts[instance.doc["id"]] = engine.chat_prompt([{"role": "user", "content": text}]) if chat else text
    golds = all_golds(asked, spec.golds, spec.data_dir)
    return PromptSet(
        task=name,
        sampling=spec.sampling or own,
        stop=stop,
        prompts=prompts,
        golds={v: {key: answers[key] for key in prompts} for v, answers in golds.items()},
        benchmark=find_benchmark(asked, spec.data_dir).facts,
    )

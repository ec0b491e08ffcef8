"""Make the prompts of a benchmark with our lm-eval task, through the pair's chat template."""

from collections.abc import Mapping
from dataclasses import dataclass

from rlvr_dir.config import EvalSpec, Sampling
from rlvr_dir.decode import Engine
from rlvr_dir.problems.benchmark import Benchmark
from rlvr_dir.problems.data import preflight_of, tasks_dir
from rlvr_dir.problems.generation import build_requests, sampling_of
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark, instance_key


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Hold the prompts of a benchmark, by problem id, in order."""

    benchmark: Benchmark
    sampling: Sampling
    stop: tuple[str, ...]
    prompts: Mapping[str, str]


def prompt_sets(spec: EvalSpec, engine: Engine, benchmarks: Mapping[str, Benchmark] | None = None) -> list[PromptSet]:
    """Return the prompts of each benchmark of an evaluation, with groups expanded.

    A task of lm-eval has the prompts of lm-eval's command, and its own sampling unless the spec sets another.
    `benchmarks` are those that `preflight_of` returned.

    Raises:
        UserError: As for `preflight`.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    from rlvr_dir.problems.task import SampledMathTask

    benchmarks, sets = preflight_of(spec) if benchmarks is None else benchmarks, []
    config, repeats = load_yaml(tasks_dir() / "_math.yaml"), spec.sampling and {"repeats": spec.sampling.samples}
    first = None if spec.part.words else spec.limit
    for benchmark in benchmarks.values():
        if isinstance(benchmark, LmEvalBenchmark):
            sampling, stop = benchmark.sampling(spec.sampling)
            texts = {instance_key(request): request.args[0] for request in benchmark.requests(engine, first)}
        else:
            task = SampledMathTask({**config, "task": benchmark.name, "metadata": repeats or {}}, benchmark)
            own, stop = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=0)
            sampling = spec.sampling or own
            texts = {request.doc["id"]: request.args[0] for request in build_requests(task, engine, first)}
        prompts = {key: texts[key] for key in spec.problem_ids([*texts], benchmark.metadata.families)}
        sets.append(PromptSet(benchmark, sampling, stop, prompts))
    return sets

"""Evaluations from Python: many decodings, one engine, scored through lm-eval with our tasks only.

results = evaluate(pair, [Decoding(mode="base"), Decoding(mode="rl")], ["tiny_easy"], Sampling(samples=8))
"""

import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.decode import Engine
from harness.errors import UserError, unknown
from harness.evals import tasks_dir
from harness.evals.data import BENCHMARKS, GROUPS, digest
from harness.evals.result import EvalResult
from harness.evals.sampling import sampling_of
from harness.spec import Decoding, EngineSpec, Pair, Sampling

TASKS: tuple[str, ...] = (*BENCHMARKS, *GROUPS)


def preflight(tasks: Sequence[str], data_dir: str | None = None) -> dict[str, str]:
    """Checks names and data before any model loads: each benchmark asked for (groups expanded) and its data digest.

    Raises:
        UserError: an unknown or doubled task, or a benchmark without data (the sentence says what to set).
    """
    if not tasks:
        raise UserError(f"tasks is empty; accepted: {', '.join(TASKS)}")
    names: list[str] = []
    for task in tasks:
        if task not in TASKS:
            raise unknown("task", task, TASKS)
        names.extend(GROUPS.get(task, (task,)))
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UserError(f"tasks={','.join(tasks)} asks for {doubled[0]} twice; name it once, alone or in its group")
    return {name: digest(name, data_dir) for name in names}


def evaluate(
    engine_or_pair: Engine | Pair | Callable[[], Engine],
    decodings: Sequence[Decoding],
    tasks: Sequence[str],
    sampling: Sampling | None = None,
    *,
    limit: int | None = None,
    data_dir: str | None = None,
    records: str | Path | None = None,
    engine_spec: EngineSpec | None = None,
    progress: bool = True,
) -> list[EvalResult]:
    """Evaluates every decoding on every task: results in that order, decoding by decoding.

    `engine_or_pair` is an open engine, a function that opens one, or a pair (opened as `engine_spec` says); what is
    opened here is closed here, and only after tasks and data have been found good. `sampling` None is each task's own
    (the paper's). `limit` takes the first problems only: for a look, not for a score. Prompts go through the pair's
    chat template where it has one. With `records`, a folder, every rollout is stored there as it finishes, and what is
    there already is not decoded again: an interrupted evaluation goes on where it stopped.

    Raises:
        UserError: what `preflight` refuses, or what the engine refuses.
    """
    digests = preflight(tasks, data_dir)
    if limit is not None and limit < 1:
        raise UserError(f"limit={limit} is refused; accepted: a number of problems, 1 or more")
    metadata: dict[str, Any] = {"data_dir": data_dir}
    if sampling is not None:
        metadata["repeats"] = sampling.samples
    manager = _task_manager(metadata)
    manager.load(list(digests))
    engine, owned = _open(engine_or_pair, engine_spec)
    try:
        return [
            result
            for decoding in decodings
            for result in _one(engine, decoding, digests, manager, sampling, limit, progress, data_dir, records)
        ]
    finally:
        if owned:
            engine.close()


def _task_manager(metadata: dict[str, Any]) -> Any:
    """Our tasks alone: lm-eval's own index costs ten seconds and holds tasks of the same names."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(tasks_dir()), include_defaults=False, metadata=metadata)


def _open(engine_or_pair: Engine | Pair | Callable[[], Engine], spec: EngineSpec | None) -> tuple[Engine, bool]:
    if isinstance(engine_or_pair, Pair):
        from harness.decode import open_engine

        return open_engine(engine_or_pair, spec or EngineSpec()), True
    if hasattr(engine_or_pair, "generate"):
        return engine_or_pair, False
    return engine_or_pair(), True


def _one(
    engine: Engine,
    decoding: Decoding,
    digests: dict[str, str],
    manager: Any,
    sampling: Sampling | None,
    limit: int | None,
    progress: bool,
    data_dir: str | None,
    records: str | Path | None,
) -> list[EvalResult]:
    """One decoding on all tasks, in one pass of lm-eval."""
    from lm_eval.evaluator import evaluate as lm_eval_evaluate

    from harness.evals.lm import RlvrDirLM

    lm = RlvrDirLM(
        engine=engine,
        decoding=decoding,
        seed=sampling.seed if sampling else 0,
        progress=progress,
        data_dir=data_dir,
        records=records,
    )
    loaded = manager.load(list(digests))
    used: dict[str, Sampling] = {}
    for name, task in loaded["tasks"].items():
        if sampling is not None:
            arguments = {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_gen_toks": sampling.max_tokens,
            }
            task.set_config(key="generation_kwargs", value=arguments, update=True)
        task.set_fewshot_seed(seed=0)
        used[name], _ = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=lm.seed)
    output = lm_eval_evaluate(
        lm=lm,
        task_dict=loaded,
        limit=limit,
        bootstrap_iters=0,
        apply_chat_template=bool(lm.chat_template(True)),
        log_samples=True,
    )
    info = lm.get_model_info()["rlvr_dir"]
    generated = {
        name: sum(sample["n_tokens"] for entry in output["samples"][name] for sample in entry["doc"]["samples"])
        for name in digests
    }
    held = lm.decoded < sum(len(entry["doc"]["samples"]) for name in digests for entry in output["samples"][name])
    return [
        result_of(
            name,
            decoding,
            used[name],
            output["samples"][name],
            seconds=0.0 if held else lm.seconds * generated[name] / sum(generated.values()),
            provenance={
                "engine": info["engine"],
                "chat": info["chat"],
                "versions": versions(),
                "data": digests[name],
                "limit": limit,
                "record": lm.record_names.get(name),
                "grader": loaded["tasks"][name].config.filter_list[0]["filter"][0].get("grader", "plain"),
                "argv": sys.argv,
            },
        )
        for name in digests
    ]


def result_of(
    task: str,
    decoding: Decoding,
    sampling: Sampling,
    logged: Sequence[dict[str, Any]],
    *,
    seconds: float = 0.0,
    provenance: dict[str, Any] | None = None,
) -> EvalResult:
    """An `EvalResult` from lm-eval's logged samples of one task (also as read back from its samples file).

    Raises:
        UserError: a problem has fewer samples than were asked for.
    """
    docs = [entry["doc"] for entry in sorted(logged, key=lambda entry: entry["doc_id"])]
    for doc in docs:
        if len(doc["samples"]) != sampling.samples:
            found = f"{len(doc['samples'])} of {sampling.samples} samples"
            raise UserError(f"{task} {doc['id']} has {found}: a result is complete or it is none")

    def each(value: Callable[[dict[str, Any]], Any]) -> list[list[Any]]:
        return [[value(sample) for sample in doc["samples"]] for doc in docs]

    return EvalResult(
        task=task,
        decoding=decoding,
        sampling=sampling,
        problem_ids=tuple(str(doc["id"]) for doc in docs),
        correct=each(lambda sample: sample["verdict"] == "correct"),
        n_tokens=each(lambda sample: sample["n_tokens"]),
        n_replaced=each(lambda sample: sample["n_replaced"]),
        n_changed=each(lambda sample: sample["n_changed"]),
        truncated=each(lambda sample: sample["finish_reason"] == "length"),
        no_box=each(lambda sample: sample["answer"] is None),
        ungraded=each(lambda sample: sample["verdict"] in ("timed_out", "grader_error")),
        seconds=seconds,
        provenance=provenance or {},
    )


def versions() -> dict[str, str]:
    """Versions of what can change a score."""
    found = {"python": platform.python_version()}
    for name in ("rlvr-dir", "lm-eval", "math-verify", "latex2sympy2-extended", "sympy", "datasets"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

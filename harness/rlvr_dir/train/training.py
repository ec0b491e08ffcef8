"""Run a training with what it needs from other rooms: base, problems, and the evaluator of `rlvr-dir eval`.

    run(spec, Path("runs/train/x"))

`rlvr_dir.train` does not import those rooms; the commands and the sweeps do.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rlvr_dir.config import TINY, Decoding, EvalSpec, Pair, Presentation
from rlvr_dir.config.presentation import DEFAULT_GRADER
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_writable

if TYPE_CHECKING:
    from rlvr_dir.config.decoding import Mode
    from rlvr_dir.decode import Engine
    from rlvr_dir.evals.plan import Plan
    from rlvr_dir.problems.benchmark import Benchmark
    from rlvr_dir.results import EvalResult
    from rlvr_dir.train.folder import Inputs
    from rlvr_dir.train.run import TrainingSource, Validate, ValidationScores
    from rlvr_dir.train.schemas import SummaryFile
    from rlvr_dir.train.spec import TrainSpec


def run(spec: "TrainSpec", out: Path, *, bases: Path | None = None, **options: Any) -> "SummaryFile":
    """Train, or resume. `options` are those of `rlvr_dir.train.run_training`, whose summary is returned.

    The rollouts of validations are stored in `out/records`, so an interrupted validation resumes.

    Args:
        bases: A record store for the base's validation, which all trainings from it share.

    Raises:
        UserError: The machine is unsuitable, there are too few problems, or the folder belongs to another training,
            is in use, was begun with other content of a file that is read, or cannot be written to (nothing was begun).
    """
    check_writable(out, *((bases,) if bases else ()), make=False)
    start = source(spec, out / "records", bases)
    from rlvr_dir.train.run import run_training

    return run_training(spec, out, start, **options)


def source(spec: "TrainSpec", records: Path | None = None, bases: Path | None = None) -> "TrainingSource":
    """Return the base, the problems and the validator of a training. `records` and `bases` are record stores.

    Raises:
        UserError: The data cannot be read, or the tiny weights are missing.
    """
    from rlvr_dir.train.data import read_problems

    if spec.data == TINY:
        from rlvr_dir.tiny.problems import rl_problems as problems
    else:
        rows = read_problems(spec.data, spec)

        def problems(seed: int) -> list[dict[str, Any]]:
            return rows

    from rlvr_dir.train.run import TrainingSource

    return TrainingSource(_base(spec), problems, validator(spec, records, bases), inputs(spec), lambda: watched(spec))


def watched(spec: "TrainSpec") -> dict[str, list[dict[str, Any]]]:
    """Return the problems of the benchmarks that are validated during the training, by name.

    Each has the messages that `rlvr-dir eval` makes of it, its right answers, and the grader of its responses.
    """
    from rlvr_dir.problems.prompts import prompt_sets

    evaluation = _evaluation(spec, _base(spec), _base(spec), "base", on_the_way=True)
    sets = prompt_sets(evaluation, cast("Engine", _Messages()))
    return {
        benchmarks.benchmark.name: [
            {
                "prompt": json.loads(text),
                "answer": benchmarks.benchmark.golds[key],
                "grader": benchmarks.benchmark.grader,
            }
            for key, text in benchmarks.prompts.items()
        ]
        for benchmarks in sets
    }


class _Messages:
    """Replace an engine where prompts are made, and return the messages themselves, as JSON."""

    tokenizer = SimpleNamespace(chat_template="messages")

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        return json.dumps(messages)


def list_obstacles(spec: "TrainSpec") -> "list[str]":
    """List what would stop a training through verl here before it starts: its data, its base's positions, its
    validation."""
    from rlvr_dir.train.data import read_problems
    from rlvr_dir.train.verl.data import rows
    from rlvr_dir.train.verl.validate import check_context

    val = spec.verl and spec.verl.val_data
    checks: list[Callable[[], Any]] = [
        lambda: rows(read_problems(spec.data, spec), spec, spec.data),
        lambda: val and rows(read_problems(val, spec), spec, val, least=1),
        lambda: check_context(spec, _base(spec)),
        lambda: inputs(spec),
    ]
    refusals = []
    for check in checks:
        try:
            check()
        except UserError as error:
            refusals.append(str(error))
    return refusals


def _base(spec: "TrainSpec") -> str:
    """Return the base in a form that other programs find: an absolute folder, or a hub id."""
    if spec.base == TINY:
        from rlvr_dir.tiny import tiny_pair

        return tiny_pair().base
    return str(Path(spec.base).resolve()) if Path(spec.base).is_dir() else spec.base


def inputs(spec: "TrainSpec") -> "Inputs":
    """Return what identifies the content of all files that a training reads. Other content is another training.

    Raises:
        UserError: A benchmark of the validation has no data, or the one that chooses the checkpoint is not among them.
    """
    from rlvr_dir.digest import digest
    from rlvr_dir.records.config import fingerprint
    from rlvr_dir.train.schemas import Input

    inputs, base = {}, _base(spec)
    if Path(base).is_dir():
        inputs["base"] = Input(file=base, digest=fingerprint(base), judges=True)
    for name, file in (("data", spec.data), ("verl.val_data", spec.verl and spec.verl.val_data)):
        if file and Path(file).is_file():
            inputs[name] = Input(file=str(Path(file).resolve()), digest=digest(Path(file).read_bytes()), judges=False)
    validated = benchmarks(spec, spec.validation.tasks)
    for task, benchmark in validated.items():
        content = benchmark.data
        if benchmark.grader not in (
            _presentation(spec).grader,
            DEFAULT_GRADER,
        ):  # # only the benchmark's file has it
            content += f", graded by {benchmark.grader}"
        inputs[f"validation.tasks {benchmark.name}"] = Input(file=benchmark.file or task, digest=content, judges=True)
    _check_watched(spec, list(validated.values()))
    return inputs


def _check_watched(spec: "TrainSpec", validated: "list[Benchmark]") -> None:
    """Check that benchmarks that are watched, or that choose the checkpoint, are validated."""
    names, watch = [benchmark.name for benchmark in validated], spec.validation.watch
    watched = benchmarks(spec, watch).values() if watch else validated
    if missing := [benchmark.name for benchmark in watched if benchmark.name not in names]:
        raise UserError(
            "is not among validation.tasks", argument="validation.watch", value=missing[0], accepted=", ".join(names)
        )
    if not spec.validation.every or (spec.verl and spec.verl.val_data):
        return
    spec.check_chosen_by(benchmark.name for benchmark in watched)


def benchmarks(spec: "TrainSpec", tasks: Sequence[str]) -> "dict[str, Benchmark]":
    """Return these benchmarks of a validation by name; empty if there are none.

    Raises:
        UserError: `preflight` does not accept a task, or it is a task of lm-eval.
    """
    from rlvr_dir.problems.data import preflight
    from rlvr_dir.results.result import refuse_lm_eval_tasks

    by_name = preflight(tasks, presentation=_presentation(spec)) if tasks else {}
    refuse_lm_eval_tasks(by_name, "what a training is validated on")
    return by_name


def _presentation(spec: "TrainSpec") -> "Presentation":
    """Return the presentation and the grader of a validation's benchmarks: its own, else the training's prompt, and
    `dapo.grader` if it is not the default."""
    rewards = None if spec.dapo.grader == DEFAULT_GRADER else spec.dapo.grader
    return spec.validation.applied_to(Presentation(prompt=spec.prompt, grader=rewards))


def plan_training(spec: "TrainSpec", out: Path, gpu_memory: float | None = None) -> "Plan":
    """Return what a training takes: responses and tokens by seed, memory, and the time, from the steps in `out`.

    No weights are loaded, and nothing is written.

    Args:
        gpu_memory: GiB of a GPU to plan for; None plans for this machine's GPU, or for its CPU.

    Raises:
        UserError: The data cannot be read, or there are too few problems.
    """
    from rlvr_dir.evals.plan import Plan, PlanRow
    from rlvr_dir.progress import interval
    from rlvr_dir.train.data import check_size
    from rlvr_dir.train.folder import TrainingFolder
    from rlvr_dir.train.gpu import describe_memory, planned_gpu

    dapo, start = spec.dapo, source(spec)
    rows_of = {seed: check_size(start.problems(seed), spec) for seed in spec.seeds}
    problems = {seed: len(rows) for seed, rows in rows_of.items()}
    generated = dapo.responses * (dapo.max_generation_rounds if dapo.dynamic_sampling else 1)  # # per step, at most
    validation = spec.validation
    rows, seconds = list[PlanRow](), list[float]()

    def add(label: str, responses: int, cached: int, tokens: int) -> None:
        rows.append(PlanRow("", label, responses, cached, tokens * (responses - cached)))

    if validation.tasks:
        size, names = _size(spec, validation.tasks)
        add(f"base: validation on {names}", size, 0, validation.sampling.max_tokens)
    on_the_way = (validation.watch or validation.tasks) if validation.every else ()
    for seed in spec.seeds:
        done = [record for record in TrainingFolder(out).seed(seed).records() if "validation" not in record]
        seconds += [record["seconds"] for record in done if record.get("seconds") is not None]
        label = f"seed {seed}: {dapo.steps:,} steps of {dapo.responses:,} responses"
        add(label, dapo.steps * generated, len(done) * generated, dapo.max_response_tokens)
        if validation.every and on_the_way:
            size, names = _size(spec, on_the_way)
            ends = (
                2 if spec.backend == "verl" else int(spec.chosen_by is not None)
            )  # # before the first step, after the last one
            times = len(range(validation.every, dapo.steps, validation.every)) + ends
            label = f"seed {seed}: {times} validations on the way on {names}"
            add(label, size * times, 0, validation.sampling.max_tokens)
        if validation.tasks:
            size, names = _size(spec, validation.tasks)
            add(f"seed {seed}: validation on {names}", size, 0, validation.sampling.max_tokens)
    steps, counts = dapo.steps * len(spec.seeds), ", ".join(f"{n:,}" for n in dict.fromkeys(problems.values()))
    steps_left = steps - sum(row.cached or 0 for row in rows) // max(1, generated)
    mean = sum(seconds) / len(seconds) if seconds else 0.0
    time = f"Time: unknown until one step has run; {out} has none. Run it for a minute, interrupt it, and ask again."
    if seconds:
        time = (
            f"Time: about {interval(mean * steps_left)} for {steps_left:,} of {steps:,} steps, at {mean:.1f} s each as "
            f"measured in {out}, and the validations."
        )
    note = (
        f"Each seed makes {dapo.steps * dapo.minibatches:,} updates from {dapo.steps * dapo.responses:,} responses of "
        f"at most {dapo.max_response_tokens:,} tokens."
    )
    if dapo.dynamic_sampling:
        note += " The table counts as many as dynamic sampling may generate to fill its groups."
    read = f"{dapo.steps * dapo.prompts:,} of {counts} problems"
    title = f"Seeds: {len(spec.seeds)}; {dapo.steps:,} steps each, which read {read}"
    prompts = [row["prompt"] for rows in rows_of.values() for row in rows]
    notes = (*describe_memory(spec, start.base, prompts, planned_gpu(spec, gpu_memory)), note)
    return Plan(title, rows, dapo.max_response_tokens, notes=notes, time=time)


def _size(spec: "TrainSpec", tasks: Sequence[str]) -> tuple[int, str]:
    """Return the number of responses of a validation on these benchmarks, and the benchmarks' names."""
    by_name = benchmarks(spec, tasks)
    problems = sum(len(benchmark.problems[: spec.validation.limit]) for benchmark in by_name.values())
    return problems * spec.validation.sampling.samples, ", ".join(by_name)


def validator(spec: "TrainSpec", records: Path | None = None, bases: Path | None = None) -> "Validate":
    """Return a validator that scores a checkpoint as `rlvr-dir eval` does. The stores keep its rollouts."""

    def scored(base: str, rl: str, mode: "Mode", on_the_way: bool = False) -> "list[EvalResult]":
        from rlvr_dir.evals import evaluate
        from rlvr_dir.files import make_folder
        from rlvr_dir.records.lock import locked

        whole = _evaluation(spec, base, rl, mode, on_the_way=on_the_way)
        if mode != "base" or bases is None:
            return evaluate(whole, records=records)
        make_folder(bases)
        with locked(bases / "lock"):  # # of trainings that start together, one validates and the others read
            return evaluate(whole, records=bases)

    def validate(base: str, rl: str, mode: "Mode", folder: Path | None) -> "ValidationScores":
        results = scored(base, rl, mode, on_the_way=mode == "rl" and folder is None)
        if folder is not None:
            # # The base's own results are beside them and of the same pair, so RL can be compared with them.
            beside = scored(base, base, "base") if mode == "rl" else []
            for result in (*results, *(result.of_pair(base, rl) for result in beside)):
                result.write(folder)
        return {result.task: _scores(result) for result in results}

    return validate


def _evaluation(spec: "TrainSpec", base: str, rl: str, mode: "Mode", *, on_the_way: bool) -> "EvalSpec":
    """Return the evaluation of a validation."""
    validation = spec.validation
    return EvalSpec(
        pair=Pair(base=base, rl=rl, trust_remote_code=spec.trust_remote_code),
        decodings=(Decoding(mode=mode),),
        tasks=validation.watch if on_the_way and validation.watch else validation.tasks,
        sampling=validation.sampling,
        limit=validation.limit,
        engine=validation.engine,
        **_presentation(spec).model_dump(),
    )


def _scores(result: "EvalResult") -> dict[str, Any]:
    """Return what a validation stores of a result."""
    by_problem = dict(zip(result.problem_ids, result.correct.sum(axis=1).tolist(), strict=True))
    return {
        "samples": result.samples,
        "problems": len(result.problem_ids),
        "limited": result.limited,
        "avg": result.avg,
        "error": result.standard_error,
        "tokens": float(result.n_tokens.mean()),
        "truncated": float(result.truncated.mean()),
        "pass": result.pass_at(max(1, result.samples // 2)),
        "right": by_problem,
        **({"families": dict(zip(result.problem_ids, result.families, strict=True))} if result.families else {}),
    }

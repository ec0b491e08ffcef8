"""A training with what it needs from other rooms: base, problems, and Avg@k by the evaluator of `rlvr-dir eval`.

    run(spec, Path("runs/train/x"))

`harness.train` may import none of them; the commands and the sweeps may.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evals import EvalResult
    from harness.spec import Presentation
    from harness.spec.decoding import Mode
    from harness.train.backends import Source, Validate, ValidationScores
    from harness.train.folder import Inputs
    from harness.train.spec import TrainSpec


def run(spec: "TrainSpec", out: Path, *, bases: Path | None = None, **options: Any) -> dict[str, Any]:
    """Train, or go on; `options` are those of `harness.train.run_training`, whose summary this returns.

    The rollouts of validations are kept in `out/records`, so that a validation goes on where it was interrupted.

    Args:
        bases: a record store for the validation of the base, which all trainings from it share.

    Raises:
        UserError: the machine lacks something, the folder is another training's, is in use or was begun with other
            content of a file that is read, or the data is too small.
    """
    start = source(spec, out / "records", bases)
    if spec.lora and not spec.lora.merge:
        _check_adapter(spec, start.base)
    from harness.train.backends import train

    return train(spec, out, start, **options)


def _check_adapter(spec: "TrainSpec", base: str) -> None:
    """Refuse an adapter that could be trained but not decoded beside its base: days would end in that.

    Raises:
        UserError: the base is of another kind, or other parts of it are adapted.
    """
    from transformers import AutoConfig

    from harness.decode.adapter import MODEL_TYPES, PROJECTIONS
    from harness.errors import UserError

    kind = AutoConfig.from_pretrained(base, trust_remote_code=spec.trust_remote_code).model_type
    targets = spec.lora.targets if spec.lora else ()
    others = [] if isinstance(targets, str) else [name for name in targets if name not in PROJECTIONS]
    if kind not in MODEL_TYPES or others:
        what = f"lora.targets has {others[0]!r}" if others else f"base={spec.base!r} is of type {kind!r}"
        raise UserError(
            f"{what}, and such an adapter cannot be decoded beside its base; accepted: lora.merge: true, which saves "
            f"a whole model, or adapters of {', '.join(PROJECTIONS)} of {', '.join(MODEL_TYPES)}"
        )


def source(spec: "TrainSpec", records: Path | None = None, bases: Path | None = None) -> "Source":
    """Return the base, the problems and the evaluator of a training; `records` and `bases` are record stores.

    Raises:
        UserError: the data cannot be read, or the tiny weights are missing.
    """
    from harness.spec import TINY
    from harness.train.data import read_problems

    if spec.data == TINY:
        from harness.tiny.problems import rl_problems as problems
    else:
        rows = read_problems(spec.data, spec.instruction)

        def problems(seed: int) -> list[dict[str, Any]]:
            return rows

    from harness.train.backends import Source

    return Source(_base(spec), problems, validator(spec, records, bases), inputs(spec))


def lacks(spec: "TrainSpec") -> "list[str]":
    """List what a training through verl would stop at here before it starts: its data, its base's positions."""
    from harness.errors import UserError
    from harness.train.data import read_problems
    from harness.train.verl.context import check_context
    from harness.train.verl.data import rows

    found = []
    for file, least in ((spec.data, None), (spec.verl and spec.verl.val_data, 1)):
        try:
            if file:
                rows(read_problems(file, spec.instruction), spec, file, least)
        except UserError as error:
            found.append(str(error))
    try:
        unknown = check_context(spec, _base(spec))
    except UserError as error:
        unknown = str(error)
    return [*found, *([unknown] if unknown else [])]


def _base(spec: "TrainSpec") -> str:
    """Return the base as others find it: an absolute folder, or a hub id."""
    from harness.spec import TINY

    if spec.base == TINY:
        from harness.tiny import tiny_pair

        return tiny_pair().base
    return str(Path(spec.base).resolve()) if Path(spec.base).is_dir() else spec.base


def inputs(spec: "TrainSpec") -> "Inputs":
    """Return what identifies the content of all that a training reads: a training of other content is another one.

    Raises:
        UserError: a benchmark of the validation has no data.
    """
    from harness.digest import digest
    from harness.evals import preflight
    from harness.evals.task_file import LmEvalBenchmark
    from harness.records.config import fingerprint
    from harness.spec.presentation import DEFAULT_GRADER
    from harness.train.folder import Input

    found, base = {}, _base(spec)
    if Path(base).is_dir():
        found["base"] = Input(base, fingerprint(base), judges=True)
    for name, file in (("data", spec.data), ("verl.val_data", spec.verl and spec.verl.val_data)):
        if file and Path(file).is_file():
            found[name] = Input(str(Path(file).resolve()), digest(Path(file).read_bytes()), judges=False)
    tasks, asked = spec.validation.tasks, _presentation(spec)
    for task, each in preflight(tasks, presentation=asked).items() if tasks else ():
        content = each.data
        if isinstance(each, LmEvalBenchmark):
            content += f", scored by {each.theirs.graded_with['task']}"
        elif each.grader not in (asked.grader, DEFAULT_GRADER):  # which the benchmark's file alone says
            content += f", graded by {each.grader}"
        found[f"validation.tasks {each.name}"] = Input(each.file or task, content, judges=True)
    return found


def price(spec: "TrainSpec", speed: float | None = None) -> str:
    """Say how long the rollouts of a training take, at so many tokens a second, and what it takes of GPUs.

    Raises:
        UserError: the data cannot be read.
    """
    from harness.price import rollouts

    tokens = len(spec.seeds) * spec.dapo.steps * spec.dapo.step_tokens
    return "\n".join([rollouts(tokens, speed), *gpu_lines(spec)])


def gpu_lines(spec: "TrainSpec") -> list[str]:
    """Say what a training takes of GPUs, a line each; for a single GPU the data's longest prompt is counted.

    Raises:
        UserError: the data cannot be read.
    """
    from harness.price import training_lines

    if spec.backend == "verl":
        return training_lines(spec)  # whose settings say how long a prompt may be
    return training_lines(spec, [row["prompt"] for row in source(spec).problems(spec.seeds[0])])


def _presentation(spec: "TrainSpec") -> "Presentation":
    """Return how the benchmarks of a validation are put and graded; `dapo.grader` holds where it is no default."""
    from harness.spec import Presentation
    from harness.spec.presentation import DEFAULT_GRADER

    rewards = None if spec.dapo.grader == DEFAULT_GRADER else spec.dapo.grader
    return spec.validation.over(Presentation(grader=rewards))


def estimate(spec: "TrainSpec", out: Path) -> str:
    """Open a training's data and say how much work it is; the time is measured on steps that `out` holds.

    Nothing is loaded or written.

    Raises:
        UserError: the data cannot be read, or is too small.
    """
    from harness.evals.data import preflight
    from harness.progress import interval
    from harness.train.data import enough
    from harness.train.folder import TrainingFolder

    dapo, start = spec.dapo, source(spec)
    rows = {seed: len(enough(start.problems(seed), spec)) for seed in spec.seeds}
    logs = [TrainingFolder(out).seed(seed).records() for seed in spec.seeds]
    done = [record for log in logs for record in log if "validation" not in record]
    steps, responses = dapo.steps * len(spec.seeds), dapo.steps * dapo.responses
    most = responses * (dapo.max_generation_rounds if dapo.dynamic_sampling else 1)
    lines = [
        f"data: {', '.join(f'{n:,}' for n in dict.fromkeys(rows.values()))} problems, of which a step takes "
        f"{dapo.prompts}; in all steps of a seed {dapo.steps * dapo.prompts:,}",
        f"a seed: {dapo.steps:,} steps, {dapo.steps * dapo.minibatches:,} updates, {responses:,} responses learned from"
        + (f", up to {most:,} generated to fill the groups" if most > responses else "")
        + f", each of up to {dapo.max_response_tokens:,} tokens",
    ]
    if asked := preflight(spec.validation.tasks, presentation=_presentation(spec)) if spec.validation.tasks else {}:
        size = sum(len(each.problems[: spec.validation.limit]) for each in asked.values())
        within = (dapo.steps - 1) // spec.validation.every if spec.validation.every else 0
        times = 1 + len(spec.seeds) * (1 + within)
        lines.append(
            f"validation: {size * spec.validation.sampling.samples:,} responses ({', '.join(asked)}), {times} times, "
            "the base's among them"
        )
    seconds = [record["seconds"] for record in done if record.get("seconds") is not None]
    left = steps - len(done)
    lines.append(
        f"time: {len(done):,} of {steps:,} steps are done in {out}, at {sum(seconds) / len(seconds):.1f} s each; the "
        f"rest takes {interval(sum(seconds) / len(seconds) * left)} and its validations"
        if seconds
        else f"time: unknown before a first step; none is in {out}"
    )
    return "\n".join(lines)


def validator(spec: "TrainSpec", records: Path | None = None, bases: Path | None = None) -> "Validate":
    """Return what scores a checkpoint as `rlvr-dir eval` would; rollouts are kept in the stores that are named."""

    def scored(base: str, rl: str, mode: "Mode") -> "list[EvalResult]":
        from harness.evals import evaluate
        from harness.files import make_folder
        from harness.records.lock import locked
        from harness.spec import Decoding, EvalSpec, Pair

        asked = spec.validation
        whole = EvalSpec(
            pair=Pair(base=base, rl=rl, trust_remote_code=spec.trust_remote_code),
            decodings=(Decoding(mode=mode),),
            tasks=asked.tasks,
            sampling=asked.sampling,
            limit=asked.limit,
            engine=asked.engine,
            **_presentation(spec).model_dump(),
        )
        if mode != "base" or bases is None:
            return evaluate(whole, records=records)
        make_folder(bases)
        with locked(bases / "lock"):  # of trainings that start together one validates, the others read
            return evaluate(whole, records=bases)

    def validate(base: str, rl: str, mode: "Mode", folder: Path | None) -> "ValidationScores":
        results = scored(base, rl, mode)
        if folder is not None:
            # Base's own stand beside them, of the same pair: what RL is compared with.
            beside = scored(base, base, "base") if mode == "rl" else []
            for result in (*results, *(each.of_pair(base, rl) for each in beside)):
                result.write(folder)
        return {each.subject: _scores(each) for result in results for each in result.by_metric()}

    return validate


def _scores(result: "EvalResult") -> dict[str, Any]:
    """Return what a validation keeps of a result; of a metric of lm-eval's, which has its own unit, by its name."""
    from harness.evals.foreign import LmEvalResult

    found = {
        "samples": result.samples,
        "problems": len(result.problem_ids),
        "limited": result.limited,
        "avg": result.avg,
        "error": result.standard_error,
        "tokens": float(result.n_tokens.mean()),
        "truncated": float(result.truncated.mean()),
    }
    by_problem = dict(zip(result.problem_ids, result.correct.sum(axis=1).tolist(), strict=True))
    if isinstance(result, LmEvalResult):
        return {**found, "metric": result.metric, "values": by_problem}
    return {**found, "pass": result.pass_at(max(1, result.samples // 2)), "right": by_problem}

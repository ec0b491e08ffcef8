"""`rlvr-dir train`: DAPO with reweighted advantages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.train.run import Scores, Source, Validate
    from harness.train.spec import TrainSpec


def train_command(
    file: Annotated[Path | None, typer.Argument(help="A YAML file; options change what it says.")] = None,
    method: Annotated[
        str | None, typer.Option(help="How advantages are reweighted: none (default), low_prob, dominate or ppl.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Its strength; default 0.2, 0.1, 0.01 (the paper).")] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated, as 0,1,2.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of generation; each makes several updates.")] = None,
    rollout_top_p: Annotated[float | None, typer.Option(help="Of the rollouts; 1 is the policy itself.")] = None,
    base: Annotated[str | None, typer.Option(help="Directory or hub id; default the tiny pair's base.")] = None,
    data: Annotated[str | None, typer.Option(help="JSONL file of problems and answers; default the tiny task.")] = None,
    validate: Annotated[
        str | None, typer.Option(help="Benchmarks, comma-separated, or none; with the tiny base tiny_medium.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key, as dapo.samples=8; give it again for more.")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Folder of a training to compare with, seed by seed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Default runs/train/NAME, by file or method.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and print the training; run nothing.")] = False,
) -> None:
    """Train with DAPO and save the result as a pair with its base.

    Interrupt it, even with kill -9, and run the same command again: it goes on from its last checkpoint. For example:

    \b
        rlvr-dir train --seeds 0,1,2
        rlvr-dir train --method low_prob --alpha 0.2 --seeds 0,1,2 --against runs/train/DAPO
    """
    import yaml

    from harness.cli.evaluate import say
    from harness.evals import preflight
    from harness.train.spec import check_machine, plain

    options = {
        "base": base, "data": data, "seeds": _numbers(seeds), "dapo.method": method, "dapo.alpha": alpha,
        "dapo.steps": steps, "dapo.top_p": rollout_top_p,
        "validation.tasks": None if validate is None else [t for t in validate.split(",") if t not in ("", "none")],
    }  # fmt: skip
    spec = read(file, {name: value for name, value in options.items() if value is not None}, change or [])
    if spec.validation.tasks:
        preflight(spec.validation.tasks)
    check_machine(spec)
    where = out or Path("runs/train") / (file.stem if file else spec.dapo.label.replace(" α", "-").replace(" ", "-"))
    if dry_run:
        typer.echo(yaml.safe_dump({**plain(spec), "out": str(where)}, sort_keys=False, allow_unicode=True).rstrip())
        return
    sources = source(spec)

    from harness.train.run import run_training

    try:
        run_training(spec, where, sources, against=against, say=say)
    except KeyboardInterrupt:
        say(f"interrupted; the same command goes on from the last checkpoint in {where}")
        raise
    typer.echo((where / "summary.md").read_text())
    say(f"written to {where}: summary.md, and for each seed a log, the model (rl) and the pair (pair.json)")


def read(file: Path | None, options: dict[str, Any], changes: list[str]) -> "TrainSpec":
    """The training of a file, changed by options and by `a.b=value` changes.

    Raises:
        UserError: no such file, not YAML, or what `load_train` refuses.
    """
    import yaml

    from harness.train.spec import TINY, load_train

    try:
        data = yaml.safe_load(file.read_text()) if file else {}
        if not isinstance(data, dict):
            raise UserError(f"{file} is not a mapping of keys to values")
        for text in changes:
            name, equals, value = text.partition("=")
            if not equals:
                raise UserError(f"set={text!r} is refused; accepted: KEY=VALUE, as dapo.samples=8")
            _set(data, name.strip(), yaml.safe_load(value))
    except FileNotFoundError:
        raise UserError(f"file={str(file)!r} does not exist") from None
    except yaml.YAMLError as error:
        raise UserError(f"{file or 'set'} is not YAML ({' '.join(str(error).split())[:160]})") from None
    for name, value in options.items():
        _set(data, name, value)
    if data.get("base", TINY) != TINY:
        return load_train(data)
    if isinstance(validation := data.get("validation") or {}, dict):
        data["validation"] = {"tasks": ["tiny_medium"], **validation}
    return load_train(data, {"steps": 8, "learning_rate": 2e-5})  # as the shipped RL model was trained


def source(spec: "TrainSpec") -> "Source":
    """The base, the problems and the evaluator of a training.

    Raises:
        UserError: the data cannot be read, or the tiny weights are missing.
    """
    from harness.train.data import read_problems
    from harness.train.spec import TINY

    if spec.base == TINY:
        from harness.tiny import tiny_pair

        base = tiny_pair().base
    else:
        base = str(Path(spec.base).resolve()) if Path(spec.base).is_dir() else spec.base
    if spec.data != TINY:
        rows = read_problems(spec.data, spec.instruction)
    from harness.train.run import Source

    if spec.data != TINY:
        return Source(base, lambda seed: rows, validator(spec))
    from harness.tiny.recipe import rl_problems

    return Source(base, rl_problems, validator(spec))


def validator(spec: "TrainSpec") -> "Validate":
    """Avg@k by `harness.evals`, as `rlvr-dir eval` would score the checkpoint."""

    def validate(base: str, rl: str, mode: str, folder: Path | None) -> "Scores":
        from harness.evals import evaluate
        from harness.spec import Decoding, Pair

        asked = spec.validation
        results = evaluate(
            Pair(base=base, rl=rl, trust_remote_code=spec.trust_remote_code),
            [Decoding(mode=mode)],
            asked.tasks,
            asked.sampling,
            limit=asked.limit,
            engine_spec=asked.engine,
            grader=spec.dapo.grader,
        )
        for result in results if folder else ():
            result.write(folder)
        k = max(1, asked.sampling.samples // 2)
        return {
            result.task: {
                "samples": result.samples,
                "problems": len(result.problem_ids),
                "avg": result.avg,
                "error": result.standard_error,
                "pass": result.pass_at(k),
                "tokens": float(result.n_tokens.mean()),
                "truncated": float(result.truncated.mean()),
            }
            for result in results
        }

    return validate


def _set(data: dict[str, Any], name: str, value: Any) -> None:
    """Sets `dapo.steps` and the like."""
    *parts, last = name.split(".")
    for part in parts:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise UserError(f"set={name!r} is refused: {part} holds no keys")
    data[last] = value


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"seeds={text!r} is refused; accepted: whole numbers, comma-separated") from None

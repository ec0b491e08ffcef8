"""Run `rlvr-dir train`: DAPO with reweighted advantages."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import echo, parse_numbers
from rlvr_dir.cli.plan import GpuMemory
from rlvr_dir.cli.track import Tracking
from rlvr_dir.config import read_yaml
from rlvr_dir.config.base import set_key
from rlvr_dir.errors import UserError, mention
from rlvr_dir.policy.reweighting import default_alphas, method_names
from rlvr_dir.progress import phase, say

if TYPE_CHECKING:
    from rlvr_dir.train.folder import SeedFolder
    from rlvr_dir.train.spec import TrainSpec

OPTION = {"dapo.top_p": "rollout-top-p", "validation.tasks": "validate"}  # # of keys with another name


def train_command(
    file: Annotated[Path | None, typer.Argument(help="A YAML file; options change its values.")] = None,
    backend: Annotated[str | None, typer.Option(help="trl (default, one machine) or verl (a cluster).")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A training of the paper, with backend verl: qwen25-math-7b or qwen3-8b-base.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"How to reweight the advantages: {method_names()}. Default: none.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help=f"Strength of the reweighting. Default: {default_alphas()}.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, comma-separated, such as 0,1,2.")] = None,
    steps: Annotated[int | None, typer.Option(help="RL steps; each makes several updates.")] = None,
    rollout_top_p: Annotated[float | None, typer.Option(help="Top-p of the rollouts; 1 is the policy itself.")] = None,
    base: Annotated[
        str | None, typer.Option(help="The model to train: a directory or hub id; default the tiny pair's base.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="JSONL file of problems and answers; default the tiny task.")] = None,
    validate: Annotated[
        str | None,
        typer.Option(help="Benchmarks to validate on, comma-separated, or none; with the tiny base tiny_medium."),
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key, such as dapo.samples=8. Can be repeated.")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Folder of a training to compare with, seed by seed.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the training. Default: runs/train/NAME, with the file's or the method's name."),
    ] = None,
    track: Annotated[bool, typer.Option(help="Log each seed to MLflow, step by step.")] = True,
    tracking: Tracking = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Open the data, print the training, its work, memory and time. Run nothing."),
    ] = False,
    gpu_memory: GpuMemory = None,
) -> None:
    """Train with DAPO and save the result as a pair with its base.

    If it is interrupted, even by kill -9, the same command resumes from its last checkpoint. For example:

    \b
        rlvr-dir train --seeds 0,1,2
        rlvr-dir train --method low_prob --alpha 0.2 --seeds 0,1,2 --against runs/train/DAPO
        rlvr-dir train --preset qwen25-math-7b --method low_prob --dry-run
    """
    with phase("starting"):
        import yaml

        from rlvr_dir.train.spec import check_machine, plain
        from rlvr_dir.train.training import benchmarks

    options = {
        "backend": backend, "preset": preset, "base": base, "data": data,
        "seeds": None if seeds is None else parse_numbers("seeds", seeds),
        "dapo.method": method, "dapo.alpha": alpha,
        "dapo.steps": steps, "dapo.top_p": rollout_top_p,
        "validation.tasks": None if validate is None else [t for t in validate.split(",") if t not in ("", "none")],
    }  # fmt: skip
    changed_keys = {name: value for name, value in options.items() if value is not None}
    try:
        spec = read(file, changed_keys, change or [])
    except UserError as error:  # # names the key that an option changed: `dapo.steps=0` for `--steps 0`
        names = {key: f"--{OPTION.get(key, key.removeprefix('dapo.'))}" for key in changed_keys}
        error.name_options(names)
        raise
    if against is not None and not spec.validation.tasks:
        raise UserError(
            "compares validations, and this training has none",
            argument="against",
            value=str(against),
            accepted=f"{mention('validate', 'TASKS')} beside it",
        )
    if against is not None:
        from rlvr_dir.train.summary import check_against

        check_against(against, spec.validation)
    benchmarks(spec, spec.validation.tasks)
    check_machine(spec)
    where = out or Path("runs/train") / (file.stem if file else spec.dapo.label.replace(" α", "-").replace(" ", "-"))
    if dry_run and spec.backend == "verl":
        _show_verl(spec, where)
        return
    if dry_run:
        with phase("opening the data"):
            from rlvr_dir.train.training import plan_training

            work = plan_training(spec, where, gpu_memory).text()
        text = yaml.safe_dump({**plain(spec), "out": str(where)}, sort_keys=False, allow_unicode=True)
        echo(text.rstrip(), lines=True)
        say(work)
        return
    with phase("starting"):
        from rlvr_dir.tracking import Training, tracking_place
        from rlvr_dir.train.run import TrainerError
        from rlvr_dir.train.summary import taught_nothing, text
        from rlvr_dir.train.training import run

    beside = where.parents[1] if where.parent.name == "train" else where.parent
    tracker = Training(tracking_place(beside, tracking, track=track), spec.dapo.label, plain(spec))

    def done(seed: int, folder: "SeedFolder") -> None:
        files = [folder.log, folder.done, folder.rl / "README.md", folder.path / "verl/overrides.txt"]
        tracker.done(seed, folder.outcome() or {}, folder.records(), [file for file in files if file.is_file()])

    try:
        summary = run(spec, where, against=against, say=say, on_record=tracker.record, on_seed=done)
    except KeyboardInterrupt:
        say(f"interrupted; the same command resumes from the last checkpoint in {where}")
        raise
    except TrainerError as error:
        say(f"error: {error}")
        raise typer.Exit(1) from None
    finally:
        tracker.interrupted()
    echo(text(summary), lines=True)
    say(f"written to {where}: summary.md, and for each seed a log, the model (rl) and the pair (pair.json)")
    if untaught := summary.untaught:  # # an exit status for scripts that would continue with the model
        whole: int = summary.training["dapo"]["steps"]
        say(f"error: seed {', '.join(untaught)}: {taught_nothing(whole, whole)}")
        raise typer.Exit(1)


def read(file: Path | None, options: dict[str, Any], changes: list[str]) -> "TrainSpec":
    """Read the training of a file, changed by options and by `a.b=value` changes.

    Raises:
        UserError: There is no such file, it is not YAML, or `load_train` does not accept it.
    """
    from rlvr_dir.train.defaults import complete

    data = read_yaml(file, changes)
    for name, value in options.items():
        set_key(data, name, value)
    return complete(data)


def _show_verl(spec: "TrainSpec", out: Path) -> None:
    """Print verl's arguments for the first seed and the work. verl checks them if its environment exists."""
    from rlvr_dir.train.training import list_obstacles, plan_training
    from rlvr_dir.train.verl.run import arguments
    from rlvr_dir.train.verl.spec import Verl
    from rlvr_dir.train.verl.validate import check_arguments, check_versions

    lines = arguments(spec, spec.seeds[0], out, spec.base)
    python = (spec.verl or Verl()).python
    if Path(python).expanduser().exists():
        check_arguments(python, lines)
        say(f"verl in {python} accepts all {len(lines)} arguments")
    else:
        say(f"Not checked with verl, because {python} does not exist. Run `make verl-env`, or set verl.python.")
    for line in lines:
        echo(line.text)
    with phase("opening the data"):
        missing = list_obstacles(spec)
    if Path(python).expanduser().exists():
        try:
            check_versions(python)
        except UserError as error:  # # the environment of `make verl-env` composes arguments, and trains nothing
            missing = [*missing, str(error)]
    for sentence in missing:
        say(f"This machine cannot run it: {sentence}")
    with suppress(UserError):  # # printed above
        say(plan_training(spec, out).text())

"""Define `rlvr-dir sweep`: grids and searches."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlvr_dir.cli.base import echo, fit_table, group, parse_numbers
from rlvr_dir.cli.plan import DryRun, GpuCount, GpuMemory, Probe, named_gpus
from rlvr_dir.config import parse, read_yaml
from rlvr_dir.config.evaluation import load_criteria
from rlvr_dir.errors import UserError, nearest
from rlvr_dir.progress import phase, say

if TYPE_CHECKING:
    from rlvr_dir.config.search import Search
    from rlvr_dir.sweep.folder import SweepFolder
    from rlvr_dir.sweep.run import Sweep

app = group("Grids and searches over decodings, or trainings.")

OUT = Path("runs")
SweepOut = Annotated[Path, typer.Option(help="Folder for sweeps/NAME, the records and the MLflow store.")]
Records = Annotated[Path | None, typer.Option(help="Folder for the responses. Default: OUT/records.")]
Track = Annotated[bool, typer.Option(help="Log to MLflow.")]
SweepName = Annotated[
    str, typer.Argument(help="The sweep's name, its folder, or its file (needed if it uses criteria of your own).")
]


@app.command("list")
def sweep_list(
    long: Annotated[bool, typer.Option("--long", help="Also print the purpose of each, in full.")] = False,
) -> None:
    """List the sweeps that ship with rlvr-dir."""
    from rlvr_dir.config.base import load_yaml
    from rlvr_dir.sweep import sweeps_dir

    rows = []
    for path in [*sorted(sweeps_dir().glob("*.yaml")), *sorted(sweeps_dir().glob("lists/*.yaml"))]:
        text = path.read_text(encoding="utf-8")
        description = text.split("\nname:")[0].replace("\n# ", " ").removeprefix("# ")
        spec = load_yaml(text)
        pair = spec.get("pair") or spec.get("train", {}).get("preset") or "tiny"
        pairs = ", ".join(map(str, pair)) if isinstance(pair, list) else str(pair)
        rows.append([path.stem, "a list" if "sweeps" in spec else pairs, description])
    if long:
        for name, _, description in rows:
            echo(f"{name}: {description}")
        return
    echo(fit_table(["sweep", "pair", "about"], rows), lines=True)


@app.command("run")
def sweep_run(
    file: Annotated[str, typer.Argument(help="A YAML file, or the name of a sweep that ships with rlvr-dir.")],
    dry_run: DryRun = False,
    gpus: GpuCount = None,
    gpu_memory: GpuMemory = None,
    probe: Probe = False,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key, such as sampling.samples=8. Can be repeated.")
    ] = None,
    out: SweepOut = OUT,
    records: Records = None,
    track: Track = True,
) -> None:
    """Run a sweep, or resume it after an interruption.

    A file may also list several sweeps, which then run one after the other. If the points of a sweep have changed since
    it last ran, it is continued, and cached responses are used. For example:

    \b
        rlvr-dir sweep run tiny_tau_gamma
        rlvr-dir sweep run sweeps/dapo32b_tau_gamma.yaml --dry-run
        rlvr-dir sweep run paper --dry-run
    """
    if sweeps := _listed_sweeps(file, change or []):
        if dry_run:
            _show_costs(sweeps, out, records)
            return
        for name in sweeps:
            say(f"sweep {name}")
            sweep_run(name, out=out, records=records, track=track)
        return
    spec = read(file, change or [])
    objective = _open(spec, out, records).objective
    if probe:
        objective.probe()
    if probe or dry_run:
        echo(objective.estimate(gpus=named_gpus(gpus, gpu_memory), memory=True).text(), lines=True)
    else:
        echo(objective.estimate().text(rows=False), err=True, lines=True)
        _run(spec, out, records, track)


def _listed_sweeps(file: str, changes: list[str]) -> dict[str, str]:
    """Return the sweeps that a file lists, each with how it is made; empty if the file is a sweep itself."""
    data = read_yaml(_file_of(file))
    if not isinstance(data, dict) or "sweeps" not in data:
        return {}
    from rlvr_dir.sweep.lists import SweepList, check_options

    check_options(changes)
    return parse(SweepList, data).sweeps


def _show_costs(sweeps: dict[str, str], out: Path, records: Path | None) -> None:
    """Print a line for each of several sweeps with the work that is left, and their sum."""
    from rlvr_dir.sweep.lists import cost_table

    costs = {
        name: (makes, _open(read(name, []), out, records).objective.estimate().total) for name, makes in sweeps.items()
    }
    echo(cost_table(costs), lines=True)


@app.command("resume")
def sweep_resume(name: SweepName, out: SweepOut = OUT, records: Records = None, track: Track = True) -> None:
    """Resume a sweep with its stored settings."""
    spec, place = _stored(name, out)[1], _place(name, out)
    _run(spec, place, records, track)


@app.command("status")
def sweep_status(name: SweepName, out: SweepOut = OUT) -> None:
    """Show complete and failed trials, and the best so far."""
    from rlvr_dir.sweep.run import status

    echo(status(*_stored(name, out)), lines=True)


@app.command("best")
def sweep_best(name: SweepName, out: SweepOut = OUT) -> None:
    """Show the best point with its controls."""
    from rlvr_dir.sweep.run import best

    echo(best(*_stored(name, out)), lines=True)


@app.command("confirm")
def sweep_confirm(
    name: SweepName,
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds that the sweep has not used.")] = "1",
    tasks: Annotated[
        str | None, typer.Option(help="Benchmarks, comma-separated: the sweep's own or others. By default its own.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first problems of each benchmark.")] = None,
    out: SweepOut = OUT,
    records: Records = None,
    track: Track = True,
) -> None:
    """Evaluate the best point again, with new seeds and problems, to see how much of its lead remains.

    The best point and its controls are decoded, or trained. If possible, this uses problems that did not select it:
    those that `confirm: {split: 0.5}` held out, those beyond the sweep's limit, or other benchmarks (--tasks). Each row
    of the result names its problems.
    """
    from rlvr_dir.sweep.confirm import confirm

    chosen = [task.strip() for task in tasks.split(",")] if tasks else None
    sweep = _open(_stored(name, out)[1], _place(name, out), records, track)
    echo(confirm(sweep, parse_numbers("seeds", seeds), chosen, limit=limit), lines=True)


def read(file: str, changes: list[str]) -> "Search":
    """Read the sweep of a file or of a shipped name, with `a.b=value` changes.

    Raises:
        UserError: There is no such file, it is not YAML, or its content is not valid.
    """
    from rlvr_dir.sweep.specs import load

    data = read_yaml(_file_of(file), changes)
    load_criteria(data)
    return load(data)


def _file_of(name: str) -> Path:
    """Return the file with that name, or the shipped sweep, or list of sweeps, of that name.

    Raises:
        UserError: There is none.
    """
    from rlvr_dir.sweep import sweeps_dir

    file = f"{name.removesuffix('.yaml')}.yaml"
    for path in (Path(name), sweeps_dir() / file, sweeps_dir() / "lists" / file):
        if path.is_file():
            return path
    names = sorted(path.stem for path in sweeps_dir().rglob("*.yaml"))
    near = nearest(name, names, 1)
    raise UserError(
        "is neither a file nor a sweep that ships with rlvr-dir",
        argument="sweep",
        value=name,
        accepted=f"a YAML file, or one of {', '.join(names)}",
        hint=f"Did you mean {near[0]!r}?" if near else "",
    )


def _place(name: str, out: Path) -> Path:
    """Return the `out` of a sweep: the given one, or that of its folder, if the folder is given (`OUT/sweeps/NAME`)."""
    path = Path(name)
    return path.resolve().parents[1] if (path / "sweep.yaml").is_file() else out


def _stored(name: str, out: Path) -> "tuple[SweepFolder, Search]":
    from rlvr_dir.sweep.folder import SweepFolder

    name = read(name, []).name if Path(name).is_file() else name
    folder = SweepFolder(Path(name)) if (Path(name) / "sweep.yaml").is_file() else SweepFolder(out / "sweeps" / name)
    spec = folder.stored()
    if spec is None:
        stored = ", ".join(sorted(path.parent.name for path in out.glob("sweeps/*/sweep.yaml"))) or "none"
        raise UserError(f"has not been run in {str(out)!r}", argument="sweep", value=name, accepted=stored)
    if (path := folder.path.resolve()).name != spec.name:
        own = str(path.with_name(spec.name))
        raise UserError(f"is the folder of the sweep {spec.name!r}", argument="sweep", value=name, accepted=own)
    return folder, spec


def _open(spec: "Search", out: Path, records: Path | None, track: bool = False) -> "Sweep":
    with phase("starting"):
        from rlvr_dir.sweep.outcome import Places
        from rlvr_dir.sweep.run import open_sweep

    return open_sweep(spec, Places.under(out, records=records, track=track), say)


def _run(spec: "Search", out: Path, records: Path | None, track: bool) -> None:
    from rlvr_dir.sweep.run import run_sweep

    sweep = _open(spec, out, records, track)
    folder = sweep.folder.path
    try:
        summary = run_sweep(spec, sweep.places, say=say)
    except KeyboardInterrupt:
        say(f"interrupted; run the same command again to resume, or `rlvr-dir sweep resume {folder}`")
        raise
    echo(summary.terminal_text(), lines=True)
    say(f"written to {folder}: summary.md with all tables and figures, summary.json, results")
    if summary.failed:
        count = f"{summary.failed} points failed"
        say(f"{count}; `rlvr-dir sweep status {folder}` prints why, and the same command tries them again")
        raise typer.Exit(1)

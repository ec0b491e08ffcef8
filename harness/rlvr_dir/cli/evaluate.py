"""Define `rlvr-dir eval`, `compare`, `table` and `demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import echo
from rlvr_dir.cli.options import spec_options
from rlvr_dir.cli.plan import DryRun, GpuCount, GpuMemory, Probe, named_gpus, show_plan
from rlvr_dir.cli.track import Tracking
from rlvr_dir.config import TINY, Decoding, EngineSpec, EvalSpec, Pair, Sampling, load_eval, read_yaml
from rlvr_dir.files import check_writable
from rlvr_dir.progress import phase, say

if TYPE_CHECKING:
    from rlvr_dir.results import EvalResult
    from rlvr_dir.results.result import TaskResult


@spec_options(EvalSpec, Pair, Decoding, Sampling, EngineSpec)
def evaluate_command(
    options: dict[str, Any],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BASE RL] [FILE.yaml]",
            help="Two checkpoints, or the YAML file of an evaluation. Options override it.",
        ),
    ] = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "-d",
            "--decoding",
            metavar="MODE,key=value,…",
            help="A decoding, such as `rl` or `replace,tau=-0.3`. Repeat the option for more decodings.",
        ),
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Add base and rl; for each replacement reject and veto; for each extrapolation γ = 0.",
        ),
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also print sampling intervals, uncorrected p values, Pass@k and lengths.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for one JSON file per result and the MLflow store.")] = Path("runs"),
    track: Annotated[bool, typer.Option(help="Log each result to MLflow.")] = True,
    tracking: Tracking = None,
    records: Annotated[Path | None, typer.Option(help="Folder for the responses. Default: OUT/records.")] = None,
    dry_run: DryRun = False,
    gpus: GpuCount = None,
    gpu_memory: GpuMemory = None,
    probe: Probe = False,
) -> None:
    """Generate and score responses of a pair, with one or several decodings.

    Tasks and data are checked before a model loads. Responses are stored as they finish: run the same command again to
    resume. For example:

    \b
        rlvr-dir eval BASE RL --tasks mine.jsonl -d replace,tau=-0.3 --controls --samples 8
        rlvr-dir eval --tasks tiny_easy,tiny_medium --tau -0.3 --samples 8 --limit 40
        rlvr-dir eval spec.yaml --limit 10
    """
    file = _file_and_pair(names or [], options)
    spec = load_eval(read_yaml(file), {**options, "decodings": decoding or None, "controls": controls or None})
    with phase("starting"):
        from rlvr_dir.problems.data import preflight_of

        preflight_of(spec)  # before torch is imported, so that a mistake is reported at once
        from rlvr_dir.checkpoints.resolve import resolve
        from rlvr_dir.evals.loop import evaluate_all
        from rlvr_dir.results.answer import answer, doubts, reading
        from rlvr_dir.results.compare import compare, markdown
        from rlvr_dir.results.replacements import all_replacements, as_text
        from rlvr_dir.results.result import EvalResult
        from rlvr_dir.results.settings import settings_of
        from rlvr_dir.results.show import score, tables, warnings
        from rlvr_dir.results.tokenizers import tokenizers
        from rlvr_dir.tracking import comparison_link, log_result, tracking_place
        from rlvr_dir.tracking.store import ui_command

    announce_tiny(spec)
    if dry_run or probe:
        show_plan(spec, records or out / "records", named_gpus(gpus, gpu_memory), probe=probe)
        return
    place = tracking_place(out, tracking, track=track)
    store = records or out / "records"
    check_writable(out, store)

    logged: set[str] = set()  # tasks with a run in MLflow

    def keep(result: "TaskResult") -> None:
        result.write(out)
        say(f"finished: {result.benchmark}  {result.label}  {score(result)}")
        if place is not None:
            with phase("logging to MLflow"):
                if log_result(result, place) is not None:
                    logged.add(result.task)

    try:
        results = evaluate_all(spec, records=store, on_result=keep)
    except KeyboardInterrupt:
        say(f"interrupted; finished responses are stored in {store}: run the same command again to resume")
        raise
    ours = [result for result in results if isinstance(result, EvalResult)]
    for sentence in [*warnings(results), *(f"warning: {doubt}" for doubt in doubts(ours))]:
        say(sentence)
    if ours:
        echo("\n" + answer(ours, spec.decodings), lines=True)
        if any(result.decoding.mode == "reject" for result in ours) and (meaning := reading(ours)):
            echo("\n" + meaning, lines=True)
    replaced = [result for result in ours if result.decoding.mode in ("replace", "extrapolate")][:1]
    for replacement_table in all_replacements(replaced, tokenizers(None, resolve(spec.pair))) if replaced else ():
        echo("\n" + as_text(replacement_table), lines=True)
    if details or len(ours) < len(results):
        echo("\n" + tables(results if details else [r for r in results if r not in ours]), lines=True)
    if details and len(spec.decodings) > 1 and (settings := settings_of(ours)):
        echo("\n" + markdown(compare(settings)), lines=True)
    echo("")
    say(f"results: {out} (one JSON file each); responses: {store}")
    say(f"next: `rlvr-dir report {out} --out report` makes one page" + ("" if details else "; --details prints more"))
    modes = {result.decoding.mode for result in ours}
    if "base" in modes and modes - {"base", "rl"}:
        say(f"gains over base: `rlvr-dir compare {out} --against base`")
    if place is not None and logged:
        for task in sorted(logged):
            comparison_link(place, f"rlvr-dir-{task}")  # creates the view that `ui` opens
        say(f"in MLflow: `{ui_command(place)}`")


def _file_and_pair(names: list[str], options: dict[str, Any]) -> Path | None:
    """Read the arguments of `eval`: put two checkpoints into the options, and return the file, if there is one.

    Raises:
        UserError: The arguments are neither a file nor two checkpoints, or a pair is named twice.
    """
    from rlvr_dir.errors import UserError

    files = [name for name in names if name.endswith((".yaml", ".yml"))]
    places = [name for name in names if name not in files]
    if settings := [name for name in places if "=" in name]:
        raise UserError(
            f"{settings[0]!r} is not a checkpoint and not a file",
            argument="decoding",
            hint=f"Write the settings of a decoding in one word, with commas: -d replace,{settings[0]}",
        )
    if len(files) > 1 or len(places) not in (0, 2):
        raise UserError(
            f"{' '.join(map(repr, names))} cannot be read",
            argument="names",
            accepted="two checkpoints (BASE RL), a YAML file, or both",
            hint="" if len(places) != 1 else f"Give both checkpoints: rlvr-dir eval BASE {places[0]}",
        )
    if places and (doubled := [name for name in ("pair", "base", "pretrained") if name in options]):
        raise UserError(
            f"and {places[0]!r} both name a checkpoint; give one of them",
            argument=doubled[0],
            value=options[doubled[0]],
        )
    options |= dict(zip(("base", "pretrained"), places, strict=False))
    return Path(files[0]) if files else None


def announce_tiny(spec: EvalSpec) -> None:
    """Print that the tiny pair is used, because its scores are a check of the pipeline."""
    if spec.pair == TINY:
        echo(
            "This uses the tiny pair of rlvr-dir, which is not a math model. Pass BASE RL for your own.",
            err=True,
        )


Results = Annotated[
    list[str],
    typer.Argument(
        help="Result files or folders of them, records (folder, or the first digits of a hash) or run:ID. Write "
        "NAME=PLACE to give the RL model of a result a name."
    ),
]
Store = Annotated[Path, typer.Option(help="Folder of records, for hashes.")]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial", help="For unfinished records, use the samples that every problem has, and mark the result."
    ),
]
Runs = Annotated[Path, typer.Option(help="Folder with the MLflow store, for run:ID.")]


def read(results: list[str], store: Path, runs: Path, tracking: str | None, **options: Any) -> "list[EvalResult]":
    """Read the results at some places. `how` are the options for records."""
    from rlvr_dir.results.load_results import read_results

    def of_run(run_id: str) -> "EvalResult":
        from rlvr_dir.tracking import resolve_store, result_of_run

        return result_of_run(run_id, resolve_store(runs, tracking))

    return read_results(results, store, run=of_run, **options)


@spec_options(EvalSpec, only=("grader", "data_dir"))
def table_command(
    options: dict[str, Any],
    results: Results,
    csv: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
    store: Store = Path("runs/records"),
    partial: Partial = False,
    runs: Runs = Path("runs"),
    tracking: Tracking = None,
) -> None:
    """Write one CSV row per response: its verdict, length and settings, without its text.

    \b
        rlvr-dir table runs/demo --csv responses.csv
    """
    from rlvr_dir.errors import UserError
    from rlvr_dir.files import write_file
    from rlvr_dir.results.frames import frame

    table = frame(read(results, store, runs, tracking, partial=partial, **options))
    text = table.to_csv(index=False)
    if csv is None:
        echo(text.rstrip("\n"), lines=True)
        return
    if csv.is_dir():
        raise UserError("is a folder", argument="csv", value=str(csv), accepted="a file to write")
    write_file(csv, text)
    echo(f"written: {csv}, {len(table):,} responses of {table['config_hash'].nunique()} results", err=True)


@spec_options(EvalSpec, only=("grader", "data_dir"))
def compare_command(
    options: dict[str, Any],
    results: Results,
    against: Annotated[
        str | None,
        typer.Option(help="The reference: a label as printed, a mode, a NAME. Default: base for rl, rl for others."),
    ] = None,
    across: Annotated[
        str,
        typer.Option(
            help="Settings in which compared results may differ, comma-separated: grader, data, problems (the common "
            "ones are used), temperature, top_p, max_tokens."
        ),
    ] = "",
    gain: Annotated[
        float | None,
        typer.Option(help="A gain in points: also print how many problems are needed to detect it (80 % chance)."),
    ] = None,
    equal_forwards: Annotated[
        bool,
        typer.Option(
            "--equal-forwards",
            help="Also compare at equal cost: with votes of one model that use as many forward passes, and within "
            "equal numbers of tokens.",
        ),
    ] = False,
    crossing: Annotated[
        bool,
        typer.Option("--crossing", help="Report the smallest k at which base's Pass@k significantly exceeds RL's."),
    ] = False,
    store: Store = Path("runs/records"),
    partial: Partial = False,
    runs: Runs = Path("runs"),
    tracking: Tracking = None,
) -> None:
    """Compare results two at a time on the same problems, with intervals and Holm's correction.

    Only results with the same problems, sampling settings and grader are compared. p values are corrected over the
    whole table. For example:

    \b
        rlvr-dir compare runs/demo --against "replace τ-0.1"
        rlvr-dir compare runs/demo --gain 1
        rlvr-dir compare runs/demo --equal-forwards
        rlvr-dir compare DAPO=runs/dapo Ours=runs/low_prob --against DAPO
        rlvr-dir compare 3f2a 9c01/aime24 --store runs/records --partial
    """
    from rlvr_dir.results import forwards
    from rlvr_dir.results.compare import compare, markdown, problems_needed, unmatched_reasons
    from rlvr_dir.results.settings import settings_of

    to_compare = read(results, store, runs, tracking, partial=partial, **options)
    names = [name.strip() for name in across.split(",") if name.strip()]
    settings = settings_of(to_compare, names)
    rows = compare(settings, against, names)
    needed = "" if gain is None else f"\n\n{problems_needed(rows, gain / 100)}"
    needed += f"\n\n{forwards.crossings(rows)}" if crossing else ""
    needed += f"\n\n{forwards.markdown(forwards.equal_forwards(settings, names))}" if equal_forwards else ""
    echo(markdown(rows, unmatched_reasons(settings, rows, names)) + needed, lines=True)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table, the results and the MLflow store.")] = Path(
        "runs/demo"
    ),
    problems: Annotated[int, typer.Option(help="Problems of each benchmark.", min=2, max=240)] = 60,
    samples: Annotated[int, typer.Option(help="Responses per problem.", min=2)] = 16,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
) -> None:
    """Decode the tiny pair with every mode and print one table."""
    from rlvr_dir.cli.demo import run_demo

    run_demo(out, problems=problems, samples=samples, backend=backend, say=lambda text: echo(text, lines=True))

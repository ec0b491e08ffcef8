"""Define `rlvr-dir audit`, which measures what papers report about RLVR on any pair, on one page."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rlvr_dir.cli.base import LIST, echo, parse_numbers
from rlvr_dir.cli.evaluate import announce_tiny
from rlvr_dir.cli.options import spec_options
from rlvr_dir.cli.plan import DryRun, GpuCount, GpuMemory, named_gpus
from rlvr_dir.cli.track import Tracking
from rlvr_dir.config import EngineSpec, EvalSpec, Pair, Sampling, load_eval
from rlvr_dir.errors import UserError
from rlvr_dir.progress import phase, say

ROWS = "tokens,weights,interventions,outcomes"


@spec_options(EvalSpec, Pair, Sampling, EngineSpec, without=("samples",))
def audit_command(
    options: dict[str, Any],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[BASE RL]", help="Two checkpoints. Default: the tiny pair.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Responses per problem. Default: 8, or 1 for greedy decoding.", min=1)
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            metavar=LIST,
            help="Groups of rows. `outcomes` and `tokens` generate the responses of both models; `weights` takes "
            "minutes, `interventions` hours.",
        ),
    ] = ROWS,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            help="Another pair as a column: NAME=BASE:RL, or NAME=BASE:RL,RL for seeds of one run. Can be repeated."
        ),
    ] = None,
    low_rank: Annotated[
        str,
        typer.Option(
            metavar=LIST, help="Ranks, such as 1,8: also measure base plus only that part of each matrix's change."
        ),
    ] = "",
    floor: Annotated[
        bool,
        typer.Option(help="Compare base with itself in another dtype and batch, in the rows about tokens."),
    ] = True,
    placebo: Annotated[
        Literal["sharp"] | None, typer.Option(help="Add a column in which a sharpened copy of base replaces RL.")
    ] = None,
    sharp_temperature: Annotated[
        float, typer.Option(help="Temperature of the sharpened copy of base.", min=0.01, max=100)
    ] = 0.5,
    every: Annotated[
        int | None,
        typer.Option(
            help="If RL is a folder of checkpoints, add a column for every Nth step and for the last.",
            min=1,
        ),
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File of given texts, as in `score`: adds rows with both models' scores.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION", help="Exit with status 1 if this holds, such as 'gain < 0' (names are in audit.csv)."
        ),
    ] = None,
    dry_run: DryRun = False,
    gpus: GpuCount = None,
    gpu_memory: GpuMemory = None,
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, report.md, audit.json, tables and figures.")
    ] = Path("audit"),
    records: Annotated[
        Path, typer.Option(help="Folder for the responses. Cached responses are not generated again.")
    ] = Path("runs/records"),
    track: Annotated[bool, typer.Option(help="Log the numbers to MLflow.")] = True,
    tracking: Tracking = None,
) -> None:
    """Measure, on your own checkpoints, the effects of RLVR that papers report.

    The page has one row per claim: what is measured, this pair's number with its 95 % interval, who published it, and
    how it is measured. The two checkpoints may be base and RL, base and SFT, or two steps of one run. Run the same
    command again to resume; with more --samples only the new responses are generated.

    \b
        rlvr-dir audit my-base my-rl --tasks mine.jsonl --samples 8 --out audit
        rlvr-dir audit my-base my-rl --rows weights --texts rollouts.jsonl
        rlvr-dir audit my-base my-rl --tasks mine.jsonl --beside SFT=my-base:my-sft --low-rank 1,8 --dry-run
        rlvr-dir audit my-base runs/mine --every 50 --tasks mine.jsonl --fail-if 'gain < 0'
    """
    if names and len(names) != 2:
        raise UserError(f"{len(names)} checkpoints are named", accepted="BASE RL, or none and --pair")
    if names and (doubled := [name for name in ("pair", "base", "pretrained") if name in options]):
        raise UserError(
            f"and {names[0]!r} both name a pair; give one of them", argument=doubled[0], value=options[doubled[0]]
        )
    two = dict(zip(("base", "pretrained"), names or (), strict=False))
    run: dict[int, Path] = {}
    if every is not None:
        from rlvr_dir.audit.steps import steps_of

        if not names:
            raise UserError("needs a folder of checkpoints", argument="every", value=every, accepted="BASE RUN_DIR")
        run = steps_of(Path(names[1]), every)
        two["pretrained"] = str(run[max(run)])
    drawn = 8 if samples is None and options.get("temperature") != 0 else samples
    spec = load_eval({}, {**options, **two, "samples": drawn})
    with phase("starting"):
        from rlvr_dir.audit.gate import condition
        from rlvr_dir.audit.log import log_audit
        from rlvr_dir.audit.page import report, summary
        from rlvr_dir.audit.run import THIS, Request, beside_of, claims, dry_run_words, run_audit, sharpened
        from rlvr_dir.checkpoints.resolve import resolve
        from rlvr_dir.report.write import write
        from rlvr_dir.results.replacements import as_text
        from rlvr_dir.tracking import tracking_place

    groups = [name.strip() for name in rows.split(",") if name.strip()]
    ranks = parse_numbers("low_rank", low_rank, least=1) if low_rank else []
    others, pair = beside_of(beside or ()), resolve(spec.pair)
    steps = {THIS if step == max(run) else f"step {step}": step for step in run}
    for column, step in steps.items():
        if column != THIS:
            others[column] = [pair.replace(rl=str(run[step]), rl_revision=None)]
    if placebo is not None and dry_run:
        say("The estimate leaves out the sharpened copy of base, which takes as long as RL.")
    elif placebo is not None:
        others["sharpened base"] = [sharpened(pair, sharp_temperature, records.parent / "placebos")]
    request = Request(spec, groups, others, ranks, floor, steps, texts)
    requested = [claim for claim in claims(ranks) if claim.group in request.groups]
    conditions = {text: condition(text, requested) for text in fail_if or ()}
    announce_tiny(spec)
    if dry_run:
        echo(dry_run_words(request, records=records, gpus=named_gpus(gpus, gpu_memory)), lines=True)
        return
    place = tracking_place(records.parent, tracking, track=track)  # the same store as `eval`
    try:
        audit = run_audit(request, records=records, out=out)
    except KeyboardInterrupt:
        say(f"interrupted; finished responses are stored in {records}: run the same command again to resume")
        raise
    page = write(report(audit, details=(("made by", shlex.join(["rlvr-dir", *sys.argv[1:]])),)), out)
    if place is not None:
        with phase("logging to MLflow"):
            log_audit(audit, place)
    for name, column in audit.analysis.context["missing"].items():
        for group, why in column.items():
            say(f"{group} of {name} were not measured: {why}")
    for sentence in summary(audit):
        echo(sentence)
    if audit.replaced is not None:
        echo("\n" + as_text(audit.replaced) + "\n", lines=True)
    if "interventions" not in groups:
        say("next: add `interventions` to --rows to see whether the flagged tokens carry the gain (--dry-run first)")
    echo(f"report: {page.absolute().as_uri()} (tables, figures, report.md and audit.csv are beside it)")
    numbers = {name: estimate for (name, column), estimate in audit.estimates.items() if column == THIS}
    if conditions_met := [text for text, holds in conditions.items() if holds(numbers)]:
        echo(f"failed: {'; '.join(conditions_met)}", err=True)
        raise typer.Exit(1)

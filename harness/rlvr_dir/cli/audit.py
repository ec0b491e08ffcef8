"""`rlvr-dir audit`: what is said of RLVR, measured on any pair, on one page."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlvr_dir.cli.base import echo, parse_numbers
from rlvr_dir.cli.evaluate import announce_tiny
from rlvr_dir.cli.options import spec_options
from rlvr_dir.cli.track import Tracking
from rlvr_dir.config import EngineSpec, EvalSpec, Pair, Sampling, load_eval
from rlvr_dir.errors import UserError
from rlvr_dir.progress import phase, say

ROWS = "tokens,weights,interventions,outcomes"


@spec_options(EvalSpec, Pair, Sampling, EngineSpec, without=("samples",))
def audit_command(
    options: dict[str, Any],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[BASE RL]", help="Two checkpoints; default the tiny pair.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Responses a problem; default 8, greedily 1.", min=1)] = None,
    rows: Annotated[
        str, typer.Option(help="Groups of rows; interventions are the hours, tokens and weights minutes.")
    ] = ROWS,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            help="Another pair as a column: NAME=BASE:RL, or seeds of one training, NAME=BASE:RL,RL; again for more."
        ),
    ] = None,
    low_rank: Annotated[
        str, typer.Option(help="Ranks, as 1,8: score base with that part of each matrix's change alone.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is missing and what it takes; run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Receives report.html, report.md, audit.json, tables and figures.")] = Path(
        "audit"
    ),
    records: Annotated[Path, typer.Option(help="Store of rollouts; what it holds is not decoded again.")] = Path(
        "runs/records"
    ),
    track: Annotated[bool, typer.Option(help="Log the numbers to MLflow.")] = True,
    tracking: Tracking = None,
) -> None:
    """Measure what is said of RLVR on any two checkpoints that fit together.

    A page with a row a claim: what is measured, this pair's number with its 95 % interval, who published it, and how.
    RL, SFT, or two steps of one training. Run it again and it goes on; more samples decode what is missing.

    \b
        rlvr-dir audit my-base my-rl --tasks mine.jsonl --samples 8 --out audit
        rlvr-dir audit my-base my-rl --rows weights
        rlvr-dir audit my-base my-rl --tasks mine.jsonl --beside SFT=my-base:my-sft --low-rank 1,8 --dry-run
    """
    if names and len(names) != 2:
        raise UserError(f"{len(names)} checkpoints are named", accepted="BASE RL, or none and --pair")
    if names and (doubled := [name for name in ("pair", "base", "pretrained") if name in options]):
        raise UserError(
            f"and {names[0]!r} both name a pair; give one of them", argument=doubled[0], value=options[doubled[0]]
        )
    two = dict(zip(("base", "pretrained"), names or (), strict=False))
    drawn = 8 if samples is None and options.get("temperature") != 0 else samples
    spec = load_eval({}, {**options, **two, "samples": drawn})
    with phase("starting"):
        from rlvr_dir.audit.log import log_audit
        from rlvr_dir.audit.page import report
        from rlvr_dir.audit.run import Request, beside_of, dry_run_words, run_audit
        from rlvr_dir.report.write import write
        from rlvr_dir.tracking import tracking_place

    groups = [name.strip() for name in rows.split(",") if name.strip()]
    ranks = parse_numbers("low_rank", low_rank, least=1) if low_rank else []
    request = Request(spec, groups, beside_of(beside or ()), ranks)
    announce_tiny(spec)
    if dry_run:
        echo(dry_run_words(request, records=records, out=out), lines=True)
        return
    place = tracking_place(out, tracking, track=track)
    try:
        audit = run_audit(request, records=records, out=out)
    except KeyboardInterrupt:
        say(f"interrupted; what was decoded is kept in {records}, and the same command goes on from there")
        raise
    page = write(report(audit, facts=(("made by", shlex.join(["rlvr-dir", *sys.argv[1:]])),)), out)
    if place is not None:
        with phase("logging to MLflow"):
            log_audit(audit, place)
    for name, column in audit.analysis.facts["missing"].items():
        for group, why in column.items():
            say(f"{group} of {name} not measured: {why}")
    echo(f"written: {page}, report.md, audit.json and audit.csv, tables and figures beside it")

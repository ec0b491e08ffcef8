"""Define `rlvr-dir analyse …`, which computes numbers about tokens and training runs for `rlvr-dir report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import echo, group
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import EngineSpec, EvalSpec, Pair, Sampling, load_eval
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_writable
from rlvr_dir.progress import phase

if TYPE_CHECKING:
    from rlvr_dir.analysis.result import Analysis

app = group("Token statistics and training runs, for reports.")

AnalysisOut = Annotated[Path, typer.Option(help="Folder for the analysis, as JSON.")]
OUT = Path("runs/analysis")
CREDITED = (
    "replace,tau=-0.1", "replace,criterion=abs_delta_logp,tau=0.1", "replace,criterion=kl,tau=0.1",
    "replace,criterion=entropy_base,tau=1",
)  # fmt: skip


@app.command("gated")
@spec_options(EvalSpec, Pair, Sampling, EngineSpec, without=("grader",))
def analyse_gated(
    options: dict[str, Any],
    decoding: Annotated[
        list[str] | None,
        typer.Option("-d", "--decoding", help="A decoding with a gate. Can be repeated. Default: replace,tau=-0.1."),
    ] = None,
    records: Annotated[
        Path, typer.Option(help="Folder for the responses. Cached responses are not generated again.")
    ] = Path("runs/records"),
    out: AnalysisOut = OUT,
) -> None:
    """Count where in a response a gate flags tokens.

    The result also has the lengths of runs of flagged tokens, the entropy at them, and what follows. It is written to
    OUT/gated.json.

    \b
        rlvr-dir analyse gated --samples 16 --limit 60 -d replace,tau=-0.1 -d replace,criterion=kl,tau=0.1
    """
    with phase("starting"):
        from rlvr_dir.analysis.gated import gated_statistics

    spec = load_eval({"tasks": "tiny_medium"}, {**options, "decodings": decoding or ["replace,tau=-0.1"]})
    check_writable(out, records)
    _keep(gated_statistics(spec, records), out)


@app.command("credit")
@spec_options(EvalSpec, Pair, Sampling, EngineSpec)
def analyse_credit(
    options: dict[str, Any],
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "-d",
            "--decoding",
            help=f"A decoding whose gate flags tokens. Can be repeated. Default: {'; '.join(CREDITED)}.",
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Flagged tokens to change, per problem and decoding.", min=1)] = 8,
    noises: Annotated[
        int,
        typer.Option(
            help="Replays per changed token with new random numbers, in addition to the one with the original ones.",
            min=0,
        ),
    ] = 2,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Set changed tokens of the decodings' own responses back to the proposed ones."),
    ] = False,
    draw: Annotated[int, typer.Option(help="Seed for choosing the tokens.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is still to be generated and its cost; run nothing.")
    ] = False,
    records: Annotated[
        Path, typer.Option(help="Folder for responses and replays. Cached ones are not generated again.")
    ] = Path("runs/records"),
    out: AnalysisOut = OUT,
) -> None:
    """Change single tokens, replay the rest, and compare verdicts.

    The result is by criterion, depth, size and sign of Δ log p. Flagged tokens are compared with matched tokens that
    are not flagged. It is written to OUT/credit.json.

    \b
        rlvr-dir analyse credit --samples 8 --limit 60 --tokens 8
        rlvr-dir analyse credit -d resample,primary=rl,criterion=kl,tau=0.1 --dry-run
    """
    with phase("starting"):
        from rlvr_dir.analysis.credit import credit_statistics

    spec = load_eval({"tasks": "tiny_medium"}, {**options, "decodings": decoding or list(CREDITED)})
    check_writable(out, records)
    kwargs: dict[str, Any] = {"tokens": tokens, "noises": noises, "undo": undo, "seed": draw, "dry_run": dry_run}
    analysis = credit_statistics(spec, records, **kwargs)
    if analysis is not None:
        _keep(analysis, out)


@app.command("texts", hidden=True, context_settings={"ignore_unknown_options": True})
def analyse_texts(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Name the command that replaced this one."""
    raise UserError("`analyse texts` was replaced", hint="Run `rlvr-dir score BASE RL TEXTS`.")


@app.command("curves")
def analyse_curves(
    logs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of training runs, sweeps of them, or logs: PLACE or METHOD=PLACE. A method can have several."
        ),
    ],
    step: Annotated[
        int | None, typer.Option(help="Step whose gradient mass is shown. Default: the mean over all steps.")
    ] = None,
    out: AnalysisOut = OUT,
) -> None:
    """Read training curves of `rlvr-dir train`, TRL or verl.

    The curves are validations, and accuracy, entropy and length of rollouts. They are written to OUT/training.json.

    \b
        rlvr-dir analyse curves DAPO=runs/train/DAPO Ours=runs/train/low_prob-0.2
        rlvr-dir analyse curves runs/sweeps/tiny_rollout_top_p
    """
    from rlvr_dir.analysis.curves import curves
    from rlvr_dir.results.trainings import trainings_at

    by_method: dict[str, list[Path]] = {}
    for log in logs:
        name, equals, path = log.partition("=")
        if not equals or Path(log).exists():
            name, path = "", log
        if trainings := trainings_at(Path(path)):
            for training in trainings:
                training_logs = [training.log(seed) for seed in training.seeds if training.log(seed).is_file()]
                by_method.setdefault(name if len(trainings) == 1 and name else training.name, []).extend(training_logs)
            continue
        if not Path(path).is_file():
            raise UserError(
                "is neither a file nor a training", argument="logs", value=log, accepted="PLACE or METHOD=PLACE"
            )
        by_method.setdefault(name or Path(path).stem, []).append(Path(path))
    _keep(curves(by_method, step), out)


def _keep(analysis: "Analysis", out: Path) -> None:
    path = analysis.write(out)
    echo(f"written: {path}; `rlvr-dir report --analysis {path.parent}` draws it")

"""Define `rlvr-dir score`, which scores given texts with both models and tests which model wrote them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rlvr_dir.cli.base import echo, fit_table
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import EngineSpec, Pair, load_eval
from rlvr_dir.errors import UserError
from rlvr_dir.progress import phase, say


@spec_options(Pair, EngineSpec)
def score_command(
    options: dict[str, Any],
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[BASE RL] TEXTS", help="Two checkpoints (by default the tiny pair), and a file of texts."
        ),
    ],
    who: Annotated[bool, typer.Option("--who", help="Test which model wrote the texts.")] = False,
    candidate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="A further checkpoint that may have written them. Can be repeated."),
    ] = None,
    writer: Annotated[
        str, typer.Option(help="Model that should have written them: base, rl or the name of a candidate.")
    ] = "rl",
    temperature: Annotated[
        float, typer.Option(help="Temperature at which they were sampled. Logits are divided by it.", min=0, max=100)
    ] = 1.0,
    top_p: Annotated[float, typer.Option(help="Top-p at which they were sampled.", min=0.01, max=1)] = 1.0,
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, score.json, tokens.parquet, and what is needed to resume.")
    ] = Path("scored"),
) -> None:
    """Score given texts with both models, token by token.

    TEXTS has one JSON object per line, with `prompt` and `response`, or only `text`. It can also be a file of rollouts
    as TRL, verl or prime-rl write it, JSON lines or parquet. Token ids are used if the file has them. If it has
    log-probabilities, they are compared with those of --writer.

    Run the same command again to resume. With --who, score in the dtype of the model that wrote the texts (--dtype).

    \b
        rlvr-dir score my-base my-rl texts.jsonl
        rlvr-dir score my-base run/step-6 rollouts.jsonl --who --candidate step-4=run/step-4 --dtype bfloat16
    """
    if len(names) not in (1, 3):
        raise UserError(f"{len(names)} places are named", accepted="BASE RL TEXTS, or TEXTS and --pair")
    if len(names) == 3 and (doubled := [name for name in ("pair", "base", "pretrained") if name in options]):
        problem = f"and {names[0]!r} both name a pair; give one of them"
        raise UserError(problem, argument=doubled[0], value=options[doubled[0]])
    candidates: dict[str, str] = {}
    for text in candidate or ():
        name, _, place = text.partition("=")
        if not name or not place or name in candidates:
            raise UserError("is not allowed", argument="candidate", value=text, accepted="NAME=DIR, each name once")
        candidates[name] = place
    spec = load_eval({}, {**options, **dict(zip(("base", "pretrained"), names[:-1], strict=False))})
    with phase("starting"):
        from rlvr_dir.analysis.score import score
        from rlvr_dir.checkpoints.resolve import resolve
        from rlvr_dir.report.scored import lines, number_cell, page
        from rlvr_dir.report.write import write

    asked = candidates if who or candidates else None
    sampled = {"writer": writer, "temperature": temperature, "top_p": top_p}
    try:
        scores = score(resolve(spec.pair), names[-1], candidates=asked, out=out, engine=spec.engine, **sampled)
    except KeyboardInterrupt:
        say(f"interrupted; finished scores are stored in {out}: run the same command again to resume")
        raise
    cells = [(number.title, number_cell(number)) for number in scores.numbers.values()]
    table = [[title, cell.text, " ".join(cell.small)] for title, cell in cells]
    echo("\n".join([*lines(scores), "", fit_table(["on these texts", "", "95 % interval"], table)]), lines=True)
    with phase("writing"):
        scores.analysis().write(out)
        scores.frame().to_parquet(out / "tokens.parquet", index=False)
        place = write(page(scores), out)
    echo(f"\nwritten: {place}, {out / 'tokens.parquet'}, {out / 'score.json'}", lines=True)

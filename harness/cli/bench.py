"""`rlvr-dir bench`: speed and memory, measured side by side in one run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.bench.steps import LIMIT_S, STEPS
from harness.cli.base import group, numbers
from harness.errors import UserError, unknown
from harness.markdown import markdown_table

app = group("Speed and memory, measured side by side in one run.")

Threads = Annotated[int, typer.Option(help="CPU threads an engine; one is right for tiny models.", min=1)]


@app.command("decode")
def bench_decode_command(
    sequences: Annotated[str, typer.Option(help="Asked for at once, on 30 prompts; comma-separated.")] = "240",
    engines: Annotated[str, typer.Option(help="Comma-separated; pair is what others are compared with.")] = (
        "single,pair,transformers,stock,calls"
    ),
    tokens: Annotated[int, typer.Option(help="New tokens of each, at most.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure tokens per CPU-second: RL alone, the pair, and others.

    Those are transformers as we and others use it, and one token a call."""

    from harness.bench.decode import bench_decode

    found = bench_decode(
        sequences=numbers("sequences", sequences, least=1), kinds=engines.split(","), tokens=tokens, rounds=rounds,
        threads=threads, say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {tokens} tokens a sequence, {threads} thread(s)")
    for size in found["sizes"]:
        typer.echo(f"\n{size['sequences']} sequences")
        for kind, speed in size["tokens_per_cpu_second"].items():
            ratio = size["ratios"].get(f"pair_to_{kind}")
            typer.echo(
                f"{kind:>14}  {speed:>10,.0f} tokens per CPU-second" + (f"   pair: {ratio:.2f} x" if ratio else "")
            )
    typer.echo(
        "\nTwo forwards that share nothing: pair at 0.50 x single. stock: transformers with its own caches and "
        "attention. calls: two engines, one token a call."
    )


@app.command("draft")
def bench_draft_command(
    records: Annotated[Path, typer.Option(help="A store: responses decoded here, with their tokens.")],
    record: Annotated[str, typer.Argument(help="One of its records, by the beginning of its hash; default all.")] = "",
    model: Annotated[str, typer.Option(help="Whose size both models have: a folder, or a known hub id.")] = (
        "Qwen/Qwen2.5-7B"
    ),
    card: Annotated[str, typer.Option(help="GPU: A100, H100, H200 or B200.")] = "H200",
    gpus: Annotated[int, typer.Option(help="That share each layer.", min=1)] = 1,
    context: Annotated[int, typer.Option(help="Tokens of a row on the average, prompt included.", min=1)] = 8000,
    drafts: Annotated[str, typer.Option(help="Drafts a step, comma-separated.")] = "2,4,8",
    siblings: Annotated[str, typer.Option(help="Samples a problem, comma-separated; all come last.")] = "1,8",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Say what look-up drafts would be worth, from responses that a store holds.

    Nothing is decoded: a draft is kept where it equals what was written. Gains are arithmetic, not measured."""
    from harness.bench.draft import bench_draft
    from harness.decode.memory import shape_of
    from harness.decode.worth import CARDS, Worth

    if card not in CARDS:
        raise unknown("card", card, CARDS)
    if (shape := shape_of(model)) is None:
        raise UserError(f"model={model!r} has no configuration here; accepted: a folder with one, or a known hub id")
    found = bench_draft(
        records, Worth((shape, shape), CARDS[card], gpus), context=context, name=record,
        drafts=numbers("drafts", drafts, least=1), siblings=numbers("siblings", siblings, least=1),
        say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"two models as {model} on {gpus} {card}, rows of {context} tokens: {found['rows']} at once\n")
    columns = [f"{k} drafts" for k in found["records"][0]["gain"]]
    rows = [
        [each["record"], each["rule"], each["top_p"], each["siblings"]]
        + [f"{tokens:.2f} → {each['gain'][k]:.2f}×" for k, tokens in each["tokens_a_step"].items()]
        for each in found["records"]
    ]
    typer.echo(markdown_table(["record", "rule", "top-p", "siblings", *columns], rows))
    typer.echo("\nTokens a row and step → speed against no drafts, by arithmetic (no GPU has measured it).")


@app.command("checklist")
def bench_checklist_command(
    steps: Annotated[
        str | None, typer.Option(help=f"Comma-separated; default: all that suit the machine. {', '.join(STEPS)}.")
    ] = None,
    limit_s: Annotated[float, typer.Option(help="Seconds a step may take; one that overruns is killed.", min=1)] = (
        LIMIT_S
    ),
    sequences: Annotated[str, typer.Option(help="Decoded at once in the steps of speed, comma-separated.")] = "256,960",
    tokens: Annotated[int, typer.Option(help="New tokens of each.", min=1)] = 128,
    out: Annotated[Path | None, typer.Option(help="Write it all to this JSON file, anew after each step.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For models, compile cache and whole outputs, kept for the next call.")
    ] = None,
) -> None:
    """Check the engine where it has not run yet, a GPU above all.

    docs/gpu.md says what it covers. Exit status 1: a step failed."""
    from harness.bench.checklist import run_checklist, show

    found = run_checklist(
        steps=steps, limit_s=limit_s, sequences=numbers("sequences", sequences, least=1), tokens=tokens, out=out,
        folder=folder,
        say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    for line in show(found):
        typer.echo(line)
    if any(one["ok"] is False for one in found["steps"].values()):
        raise typer.Exit(1)

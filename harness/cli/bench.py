"""`rlvr-dir bench`: speed, measured side by side in one run."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.base import group

app = group("Speed, measured side by side in one run.")

Threads = Annotated[int, typer.Option(help="CPU threads an engine; one is right for tiny models.", min=1)]


@app.command("decode")
def bench_decode_command(
    sequences: Annotated[int, typer.Option(help="Decoded at once, on 30 prompts.", min=1)] = 240,
    tokens: Annotated[int, typer.Option(help="New tokens of each, at most.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Tokens per CPU-second of the RL model alone, the pair engine and the transformers pair, in one run."""
    import json

    from harness.bench.decode import bench_decode

    found = bench_decode(
        sequences=sequences, tokens=tokens, rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {sequences} sequences x {tokens} tokens, {threads} thread(s)\n")
    for kind, speed in found["tokens_per_cpu_second"].items():
        typer.echo(f"{kind:>14}  {speed:>10,.0f} tokens per CPU-second")
    typer.echo(f"\npair / single        {found['ratios']['pair_to_single']:.2f}   (two forwards sharing nothing: 0.50)")
    typer.echo(f"pair / transformers  {found['ratios']['pair_to_transformers']:.2f}")


@app.command("decision")
def bench_decision_command(
    rows: Annotated[int, typer.Option(help="Of one batch of logits.", min=1)] = 16,
    vocab: Annotated[int, typer.Option(help="Columns.", min=2)] = 151_936,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 5,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Milliseconds a row of Algorithm 1 at a large vocabulary, peaked and flat, beside what no decision can avoid."""
    import json

    from harness.bench.decision import bench_decision

    found = bench_decision(
        rows=rows, vocab=vocab, rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {rows} rows, vocabulary {vocab:,}, {threads} thread(s)")
    for shape, parts in found["ms_a_row"].items():
        typer.echo(f"\n{shape}: {found['replaced'][shape]:.0%} of the rows are redrawn")
        for name, ms in parts.items():
            typer.echo(f"{name:>18}  {ms:8.3f} ms a row")
        typer.echo(f"{'memory':>18}  {found['memory'][shape]:8.1f} batches of logits at most, beside the two given")


@app.command("grade")
def bench_grade_command(
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="RLVR_DIR_DATA", help="Folder with minerva.jsonl; without one that corpus is skipped."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the made-up answers: a new seed, new answers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Both graders on 960 integer answers, 8,704 Minerva-like ones and 200 hostile ones, in one run."""
    import json

    from harness.bench.grade import bench_grade

    found = bench_grade(data_dir=data_dir, seed=seed, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}, seed {found['seed']}")
    for one in found["results"]:
        pool = "the pool is alive after" if one["alive"] else "THE POOL IS DEAD"
        typer.echo(
            f"\n{one['corpus']}, {one['grader']}: {one['gradings']:,} gradings ({one['distinct']:,} distinct pairs) in "
            f"{one['seconds']:.2f} s, {one['per_second']:,.0f}/s; {pool}"
        )
        for family, kinds in {**one["families"], "all": one["kinds"]}.items():
            typer.echo(f"{family:>14}  " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    if found["skipped"]:
        typer.echo(f"\n{found['skipped']}")

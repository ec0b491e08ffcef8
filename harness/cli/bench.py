"""`rlvr-dir bench`: speed, measured side by side in one run."""

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

"""Define `rlvr-dir bench`, which measures speed and memory in one run."""

import json
from typing import Annotated

import typer

from rlvr_dir.cli.base import LIST, group, parse_numbers

app = group("Speed and memory, measured side by side in one run.")

Threads = Annotated[int, typer.Option(help="CPU threads per engine; use one for tiny models.", min=1)]


@app.command("decode")
def bench_decode_command(
    sequences: Annotated[
        str, typer.Option(metavar=LIST, help="Number of sequences to decode at once, on 30 prompts.")
    ] = "240",
    engines: Annotated[
        str,
        typer.Option(
            metavar=LIST, help="Engines to time: single (RL alone), pair, transformers (our caches), stock, calls."
        ),
    ] = ("single,pair,transformers,stock,calls"),
    tokens: Annotated[int, typer.Option(help="Maximum number of new tokens per sequence.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Measured rounds, after one to warm up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure tokens per CPU-second of RL alone, the pair, and other engines.

    single: RL alone in vLLM. pair: both models in one engine. transformers: our transformers engine. stock: the same
    with transformers' own caches. calls: two engines, one token per call.
    """

    from rlvr_dir.bench.decode import bench_decode

    measured = bench_decode(
        sequences=parse_numbers("sequences", sequences, least=1), kinds=engines.split(","), tokens=tokens,
        rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(measured))
        return
    typer.echo(f"{measured['machine']}, {measured['date']}; {tokens} tokens per sequence, {threads} thread(s)")
    for size in measured["sizes"]:
        typer.echo(f"\n{size['sequences']} sequences")
        for kind, speed in size["tokens_per_cpu_second"].items():
            ratio = size["ratios"].get(f"pair_to_{kind}")
            typer.echo(
                f"{kind:>14}  {speed:>10,.0f} tokens per CPU-second" + (f"   pair: {ratio:.2f} x" if ratio else "")
            )
    typer.echo(
        "\nTwo forward passes that share nothing would give pair at 0.50 x single. stock: transformers with its own "
        "caches and attention. calls: two engines, one token per call."
    )

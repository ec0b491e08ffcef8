"""`rlvr-dir tiny`: the embedded pair, built anew or measured."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.base import echo, group
from harness.errors import UserError

app = group("The embedded pair: build it anew, or measure it.")


@app.command("build")
def tiny_build(
    out: Annotated[Path, typer.Option(help="Receives base/, rl/ and the model card.")],
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Pretrain the tiny base from nothing, then RL-train it with DAPO through TRL: some six minutes on one core."""
    from harness.tiny import build

    pair = build(out, seed=seed)
    echo(f"base: {pair.base}")
    echo(f"rl:   {pair.rl}")
    echo(f"Figures: rlvr-dir tiny measure --pair {out}")


@app.command("measure")
def tiny_measure(
    pair: Annotated[
        Path | None, typer.Option(help="A folder that `tiny build` made; default the shipped pair.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Responses a problem.", min=2)] = 32,
) -> None:
    """Measure Avg@k of base and RL on the three tiny benchmarks; a built pair's figures go into its model card."""
    from harness.tiny import tiny_pair
    from harness.tiny.measure import figures_text, measure_pair
    from harness.tiny.measure import main as measure

    if pair is None:
        shipped = tiny_pair()
        echo(figures_text(measure_pair(shipped.base, shipped.rl, samples=samples)), lines=True)
    elif (pair / "rl").is_dir():
        measure(pair, samples)
    else:
        raise UserError(f"pair={str(pair)!r} has no rl/; accepted: a folder that `rlvr-dir tiny build` made")

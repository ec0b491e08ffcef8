"""The embedded tiny pair: built anew, with placebos, completed by its steps, or measured.

python -m examples.tiny build --out pairs/seed-1 --seed 1
"""

from pathlib import Path
from typing import Annotated

import typer

from rlvr_dir.cli import main
from rlvr_dir.cli.base import echo, group
from rlvr_dir.errors import UserError

app = group("The embedded pair: build it anew, add its steps, or measure it.")


@app.command("build")
def tiny_build(
    out: Annotated[Path, typer.Option(help="Receives base/, rl/, RL on the way and the model card.")],
    seed: Annotated[int, typer.Option()] = 0,
    fillers: Annotated[
        bool, typer.Option(help="Lines open and end with one of several words that mean nothing.")
    ] = True,
    training: Annotated[
        str, typer.Option(help="verdict, or a placebo: random, length (rewards), own_samples, noise.")
    ] = "verdict",
    start: Annotated[
        Path | None, typer.Option(help="A built pair whose base is taken; noise has the norm of its RL's change.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Of RL.", min=1)] = 8,
) -> None:
    """Train a tiny pair from scratch, in six minutes on one core.

    A placebo is trained without a reward for right answers. If its RL gains nothing and a criterion does, the gain is
    due to the gate.

    \b
        python -m examples.tiny build --out pairs/seed-1 --seed 1
        python -m examples.tiny build --out pairs/random-1 --seed 1 --start pairs/seed-1 --training random
    """
    if start is not None and not fillers:
        raise UserError("--no-fillers is of a new base; accepted: without --start, whose base is as it is")
    from examples.tiny.pretrain import PretrainSettings
    from examples.tiny.recipe import TINY_DAPO, build

    pretraining = PretrainSettings(fillers=fillers)
    dapo = TINY_DAPO.replace(steps=steps)
    pair = build(out, seed=seed, pretraining=pretraining, dapo=dapo, training=training, start=start)
    echo(f"base: {pair.base}")
    echo(f"rl:   {pair.rl}")
    echo(f"Figures: python -m examples.tiny measure --pair {out}")


@app.command("steps")
def tiny_steps(
    pair: Annotated[Path | None, typer.Option(help="A folder that `build` made; default the shipped pair.")] = None,
) -> None:
    """Add the models of its steps to a pair that was built without them.

    RL is trained again from its base, which takes a minute.

    rl/ is not changed. If the second training does not end there, nothing is added.
    """
    from examples.tiny.recipe import add_steps
    from rlvr_dir.tiny import WEIGHTS

    folder = pair or WEIGHTS
    found = add_steps(folder)
    for step in found["kept_steps"]:
        echo(f"step {step}: {folder / f'step-{step}'}")
    echo(
        f"The second training ends within {found['largest_difference']:.1e} of rl/, in any weight; training changed "
        f"them by up to {found['largest_change']:.1e}."
    )


@app.command("measure")
def tiny_measure(
    pair: Annotated[Path | None, typer.Option(help="A folder that `build` made; default the shipped pair.")] = None,
    samples: Annotated[int, typer.Option(help="Responses a problem.", min=2)] = 32,
) -> None:
    """Measure Avg@k of base and RL on the three tiny benchmarks.

    For a built pair the numbers are added to its model card.
    """
    from examples.tiny.measure import figures_text, measure_and_keep, measure_pair
    from rlvr_dir.tiny import tiny_pair

    if pair is None:
        shipped = tiny_pair()
        echo(figures_text(measure_pair(shipped.base, shipped.rl, samples=samples)), lines=True)
    elif (pair / "rl").is_dir():
        measure_and_keep(pair, samples)
    else:
        raise UserError(f"pair={str(pair)!r} has no rl/; accepted: a folder that `build` made")


if __name__ == "__main__":
    main(app)

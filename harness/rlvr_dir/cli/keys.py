"""Define `rlvr-dir keys`, which lists the keys of the YAML files of evaluations, sweeps and trainings."""

from typing import Annotated

import typer

from rlvr_dir.cli.base import echo
from rlvr_dir.errors import unknown


def keys_command(kind: Annotated[str, typer.Argument(help="eval, sweep, train, or sweep-of-trainings.")]) -> None:
    """Print the keys that a YAML file may have, with defaults and meanings.

    The output is a file to start from:

    \b
        rlvr-dir keys train > mine.yaml
    """
    from rlvr_dir.config import EvalSpec
    from rlvr_dir.config.keys import keys
    from rlvr_dir.config.sweep import SweepSpec
    from rlvr_dir.sweep.specs import TrainingSweep
    from rlvr_dir.train.spec import TrainSpec

    of = {"eval": EvalSpec, "sweep": SweepSpec, "train": TrainSpec, "sweep-of-trainings": TrainingSweep}
    if kind not in of:
        raise unknown("kind", kind, of)
    echo("\n".join(keys(of[kind])), lines=True)

"""Define the options of a dry run, which are the same for every command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlvr_dir.cli.base import echo

if TYPE_CHECKING:
    from rlvr_dir.config import EvalSpec
    from rlvr_dir.evals.plan import Gpus

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print what is cached, what is still to be generated, and the cost. Run nothing."),
]
GpuCount = Annotated[int | None, typer.Option("--gpus", help="GPUs to plan for; by default this machine's.", min=1)]
GpuMemory = Annotated[float | None, typer.Option(help="Memory of each GPU to plan for, in GiB, such as 79.1.", min=1)]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe", help="Generate responses for two minutes to measure the speed, keep them, and print the plan."
    ),
]


def named_gpus(count: int | None, gib: float | None) -> "Gpus | None":
    """Return the GPUs that the user names, or those of this machine."""
    from rlvr_dir.evals.plan import Gpus

    return Gpus.named(count, gib)


def show_plan(
    spec: "EvalSpec", records: Path, gpus: "Gpus | None", *, probe: bool = False, trace: int | None = None
) -> None:
    """Print what an evaluation needs; with `probe`, first generate responses for two minutes."""
    from rlvr_dir.evals import loop
    from rlvr_dir.evals.plan_jobs import plan_evaluation

    if probe:
        loop.probe(spec, records)
    echo(plan_evaluation(spec, records, gpus, trace=trace).text(), lines=True)

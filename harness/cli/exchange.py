"""`rlvr-dir export`: results and rollouts in the formats of other programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.base import echo
from harness.cli.options import spec_options
from harness.spec import EvalSpec


@spec_options(EvalSpec, only=("grader", "data_dir"))
def export_command(
    options: dict[str, Any],
    places: Annotated[list[str], typer.Argument(help="Result files, folders of them, or records, as `report` takes.")],
    form: Annotated[str, typer.Option("--format", help="eee, eval-results, inspect or lm-eval.")],
    out: Annotated[Path, typer.Option(help="Folder that receives the files.")],
    store: Annotated[Path, typer.Option(help="Folder of records, for hashes.")] = Path("runs/records"),
    partial: Annotated[bool, typer.Option("--partial", help="Of unfinished records: what every problem has.")] = False,
    organization: Annotated[str, typer.Option(help="Who evaluated (eee).")] = "unknown",
    relationship: Annotated[
        str, typer.Option(help="To the models' makers (eee): first_party, third_party, collaborative or other.")
    ] = "other",
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="TASK=ORG/NAME:TASK_ID, where the hub has the benchmark (eval-results); again for more."),
    ] = None,
    source_url: Annotated[str | None, typer.Option(help="Where the outputs can be seen (eval-results).")] = None,
) -> None:
    """Write results and samples in the formats of other programs.

    What a format cannot say is told in a sentence.

    \b
        rlvr-dir export runs/demo --format eee --out shared        # Every Eval Ever: scores and a line a response
        rlvr-dir export runs/demo --format inspect --out logs      # inspect view --log-dir logs
    """
    from harness.evals.places import read_results
    from harness.exchange.export import dataset_of, export
    from harness.exchange.material import Target

    target = Target(organization, relationship, source_url, dict(dataset_of(each) for each in dataset or []))
    results = read_results(places, store, partial=partial, **options)
    written = export(results, form, out, target, options.get("data_dir"))
    for file in written.files:
        echo(f"written: {file}")
    for said in written.remarks:
        echo(f"note: {said}", err=True)

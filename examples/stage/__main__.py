"""Compare kinds of pairs, as true ones with placebos, and report on them.

python -m examples.stage pairs RL=runs/sweeps/stage-seed noise=runs/sweeps/stage-noise --out runs/analysis
python -m examples.stage report --analysis runs/analysis --out report
"""

from pathlib import Path
from typing import Annotated

import typer

from examples.stage.chapter import pairs_chapter
from examples.stage.kinds import nearest_of, pair_statistics
from rlvr_dir.cli import main
from rlvr_dir.cli.base import echo, group, parse_numbers
from rlvr_dir.cli.report import report
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_writable, write_file
from rlvr_dir.report.analyses import CHAPTERS
from rlvr_dir.results import read_results

CHAPTERS["pairs"] = pairs_chapter
app = group("Compare kinds of pairs, as true ones with placebos. `report` is `rlvr-dir report` with their chapter.")
app.command("report")(report)


@app.command("pairs")
def compare_kinds(
    kinds: Annotated[
        list[str],
        typer.Argument(
            help="KIND=PLACE: results of the pairs of a kind, as sweeps leave them; several places of a kind are put "
            "together. The first kind is the true one."
        ),
    ],
    changed: Annotated[
        str, typer.Option(help="Shares of changed tokens at which criteria are compared.")
    ] = "0.01,0.02",
    flagged: Annotated[
        float, typer.Option(help="Leave out decodings that flag a larger share of tokens.", min=0.0, max=1.0)
    ] = 1.0,
    one_pair: Annotated[
        bool, typer.Option("--one-pair", help="Allow kinds of a single pair; intervals are then over problems alone.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Receives the analysis as JSON.")] = Path("runs/analysis"),
) -> None:
    """Compare kinds of pairs by what each criterion gains: OUT/pairs.json.

    OUT/problems.csv has the number of right answers to each problem, by pair and decoding.
    Intervals are for other problems and other pairs.

    \b
        python -m examples.stage pairs RL=runs/sweeps/stage-seed noise=runs/sweeps/stage-noise
    """
    places: dict[str, list[str]] = {}
    for kind in kinds:
        name, equals, place = kind.partition("=")
        if not equals:
            raise UserError("has no name", argument="kinds", value=kind, accepted="KIND=PLACE")
        places.setdefault(name, []).append(place)
    shares = parse_numbers("changed", changed, float)
    if not all(0 < share < 1 for share in shares):
        raise UserError(argument="changed", value=changed, accepted="fractions between 0 and 1")
    check_writable(out)
    results = {
        name: [each for each in read_results(found) if each.replacement_ratio <= flagged]
        for name, found in places.items()
    }
    found = pair_statistics(results, shares, one_pair=one_pair)
    path = found.write(out)
    write_file(path.with_name("problems.csv"), found.frame("problems").to_csv(index=False))
    echo(f"written: {path}; `python -m examples.stage report --analysis {path.parent}` draws it")


@app.command("nearest")
def nearest(
    places: Annotated[list[Path], typer.Argument(help="Results of RL checkpoints, a folder each.")],
    to: Annotated[Path, typer.Option(help="Results of the checkpoint whose accuracy is to be matched.")],
    skip: Annotated[int, typer.Option(help="Leave out this many problems, on which the study reports.", min=0)] = 120,
) -> None:
    """Print the place whose RL checkpoint is right about as often as another checkpoint."""
    echo(str(nearest_of(to, places, skip)))


if __name__ == "__main__":
    main(app)

"""Define `rlvr-dir report`, which puts results and analyses into one page that can be sent."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import LIST, echo
from rlvr_dir.cli.evaluate import read
from rlvr_dir.cli.options import spec_options
from rlvr_dir.cli.track import Tracking
from rlvr_dir.cli.view import Tokenizer
from rlvr_dir.config import EvalSpec
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.files import check_writable
from rlvr_dir.progress import say

if TYPE_CHECKING:
    from rlvr_dir.results import EvalResult


@spec_options(EvalSpec, only=("grader", "data_dir"))
def report(
    options: dict[str, Any],
    places: Annotated[
        list[str] | None,
        typer.Argument(
            help="Result files, folders, trainings, sweeps, records or run:ID. Write NAME=PLACE to name RL (the "
            "paper's numbers are added for dapo-32b, orz-32b and unireason-14b)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html, report.md, tables and figures.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "rlvr-dir report",
    store: Annotated[Path, typer.Option(help="Folder of records, for hashes.")] = Path("runs/records"),
    partial: Annotated[
        bool, typer.Option("--partial", help="For unfinished records, use the samples that every problem has.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Folder with the MLflow store, for run:ID.")] = Path("runs"),
    tracking: Tracking = None,
    ui: Annotated[
        int | None,
        typer.Option(
            help="Link results to their runs in `rlvr-dir ui` at this port. Results on a tracking server always are."
        ),
    ] = None,
    tasks: Annotated[str | None, typer.Option(metavar=LIST, help="Benchmarks to report. Default: all.")] = None,
    analyses: Annotated[
        list[Path] | None,
        typer.Option(
            "--analysis",
            help="A file that `rlvr-dir analyse` or `audit` wrote, or a folder of them; give it again for more.",
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(help="Problems per benchmark to show token by token, if records are available.", min=0),
    ] = 2,
    tokenizer: Tokenizer = None,
    tables_of_the_paper: Annotated[
        bool, typer.Option("--paper", help="Add the paper's own tables, drawn from its numbers.")
    ] = False,
    paper_base: Annotated[
        str | None,
        typer.Option(help="What the paper calls the base of the trainings: qwen2.5-math-7b or qwen3-8b-base."),
    ] = None,
) -> None:
    """Put results into one page, with Markdown, LaTeX and CSV.

    \b
        rlvr-dir report runs/demo --out report
        rlvr-dir report DAPO=runs/train/DAPO Ours=runs/train/low_prob-0.2 --out report
        rlvr-dir audit --rows tokens --tasks tiny_medium && rlvr-dir report runs/demo --analysis audit
    """
    from rlvr_dir import __version__
    from rlvr_dir.report.analyses import analysis_chapters
    from rlvr_dir.report.build import build
    from rlvr_dir.report.paper import paper_chapter
    from rlvr_dir.report.token_viewers import replacements_shown, token_viewers
    from rlvr_dir.report.write import write
    from rlvr_dir.results.show import warnings
    from rlvr_dir.results.tokenizers import tokenizers

    results = _only(read(places, store, runs, tracking, partial=partial, **options), tasks) if places else []
    more = analysis_chapters(analyses or [])
    more += [paper_chapter()] if tables_of_the_paper else []
    if not results and not more:
        raise UserError(
            "There is nothing to report",
            argument="results",
            hint="Name a folder of results, for example `rlvr-dir report runs`.",
        )
    check_writable(out)
    details = (("rlvr-dir", __version__), ("made by", " ".join(["rlvr-dir", *sys.argv[1:]])))
    load = tokenizers(tokenizer)
    viewers = token_viewers(results, tokens, load)
    replaced = replacements_shown(results, load)
    links = _run_links(runs, tracking, ui) if results else {}
    kwargs: dict[str, Any] = {
        "details": details,
        "viewers": viewers,
        "replaced": replaced,
        "paper_base": paper_base,
        "runs": links,
    }
    page = write(build(results, name=title, more=more, **kwargs), out)
    for sentence in warnings(results):
        say(sentence)
    echo(f"report: {page.absolute().as_uri()} (report.md, tables and figures are beside it)")


def _run_links(folder: Path, tracking: str | None, port: int | None) -> dict[str, str]:
    """Return the addresses of MLflow runs by config hash, on a server or at `port`; print a warning if they are
    unavailable.

    A page that may be sent contains no address of this machine unless it is requested.
    """
    from rlvr_dir.tracking import resolve_store, run_links

    store = resolve_store(folder, tracking)
    if port is None and not str(store).startswith(("http://", "https://")):
        return {}
    try:
        return run_links(store, port or 5000)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        echo(f"warning: no links to MLflow runs ({type(error).__name__}: {reason})", err=True)
        return {}


def _only(results: "list[EvalResult]", tasks: str | None) -> "list[EvalResult]":
    """Return the results on some benchmarks, in the given order.

    Raises:
        UserError: There is none for a benchmark.
    """
    if tasks is None:
        return results
    wanted, present = [task.strip() for task in tasks.split(",")], dict.fromkeys(result.task for result in results)
    if missing := [task for task in wanted if task not in present]:
        raise unknown("tasks", missing[0], present)
    return sorted((result for result in results if result.task in wanted), key=lambda result: wanted.index(result.task))

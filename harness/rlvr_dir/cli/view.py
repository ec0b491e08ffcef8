"""`rlvr-dir view`: what both models thought at every token, as one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import echo
from rlvr_dir.cli.evaluate import announce_tiny
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import EngineSpec, EvalSpec, Pair, Sampling, load_eval
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_output, check_writable, make_folder, write_file
from rlvr_dir.progress import phase

if TYPE_CHECKING:
    from rlvr_dir.records import Record

Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Where the tokenizer is: a directory or hub id, or `records` for the local places that records which you "
        "trust name. Default the decoded pair's, the tiny pair's, or what records name below this folder."
    ),
]
USUAL = ("base", "rl", "replace,tau=-0.1", "extrapolate,tau=-0.1,gamma=0.1")


@spec_options(EvalSpec, Pair, Sampling, EngineSpec, without=("limit", "samples", "grader"))
def view(
    options: dict[str, Any],
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Records of one benchmark: folders, or the beginnings of hashes (/TASK where needed)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("view.html"),
    problem: Annotated[list[str] | None, typer.Option(help="A problem by id; give it again for more.")] = None,
    limit: Annotated[int, typer.Option(help="First problems, where none is named.", min=1)] = 3,
    sample: Annotated[int, typer.Option(help="Which response to each problem.", min=0)] = 0,
    store: Annotated[Path, typer.Option(help="Folder of records.")] = Path("runs/records"),
    tokenizer: Tokenizer = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option("-d", "--decoding", help=f"With --tasks, as in eval; default {'; '.join(USUAL)}."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many of each model's likeliest tokens.", min=0, max=10)] = 5,
) -> None:
    """Write responses as a page, tokens coloured by what RL changed.

    The answers to a problem stand side by side.

    Of stored records, or with --tasks decoded first, with every token's facts (what a record holds already is not
    decoded again); the options of pair, sampling and engine are for that:

    \b
        rlvr-dir view --tasks tiny_medium --limit 3 --out view.html
        rlvr-dir view 3f2a 9c01 --problem tiny_medium-007 --out view.html
    """
    with phase("starting"):
        from rlvr_dir.report.viewer import common_problems, full_name, stored_answers, viewer_data, viewer_html
        from rlvr_dir.results.tokenizers import tokenizers

    if bool(records) == bool(options.get("tasks")):
        raise UserError("records and tasks: give one of them; records are shown as they are, tasks are decoded first")
    if records and (given := {**({"decoding": decoding[0]} if decoding else {}), **options}):
        name, value = next(iter(given.items()))
        raise UserError(f"{name}={value!r} has no effect with records, which are shown as they are; accepted: tasks")
    if not records:
        decodings = list(dict.fromkeys(decoding or USUAL))
        first = None if problem else limit
        spec = load_eval({}, {**options, "decodings": decodings, "samples": sample + 1, "limit": first})
        check_output(out)
        check_writable(store)
        from rlvr_dir.checkpoints.resolve import resolve

        load = tokenizers(tokenizer, resolve(spec.pair))  # a wrong one is refused before anything is decoded
        many = _decoded(spec, store, top, problem or ())
    else:
        load = tokenizers(tokenizer)
        read = _read(records or [], store)
        many = {read[0].task: read}
    answers: dict[str, Any] = {}
    for task, records_of_task in many.items():
        common = common_problems(records_of_task, sample)
        problems = problem or common[:limit]
        if problem and not records:  # each of one of the tasks
            problems = [each for each in problem if {each, full_name(records_of_task[0], each)} & {*common}]
        if not problems:
            raise UserError(f"the records share no problem with a sample {sample}; accepted: records of one benchmark")
        answers |= stored_answers(records_of_task, problems, sample, task)
    if not all(answer.rollout.trace is not None for row in answers.values() for answer in row):
        echo("Some responses were kept without every token's facts; --tasks decodes with them.", err=True)
    page = viewer_html(viewer_data(answers, load(next(iter(many.values())))), f"Tokens: {', '.join(many)}")
    make_folder(out.parent)
    write_file(out, page)
    echo(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")


def _decoded(spec: EvalSpec, store: Path, top: int, problems: Sequence[str]) -> "dict[str, list[Record]]":
    """Return the records of each task, completed with traces."""
    from rlvr_dir.evals.traces import traced
    from rlvr_dir.records import RecordStore

    announce_tiny(spec)
    by_task: dict[str, list[Record]] = {}
    for job in traced(spec, store, top=top, inspect_only=True, problems=problems):
        by_task.setdefault(job.task, []).append(RecordStore(store).read(*job.record.split("/")))
    return by_task


def _read(names: list[str], store: Path) -> "list[Record]":
    """Return the records of one benchmark, by folder or by the beginning of a hash."""
    from rlvr_dir.records import Record, RecordStore
    from rlvr_dir.records.store import is_record

    records = []
    for name in dict.fromkeys(names):
        folder = Path(name).resolve()
        if is_record(folder):
            records.append(Record(folder).read())
        else:
            records.append(RecordStore(store).record(name))
    tasks = list(dict.fromkeys(record.task for record in records))
    if len(tasks) > 1:
        raise UserError(f"records of {' and '.join(tasks)} have no problem in common; give records of one benchmark")
    data = {
        record.config.data: record.name
        for record in records
        if record.config is not None and record.config.data is not None
    }
    if len(data) > 1:
        which = " and ".join(f"{name} (data {digest})" for digest, name in data.items())
        raise UserError(
            f"records {which} are of different problems of {tasks[0]}, or of the same put in different ways; give "
            "records of one data digest"
        )
    return records

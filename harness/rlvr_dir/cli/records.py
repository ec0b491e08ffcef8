"""Define `rlvr-dir records`, which manages the store of responses."""

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from rlvr_dir.cli.base import echo, echo_json, fit_table, group
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import EvalSpec
from rlvr_dir.config.presentation import Grader
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.files import make_folder

app = group("Manage the store of responses: what is stored, and in what state.")

RecordsFolder = Annotated[Path, typer.Option(help="Folder of records.")]
RecordName = Annotated[str, typer.Argument(help="First digits of a record's hash, with /TASK if several match.")]
RECORDS = Path("runs/records")


def _say_if_empty(store: Path) -> None:
    """Print on stderr that there are no records, so that stdout stays empty for scripts. Reject a folder that does not
    exist."""
    from rlvr_dir.records import RecordStore

    if not (records := RecordStore(store)).names():
        if not store.is_dir():
            raise UserError(records.emptiness(), argument="store", accepted="a folder of records")
        echo(records.emptiness(), err=True)


@app.command("list")
def records_list(store: RecordsFolder = RECORDS) -> None:
    """List every record: decoding, pair, state, responses, share of changed tokens, date. `records show` prints one."""
    from rlvr_dir.config.pair import model_name
    from rlvr_dir.records.commands import list_records

    rows = list(list_records(store))
    _say_if_empty(store)
    lines = []
    for row in rows:
        record_hash, _, task = row["record"].partition("/")
        name = f"{record_hash[:8]}/{task}"
        if "decoding" not in row:
            lines.append([name, "", "", "", "", "", "", "", f"damaged: {'; '.join(row['damage'])}"])
            continue
        state = "finished" if row["finished"] else f"{row['held']} of {row['asked']}"
        state = state if row["asked"] else "view only, not scored"  # by `rlvr-dir view`
        pair = " / ".join(dict.fromkeys(model_name(place) for place in row["pair"].split(" / ")))
        changed = "" if row["changed"] is None else f"{row['changed']:.1%}"
        remarks = [f"damaged: {'; '.join(row['damage'])}"] if row["damage"] else []
        remarks += [f"graded: {', '.join(row['graders'])}"] if row["graders"] else []
        day = row["created"].replace("T", " ")[:10]
        counts = [str(row["held"]), str(row["problems"])]
        lines.append([name, row["decoding"], pair, state, *counts, changed, day, "  ".join(remarks)])
    if lines:
        head = ["record", "decoding", "pair", "state", "responses", "problems", "changed", "made", ""]
        echo(fit_table(head, lines), lines=True)


@app.command("show")
def records_show(name: RecordName, store: RecordsFolder = RECORDS) -> None:
    """Show settings, sizes, scores and damage of one record."""
    from rlvr_dir.results.from_records import show_record

    echo_json(show_record(store, name))


@app.command("export")
def records_export(
    name: RecordName,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    form: Annotated[str, typer.Option(help="jsonl, texts or summary.")] = "jsonl",
    store: RecordsFolder = RECORDS,
) -> None:
    """Write one record to a file."""
    import json

    from rlvr_dir.files import write_file
    from rlvr_dir.records.commands import FORMATS, export_record
    from rlvr_dir.results.from_records import show_record

    if form not in (*FORMATS, "summary"):
        raise unknown("form", form, (*FORMATS, "summary"))
    if form == "summary":
        write_file(out.expanduser(), json.dumps(show_record(store, name), indent=1) + "\n")
    else:
        export_record(store, name, out, form)
    echo(f"written: {out}")


@app.command("results")
@spec_options(EvalSpec, only=("grader", "data_dir"))
def records_results(
    options: dict[str, Any],
    name: Annotated[
        str | None, typer.Argument(help="One record, or the first digits of several; by default all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for one JSON file per result.")] = Path("runs"),
    partial: Annotated[
        bool, typer.Option("--partial", help="For unfinished records, use the samples that every problem has.")
    ] = False,
    store: RecordsFolder = RECORDS,
) -> None:
    """Rebuild result files from records, with any grader.

    `rlvr-dir track sync` logs them to MLflow. For example:

    \b
        rlvr-dir records results --grader plain --out runs/plain && rlvr-dir track sync runs/plain
    """
    from rlvr_dir.records import RecordStore
    from rlvr_dir.results.from_records import results_of_record
    from rlvr_dir.results.show import score

    _check_grader(options)
    records, written = RecordStore(store), 0
    for names in records.find(name or ""):
        try:
            results = results_of_record(records.read(*names), partial=partial, **options)
        except UserError as error:
            echo(f"no result: {error}", err=True)
            continue
        for result in results:
            written += 1
            make_folder(out)
            echo(f"{result.write(out)}  {result.benchmark}  {result.label}  {score(result)}")
    raise typer.Exit(0 if written else 1)


@app.command("grade")
@spec_options(EvalSpec, only=("grader", "data_dir"))
def records_grade(
    options: dict[str, Any],
    name: Annotated[
        str | None, typer.Argument(help="One record, or the first digits of several; by default all.")
    ] = None,
    store: RecordsFolder = RECORDS,
) -> None:
    """Grade records again and print each answer whose verdict changed.

    Earlier versions' verdicts are kept. For example:

    \b
        rlvr-dir records grade && rlvr-dir records results --out runs/again
    """
    import json

    from rlvr_dir.records import Record, RecordStore
    from rlvr_dir.results.from_records import grade_again

    _check_grader(options)
    records, failed = RecordStore(store), 0
    for names in records.find(name or ""):
        record = Record(records.folder.joinpath(*names))
        try:
            graded = grade_again(record, **options)
        except UserError as error:
            echo(f"{'/'.join(names)}: not graded: {error}", err=True)
            failed += 1
            continue
        for judge, count, changes in graded:
            changed = [change for change in changes if change["before"] is not None]
            for change in changed:
                gold, answer = (json.dumps(text, ensure_ascii=False) for text in (change["gold"], change["answer"]))
                where = f"{record.name} {change['problem']} sample {change['sample']}"
                echo(f"{where}: {change['before']} -> {change['now']}  gold {gold}  answer {answer}")
            new = len(changes) - len(changed)
            echo(f"{record.name}: {count} graded by {judge}, {len(changed)} changed, {new} for the first time")
    raise typer.Exit(1 if failed else 0)


@app.command("verify")
def records_verify(
    name: Annotated[str | None, typer.Argument(help="One record; by default all.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set damaged files aside, and keep their good entries.")
    ] = False,
    store: RecordsFolder = RECORDS,
) -> None:
    """Check every byte. The exit status is 1 if something is wrong.

    Without --repair nothing is changed. What a repair left out is decoded again by the record's command.
    """
    from rlvr_dir.records.commands import verify_records

    findings = verify_records(store, name, repair=repair)
    _say_if_empty(store)
    for record, damage in findings.items():
        for line in damage or ["good"]:
            echo(f"{record}  {line}")
    raise typer.Exit(1 if any(findings.values()) else 0)


@app.command("gc")
def records_gc(
    drop: Annotated[
        list[str] | None, typer.Option(help="A record to delete as well, by the first digits of its hash.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files. Without it, they are only listed.")
    ] = False,
    store: RecordsFolder = RECORDS,
) -> None:
    """Find, or delete, files that are not needed.

    These are damaged files that were set aside, half-written ones, and empty records.
    """
    from rlvr_dir.records.commands import gc_records

    _say_if_empty(store)

    def describe(row: dict[str, Any]) -> str:
        return f"{row['path']} ({row['reason']}, {row['bytes']:,} bytes)"

    for row in gc_records(store, drop or ()):
        echo(f"{'will' if delete else 'would'} delete: {describe(row)}")
    for row in gc_records(store, drop or (), delete=True) if delete else ():
        echo(f"deleted: {describe(row)}")


def _check_grader(options: dict[str, Any]) -> None:
    """Reject an unknown grader once, not for each record."""
    if (grader := options.get("grader")) is not None and grader not in get_args(Grader):
        raise unknown("grader", grader, get_args(Grader))

"""Define `rlvr-dir view`, which shows both models' probabilities at every token, as one page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr_dir.cli.base import echo
from rlvr_dir.cli.evaluate import announce_tiny
from rlvr_dir.cli.options import spec_options
from rlvr_dir.cli.plan import DryRun, named_gpus, show_plan
from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Pair, Sampling, load_eval, parse_decoding
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_output, check_writable, make_folder, write_file
from rlvr_dir.progress import phase

if TYPE_CHECKING:
    from rlvr_dir.records import Record

Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Where the tokenizer is: a directory or hub id, or `records` to use the local folders that your own "
        "records name. Default: the decoded pair's, the tiny pair's, or what records name below the current folder."
    ),
]
# The decodings if nothing was evaluated.
USUAL = ("base", "rl", "replace,tau=-0.3", "extrapolate,tau=-0.3,gamma=0.1")


@spec_options(EvalSpec, Pair, Sampling, EngineSpec, without=("limit", "samples", "grader"))
def view(
    options: dict[str, Any],
    records: Annotated[
        list[str] | None,
        typer.Argument(
            help="A run's folder, a folder of records, or records: folders, or the beginnings of hashes (/TASK where "
            "needed). By default the records of --store."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("view.html"),
    problem: Annotated[list[str] | None, typer.Option(help="A problem by id; give it again for more.")] = None,
    limit: Annotated[
        int, typer.Option(help="How many problems, if none is named; those where a token changed come first.", min=1)
    ] = 3,
    sample: Annotated[int, typer.Option(help="Which response to each problem.", min=0)] = 0,
    store: Annotated[Path, typer.Option(help="Folder of records.")] = Path("runs/records"),
    tokenizer: Tokenizer = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "-d",
            "--decoding",
            help="With --tasks, as in eval. By default the decodings that --store has of these models and tasks; if it "
            f"has none, {'; '.join(USUAL)}.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many of each model's most likely tokens.", min=0, max=10)] = 5,
    dry_run: DryRun = False,
) -> None:
    """Write a page that shows which tokens changed, and what both models thought of every token.

    The responses to a problem are shown side by side. The page opens on the first problem where a token changed.

    Without --tasks the page shows stored responses. With --tasks it also shows both models' most likely tokens:
    responses that are stored without them are decoded once more, to the same tokens. The options of pair, sampling and
    engine are for that.

    \b
        rlvr-dir view                                          # what runs/records has
        rlvr-dir view --tasks tiny_medium --limit 3            # with both models' most likely tokens
        rlvr-dir view 3f2a 9c01 --problem tiny_medium-007
    """
    with phase("starting"):
        from rlvr_dir.checkpoints.resolve import resolve
        from rlvr_dir.report.viewer import stored_answers, viewer_data, viewer_html
        from rlvr_dir.results.tokenizers import tokenizers

    decodes = bool(options.get("tasks"))
    if decodes and records:
        raise UserError(
            "cannot be combined with records, which are shown as they are",
            argument="tasks",
            value=options["tasks"],
            accepted="either records or tasks",
        )
    if not decodes and (ignored := {**({"decoding": decoding[0]} if decoding else {}), **options}):
        name, value = next(iter(ignored.items()))
        raise UserError("has no effect on stored records", argument=name, value=value, hint="Give --tasks to decode.")
    check_output(out)
    if decodes:
        check_writable(store)
        load = tokenizers(tokenizer, resolve(load_eval({}, options).pair))  # checked before anything is decoded
        decodings = [parse_decoding(text) for text in dict.fromkeys(decoding or ())]
        many = _decoded(options, decodings, store, top, problem or (), limit, sample, dry_run=dry_run)
    else:
        load = tokenizers(tokenizer)
        many = _read(records or [str(store)], store)
    answers: dict[str, Any] = {}
    for task, of_task in many.items():
        problems = _problems(of_task, problem, limit, sample, some_are_elsewhere=len(many) > 1 or decodes)
        answers |= stored_answers(of_task, problems, sample, task)
    if not answers:
        raise UserError(
            "is not a response that all of these records have to a problem", argument="sample", value=sample
        )
    if not all(answer.rollout.trace is not None for row in answers.values() for answer in row):
        echo(
            f"Add `--tasks {','.join(many)}` and the models to see both models' most likely tokens, too. The stored "
            "responses do not have them.",
            err=True,
        )
    page = viewer_html(viewer_data(answers, load(next(iter(many.values())))), f"Tokens: {', '.join(many)}")
    make_folder(out.parent)
    write_file(out, page)
    echo(f"page: {out.absolute().as_uri()} ({out.stat().st_size / 1e6:.1f} MB)")


def _problems(
    records: "list[Record]", named: list[str] | None, limit: int, sample: int, *, some_are_elsewhere: bool
) -> list[str]:
    """Return the problems to show from records of one task: the named ones, or the first ones."""
    from rlvr_dir.report.viewer import changed_first, common_problems, full_name

    if not named:
        return changed_first(records, sample)[:limit]
    if not some_are_elsewhere:
        return named
    common = {*common_problems(records, sample)}
    return [problem for problem in named if {problem, full_name(records[0], problem)} & common]


def _decoded(
    options: Mapping[str, Any],
    decodings: Sequence[Decoding],
    store: Path,
    top: int,
    problems: Sequence[str],
    limit: int,
    sample: int,
    *,
    dry_run: bool = False,
) -> "dict[str, list[Record]]":
    """Return the records of each task, completed with traces, and print what is shown.

    If no decodings are given, they are those in the store's records of the same models, tasks and sampling.
    """
    from rlvr_dir.evals.traces import traced
    from rlvr_dir.records import RecordStore
    from rlvr_dir.report.viewer import changed_first

    drawn: dict[str, Any] = {}
    if not decodings:
        evaluated = _evaluated(load_eval({}, options), store)
        configs = [record.config for records in evaluated.values() for record in records if record.config]
        decodings = [*dict.fromkeys(config.decoding for config in configs)] or [*map(parse_decoding, USUAL)]
        labels = "; ".join(decoding.label() for decoding in decodings)
        if configs:
            drawn = configs[0].sampling.model_dump()
            problems = problems or [
                problem for records in evaluated.values() for problem in changed_first(records, sample)[:limit]
            ]
            echo(f"Showing the decodings that {store} has: {labels}.", err=True)
        else:
            echo(f"{store} has no responses of these models to these tasks. Decoding {labels}.", err=True)
    first = None if problems else limit
    spec = load_eval({}, {**drawn, **options, "decodings": [*decodings], "samples": sample + 1, "limit": first})
    announce_tiny(spec)
    if dry_run:
        show_plan(spec, store, named_gpus(None, None), trace=top)
        raise typer.Exit
    by_task: dict[str, list[Record]] = {}
    for job in traced(spec, store, top=top, inspect_only=True, problems=problems):
        by_task.setdefault(job.task, []).append(RecordStore(store).read(*job.record.split("/")))
    return by_task


def _evaluated(spec: EvalSpec, store: Path) -> "dict[str, list[Record]]":
    """Return the finished records of a spec's models and tasks in a store, by task."""
    from rlvr_dir.checkpoints.resolve import resolve
    from rlvr_dir.problems.data import preflight_of
    from rlvr_dir.records import RecordStore
    from rlvr_dir.records.config import fingerprint

    folder = RecordStore(store)
    if not (names := folder.names()):
        return {}
    tasks = {benchmark.metadata.of or benchmark.name for benchmark in preflight_of(spec).values()}
    weights = {role: fingerprint(*model) for role, model in resolve(spec.pair).models.items()}
    records = [folder.read(*name) for name in names if name[1] in tasks]
    ours = [
        record
        for record in records
        if record.config is not None and record.config.weights == weights and record.metadata.asked is not None
    ]
    return _side_by_side(ours)


def _side_by_side(records: "Sequence[Record]") -> "dict[str, list[Record]]":
    """Return the records to show, by task; print a message if these are not all."""
    from rlvr_dir.report.token_viewers import shown_records

    tasks = dict.fromkeys(record.task for record in records)
    by_task = {task: [record for record in records if record.task == task] for task in tasks}
    records_of = {task: shown_records(of_task) for task, of_task in by_task.items()}
    for task, of_task in by_task.items():
        if len(records_of[task]) < len(of_task):
            echo(
                f"Showing {len(records_of[task])} of {len(of_task)} records of {task}. Name others to show them "
                "(`rlvr-dir records list` has their hashes).",
                err=True,
            )
    return records_of


def _read(names: list[str], store: Path) -> "dict[str, list[Record]]":
    """Read records by task: those named by folder or by the first digits of a hash, or those of a run.

    Raises:
        UserError: There is no such record, or the named ones have different problems.
    """
    from rlvr_dir.records import Record, RecordStore
    from rlvr_dir.records.store import is_record
    from rlvr_dir.results.frames import stored_records

    records = []
    for name in dict.fromkeys(names):
        folder = Path(name).expanduser().resolve()
        if is_record(folder):
            records.append(Record(folder).read())
        elif len(names) == 1 and (folder.is_dir() or Path(name) == store):
            return _side_by_side(stored_records(name))
        else:
            records.append(RecordStore(store).record(name))
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    for task, of_task in by_task.items():
        data = {record.config.data: record.name for record in of_task if record.config and record.config.data}
        if len(data) > 1:
            which = " and ".join(f"{name} (data {digest})" for digest, name in data.items())
            raise UserError(
                f"These records have other problems of {task}, or the same problems with other prompts: {which}",
                argument="records",
                accepted="records with one data digest",
            )
    return by_task

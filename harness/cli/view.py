"""`rlvr-dir view`: what both models thought at every token, as one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.records import Snapshot
    from harness.spec import Pair

USUAL = ("base", "rl", "replace,tau=-0.1", "extrapolate,tau=-0.1,gamma=0.1")


def view(
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Records of one benchmark: folders, or the beginnings of hashes (/TASK where needed)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("view.html"),
    problem: Annotated[list[str] | None, typer.Option(help="A problem by id; give it again for more.")] = None,
    limit: Annotated[int, typer.Option(help="First problems, where none is named.", min=1)] = 3,
    sample: Annotated[int, typer.Option(help="Which response to each problem.", min=0)] = 0,
    store: Annotated[Path, typer.Option(help="Folder of records.")] = Path("runs/records"),
    tokenizer: Annotated[
        str | None, typer.Option(help="Where the tokenizer is; default the records' RL checkpoint.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Decode these benchmarks first, with every token's facts: tiny_medium, …")
    ] = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option("-d", "--decoding", help=f"With --tasks, as in eval; default {'; '.join(USUAL)}."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="With --tasks: a pair by name; default the tiny pair.")] = None,
    pretrained: Annotated[str | None, typer.Option(help="With --tasks: the RL checkpoint.")] = None,
    base: Annotated[str | None, typer.Option(help="With --tasks: the base checkpoint.")] = None,
    temperature: Annotated[float, typer.Option()] = 1.0,
    top_p: Annotated[float, typer.Option()] = 0.7,
    max_tokens: Annotated[int, typer.Option()] = 20_000,
    seed: Annotated[int, typer.Option()] = 0,
    top: Annotated[int, typer.Option(help="How many of each model's likeliest tokens.", min=0, max=10)] = 5,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of <task>.jsonl files, instead of the hub.")] = None,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = "auto",
) -> None:
    """Write responses as a page: tokens coloured by what RL changed, the answers to a problem side by side.

    Of stored records, or with --tasks decoded first (what a record holds already is not decoded again):

    \b
        rlvr-dir view --tasks tiny_medium --limit 3 --out view.html
        rlvr-dir view 3f2a 9c01 --problem tiny_medium-007 --out view.html
    """
    from harness.report.viewer import common_problems, stored_answers, viewer_data, viewer_html

    if bool(records) == bool(tasks):
        raise UserError("records and tasks: give one of them; records are shown as they are, tasks are decoded first")
    if tasks:
        sampling = {
            "samples": sample + 1, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed,
        }  # fmt: skip
        model = {"pair": pair, "pretrained": pretrained, "base": base, "backend": backend, "dtype": dtype}
        many = _decoded(tasks, decoding or list(USUAL), model, sampling, store, top, limit, data_dir)
    else:
        many = [_read(records or [], store)]
    answers: dict[str, Any] = {}
    for snapshots in many:
        found = problem or common_problems(snapshots, sample)[:limit]
        if not found:
            raise UserError(f"the records share no problem with a sample {sample}; accepted: records of one benchmark")
        answers |= stored_answers(snapshots, found, sample)
    if not all(one.rollout.trace is not None for row in answers.values() for one in row):
        typer.echo("Some responses were kept without every token's facts; --tasks decodes with them.", err=True)
    name = ", ".join(dict.fromkeys(snapshots[0].task for snapshots in many))
    page = viewer_html(viewer_data(answers, tokenizer_of(tokenizer, many[0])), f"Tokens: {name}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"out={str(out)!r} cannot be written: {error.strerror}") from None
    typer.echo(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")


def _decoded(
    tasks: str,
    decodings: list[str],
    model: dict[str, str | None],
    sampling: dict[str, Any],
    store: Path,
    top: int,
    limit: int,
    data_dir: Path | None,
) -> "list[list[Snapshot]]":
    """The records of each task, completed with traces."""
    from harness.evals.args import parse_decoding, parse_model_args
    from harness.evals.traces import traced
    from harness.records import RecordStore
    from harness.spec import Sampling, parse

    args = parse_model_args(model)
    names = list(dict.fromkeys(name.strip() for name in tasks.split(",") if name.strip()))
    works = traced(
        args.pair or _tiny(),
        list(dict.fromkeys(map(parse_decoding, decodings))),
        names,
        store,
        parse(Sampling, sampling),
        top=top,
        limit=limit,
        data_dir=str(data_dir) if data_dir else None,
        engine_spec=args.engine,
    )
    by_task: dict[str, list[Snapshot]] = {}
    for work in works:
        by_task.setdefault(work.task, []).append(RecordStore(store).read(work.config.hash(), work.task))
    return list(by_task.values())


def _tiny() -> "Pair":
    from harness.tiny import tiny_pair

    typer.echo("No pair was named: using the embedded tiny pair (a pipeline check, not a math model).", err=True)
    return tiny_pair()


def _read(names: list[str], store: Path) -> "list[Snapshot]":
    """Records of one benchmark, by folder or by the beginning of a hash."""
    from harness.records import RecordStore
    from harness.records.record import JOURNAL

    found = []
    for name in dict.fromkeys(names):
        folder = Path(name).resolve()
        if (folder / JOURNAL).is_file():
            found.append(RecordStore(folder.parents[1]).read(folder.parent.name, folder.name))
        else:
            found.append(RecordStore(store).one(name))
    tasks = list(dict.fromkeys(snapshot.task for snapshot in found))
    if len(tasks) > 1:
        raise UserError(f"records of {' and '.join(tasks)} have no problem in common; give records of one benchmark")
    return found


def tokenizer_of(named: str | None, snapshots: "Sequence[Snapshot]") -> Any:
    """The tokenizer, or None with a word on it where there are tokens and it cannot be had."""
    from transformers import AutoTokenizer

    place = named or next((one.about["rl"] for one in snapshots if one.about.get("rl")), None)
    if place is None:
        return None
    try:
        return AutoTokenizer.from_pretrained(place)
    except Exception as error:  # transformers raises anything; the page is of use without it
        said = (str(error).splitlines() or [type(error).__name__])[0]
        if named:
            raise UserError(f"tokenizer={named!r} cannot be read: {said}") from None
        typer.echo(f"warning: no tokenizer in {place}: tokens are shown by their ids; --tokenizer names one", err=True)
        return None

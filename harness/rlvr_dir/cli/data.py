"""Define `rlvr-dir data`, which makes files of problems for machines without the hub and for the presets of `train`."""

from pathlib import Path
from typing import Annotated

import typer

from rlvr_dir.errors import UserError, unknown

TRAINING = "dapo-math-17k"


def data_command(
    names: Annotated[list[str], typer.Argument(help=f"{TRAINING}, or benchmarks: aime24 aime25 amc minerva.")],
    source: Annotated[
        Path | None,
        typer.Option(
            help=f"A local copy instead of the hub: for {TRAINING} a .parquet or .jsonl, for benchmarks their folder."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for NAME.jsonl.")] = Path(),
    digest: Annotated[
        str | None, typer.Option(help="Digest that the file must have, as this command prints it.")
    ] = None,
) -> None:
    """Make files of problems from the hub's data sets, or from a local copy.

    A training of a preset reads dapo-math-17k.jsonl. `verl.val_data` and RLVR_DIR_DATA use the benchmarks. For example:

    \b
        rlvr-dir data dapo-math-17k
        rlvr-dir data dapo-math-17k --source copies/dapo-math-17k.parquet
        rlvr-dir data aime24 aime25 amc --out benchmarks
    """
    if digest is not None and len(names) > 1:
        raise UserError(f"is not allowed with {len(names)} names: it is of one file", argument="digest", value=digest)
    for name in names:
        _make(name, source, out / f"{name}.jsonl", digest)


def _make(name: str, source: Path | None, file: Path, wanted: str | None) -> None:
    """Write one file, whole or not at all, and print what it contains."""
    from rlvr_dir.digest import digest
    from rlvr_dir.files import make_folder, write_file
    from rlvr_dir.progress import say

    text, description = _training(source) if name == TRAINING else _benchmark(name, source)
    content_digest = digest(text)
    if wanted is not None and content_digest != wanted:
        raise UserError(
            f"is not the digest of {name}, which is {content_digest} ({description}). Nothing was written",
            argument="digest",
            value=wanted,
        )
    if file.is_file() and digest(file.read_bytes()) != content_digest:
        raise UserError(f"{file} exists and has other content", hint="Move it away, or give another --out.")
    make_folder(file.parent)
    write_file(file, text)
    say(f"{file}: {description}, digest {content_digest}")


def _training(source: Path | None) -> tuple[str, str]:
    from rlvr_dir.train.dapo_math import dapo_math, download, read_rows

    dataset = dapo_math(read_rows(source or download()))
    ambiguous = f", {dataset.ambiguous} with contradicting answers left out" if dataset.ambiguous else ""
    return dataset.text, f"{len(dataset.problems):,} problems of {dataset.rows:,} rows{ambiguous}"


def _benchmark(name: str, source: Path | None) -> tuple[str, str]:
    import json

    from rlvr_dir.problems.benchmark import SOURCES
    from rlvr_dir.problems.data import find_benchmark

    if name not in SOURCES:
        raise unknown("name", name, (TRAINING, *SOURCES))
    rows = find_benchmark(name, None if source is None else str(source)).problems
    lines = (json.dumps({key: row[key] for key in ("id", "problem", "answer")}, ensure_ascii=False) for row in rows)
    return "".join(line + "\n" for line in lines), f"{len(rows)} problems"

"""Implement `rlvr-dir records list|export|verify|gc` as plain functions, which return data and print nothing."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_dir import stats
from rlvr_dir.errors import DamagedError, UserError, unknown
from rlvr_dir.files import write_file
from rlvr_dir.records.lock import Lock, check_free
from rlvr_dir.records.record import LOCK, Record
from rlvr_dir.records.store import RecordStore

FORMATS = ("jsonl", "texts")


def list_records(store: str | Path) -> list[dict[str, Any]]:
    """Return a row for each record: its settings, how much of the last request is stored, and whether it is finished.

    `damage` describes what is wrong with it. A record that cannot be read at all has no other entries.
    """
    records, rows = RecordStore(store), []
    for name in records.names():
        try:
            rows.append(summary_of(records.read(*name)))
        except DamagedError as error:
            rows.append({"record": "/".join(name), "damage": [str(error)]})
    return rows


def counts(record: Record) -> dict[str, Any]:
    """Return sizes and ratios, which need no verdicts.

    `replacement_ratio` is over all tokens. `replacement_ratio_per_response` is the plain mean of per-response ratios,
    which the authors' notebook prints.
    """
    rows = [*record]
    if not rows:
        return {"rollouts": 0, "problems": 0}
    all_in_one = stats.Responses(
        n_tokens=[row.n_tokens for row in rows],
        n_replaced=[row.n_replaced for row in rows],
        n_changed=[row.n_changed for row in rows],
        truncated=[row.finish_reason == "length" for row in rows],
    )
    return {
        "rollouts": len(rows),
        "problems": len({row.problem for row in rows}),
        "tokens": sum(row.n_tokens for row in rows),
        **stats.benchmark_metrics([all_in_one]),
    }


def summary_of(record: Record) -> dict[str, Any]:
    """Return a record's settings, how much of the last request is stored, and what is wrong with it."""
    metadata, sizes = record.metadata, counts(record)
    return {
        "record": record.name,
        "decoding": record.config.decoding.label() if record.config else "unknown",
        "pair": " / ".join(metadata.models.values()),
        "created": (metadata.created or "")[:16],
        "problems": sizes["problems"],
        "held": sizes["rollouts"],
        "asked": metadata.asked.problems * metadata.asked.samples if metadata.asked else 0,
        "finished": record.finished,
        "tokens": sizes.get("tokens"),  # None, here and below, for a record without a response
        "replaced": sizes.get("replacement_ratio"),  # of the tokens
        "changed": sizes.get("changed_ratio"),
        "graders": record.judges,
        "damage": record.damage,
    }


def export_record(store: str | Path, name: str, out: str | Path, form: str = "jsonl") -> Path:
    """Write one record to a file.

    `jsonl`: everything exact, one response per line, with the same bytes for any history of the record. `texts`: one
    plain object per response (key, text, counts, verdicts) for other programs.

    Raises:
        UserError: The record is not finished (for `jsonl`), or the form is unknown.
    """
    if form not in FORMATS:
        raise unknown("form", form, FORMATS)
    record = RecordStore(store).record(name)
    if form == "jsonl" and not record.finished:
        raise UserError(
            f"record {record.name} is not finished", hint="Run its command again, or export with `--form texts`"
        )
    data: Any = record.export()
    if form == "texts":
        verdicts = {judge: record.verdicts(judge) for judge in record.judges}
        names = ("problem", "sample", "text", "finish_reason", "n_tokens", "n_replaced", "n_changed")
        data = (
            json.dumps(
                {name: getattr(row, name) for name in names}
                | {"verdicts": {judge: by_key[row.key].kind for judge, by_key in verdicts.items() if row.key in by_key}}
            ).encode()
            + b"\n"
            for row in record
        )
    write_file(Path(out).expanduser(), data)
    return Path(out)


def verify_records(store: str | Path, name: str | None = None, *, repair: bool = False) -> dict[str, list[str]]:
    """Return what is wrong, record by record (an empty list: nothing), and change nothing.

    `repair` sets a damaged file aside and keeps its good entries. The command that made it then decodes the rest again.

    Raises:
        UserError: There is no such record or folder; or for a repair, another process writes it, or the disk is full.
    """
    records = RecordStore(store)
    if not records.folder.is_dir():
        raise UserError(records.emptiness(), argument="store", accepted="a folder of records")
    damage = {}
    for names in records.find(name) if name else records.names():
        try:
            record = records.read(*names, whole=True)
            if repair and (record.damage or record.tail):
                record.lock(whole=True).close()
            damage["/".join(names)] = findings_of(record)
        except DamagedError as error:
            damage["/".join(names)] = [str(error)]
    return damage


def findings_of(record: Record) -> list[str]:
    """Return a sentence for each problem of a record that was read completely."""
    findings = record.damage
    if record.tail:
        findings.append(f"a torn last entry of {record.tail} bytes (an interrupted write, or a current one)")
    return findings + [f"set aside earlier: {path.name}" for path in sorted(record.folder.glob("*.corrupt-*"))]


def gc_records(store: str | Path, drop: Sequence[str] = (), *, delete: bool = False) -> list[dict[str, Any]]:
    """Return path, bytes and reason of each file that is not needed. They are deleted only with `delete`.

    They are damaged files that were set aside, half-written ones, records without a response, and the records named in
    `drop`. Records in use are skipped. Without `delete`, nothing is changed; not even a lock is made.

    Raises:
        UserError: A name in `drop` is empty, or matches no record or several, or one in use.
    """
    records = RecordStore(store)
    if nameless := [name for name in drop if not name.partition("/")[0]]:  # every hash begins with an empty text
        raise UserError(
            "names no record", argument="drop", value=nameless[0], accepted="the first digits of one record's hash"
        )
    dropped = {records.record(name).name for name in drop}
    removable: list[dict[str, Any]] = []
    for name in map("/".join, records.names()):
        lock = records.folder / name / LOCK
        try:
            busy_lock = Lock(lock, f"record {name}") if delete else check_free(lock, f"record {name}")
        except UserError:
            if name in dropped:
                raise
            continue
        try:
            garbage = _garbage(records.read(*name.split("/")), name in dropped)
            removable += [{"path": str(path), "bytes": _bytes(path), "reason": reason} for path, reason in garbage]
            for path, _ in garbage if delete else ():
                _remove(path)
        except DamagedError:  # a record that cannot be read is not touched
            continue
        finally:
            if busy_lock is not None:
                busy_lock.release()
    return removable


def _garbage(record: Record, dropped: bool) -> list[tuple[Path, str]]:
    if dropped:
        return [(record.folder, "named")]
    if not record.rows and (record.config is not None or not record.path.stat().st_size):
        return [(record.folder, "no rollouts")]
    aside = [(path, "damaged, set aside") for path in sorted(record.folder.glob("*.corrupt-*"))]
    return aside + [(path, "half-written") for path in sorted(record.folder.glob(".*.new"))]


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:  # for a link, the link itself
        path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()

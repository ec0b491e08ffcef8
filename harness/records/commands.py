"""`rlvr-dir records list|show|export|verify|gc|import` as plain functions: data in and out, nothing printed."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError, unknown
from harness.files import folder_name, write_file
from harness.grading import grader_name
from harness.records.config import RecordConfig
from harness.records.journal import Entry
from harness.records.lock import Lock, check_free
from harness.records.official import read_official
from harness.records.record import LOCK, RECORD
from harness.records.store import RecordStore, Snapshot
from harness.records.summary import agreement, counts, scores
from harness.records.verdicts import (
    OFFICIAL,
    judges,
    read_verdicts,
    verdict_damage,
    verdict_row,
    versions,
    write_verdicts,
)
from harness.spec.pair import places_of
from harness.spec.stored import read_json

FORMATS = ("jsonl", "texts", "summary")


def list_records(store: str | Path) -> list[dict[str, Any]]:
    """Return a row for each record: what it is, how much of what was asked last is held, whether it is finished.

    `damage` says which of its files could not be read; of a record whose journal could not, there is nothing else.
    """
    records, rows = RecordStore(store), []
    for name in records.names():
        try:
            rows.append(_row(records.read(*name)))
        except DamagedError as error:
            rows.append({"record": "/".join(name), "damage": [str(error)]})
    return rows


def _row(snapshot: Snapshot) -> dict[str, Any]:
    asked = snapshot.about.get("asked") or {"problems": 0, "samples": 0}
    sizes = counts(snapshot)
    return {
        "record": snapshot.name,
        "decoding": snapshot.config.label() if snapshot.config else "config.json is damaged",
        "pair": " / ".join(places_of(snapshot.about).values()),
        "held": sizes["rollouts"],
        "asked": asked["problems"] * asked["samples"],
        "finished": snapshot.finished,
        "tokens": sizes.get("tokens", 0),
        "replaced": sizes.get("replacement_ratio"),  # of the tokens; None where a source does not tell
        "changed": sizes.get("changed_ratio"),
        "graders": judges(snapshot.folder),
        "damage": list(snapshot.damaged),
    }


def show_record(store: str | Path, name: str) -> dict[str, Any]:
    """Return everything about one record but its rollouts: settings, sizes, damage, and each grader's scores."""
    records = RecordStore(store)
    snapshot = records.one(name)
    found: dict[str, Any] = {
        **_row(snapshot),
        "config": snapshot.config.model_dump(mode="json") if snapshot.config else None,
        "about": snapshot.about,
        "counts": counts(snapshot),
        "scores": {},
        "damage": _findings(records.read(snapshot.record_hash, snapshot.task, whole=True)),
    }
    for grader in judges(snapshot.folder):
        try:
            found["scores"][grader] = scores(snapshot, grader)
        except UserError as error:  # not complete, or not graded to the end: said, never averaged
            found["scores"][grader] = str(error)
    return found


def export_record(store: str | Path, name: str, out: str | Path, form: str = "jsonl") -> Path:
    """Write one record to a file.

    `jsonl`: everything exact, a checksummed line a rollout, the same bytes however the record came about; `texts`: one
    plain object a rollout (key, text, counts, verdicts) for other programs; `summary`: the JSON of `show_record`.

    Raises:
        UserError: the record is not finished (for `jsonl`), or there is no such form.
    """
    if form not in FORMATS:
        raise unknown("form", form, FORMATS)
    snapshot = RecordStore(store).one(name)
    if form == "jsonl" and not snapshot.finished:
        raise UserError(f"record {snapshot.name} is not finished: run its command again, or export form=texts")
    if form == "summary":
        data: Any = json.dumps(show_record(store, name), indent=1).encode() + b"\n"
    elif form == "jsonl":
        data = snapshot.export()
    else:
        verdicts = {grader: read_verdicts(snapshot.folder, grader) for grader in judges(snapshot.folder)}
        data = (_plain(entry, verdicts) for entry in snapshot.entries())
    write_file(Path(out).expanduser(), data)
    return Path(out)


def _plain(entry: Entry, verdicts: dict[str, dict[Any, dict[str, Any]]]) -> bytes:
    names = ("problem", "sample", "text", "finish_reason", "n_tokens", "n_replaced", "n_changed")
    given = {grader: rows[entry.key]["kind"] for grader, rows in verdicts.items() if entry.key in rows}
    return json.dumps({**{name: getattr(entry, name) for name in names}, "verdicts": given}).encode() + b"\n"


def verify_records(store: str | Path, name: str | None = None) -> dict[str, list[str]]:
    """Return what is wrong, record by record (an empty list: nothing). Nothing is changed; the next run repairs.

    Raises:
        UserError: there is no such record, or no such folder.
    """
    records = RecordStore(store)
    if not records.folder.is_dir():
        raise UserError(f"store: {records.emptiness()}; accepted: a folder of records")
    names = records.find(name) if name else records.names()
    found = {}
    for each in names:
        try:
            found["/".join(each)] = _findings(records.read(*each, whole=True))
        except DamagedError as error:
            found["/".join(each)] = [str(error)]
    return found


def _findings(snapshot: Snapshot) -> list[str]:
    found = snapshot.contents
    damage = list(snapshot.damaged)
    if found.foreign:
        damage.append("the journal belongs to another record")
    elif not found.header:
        damage.append("the journal's first line is missing")
    if found.bad:
        damage.append(f"{found.bad} damaged entries in the journal: their samples will be decoded again")
    if found.tail:
        damage.append(f"a torn last entry of {found.tail} bytes (an interrupted write, or one going on now)")
    if (snapshot.folder / RECORD).is_file() and not snapshot.finished:
        damage.append("record.jsonl is not what the journal says: damaged, or more was decoded since")
    damage += verdict_damage(snapshot.folder)
    for path in sorted(snapshot.folder.glob("lm-eval-*.json")):
        try:
            read_json(path)
        except DamagedError as error:
            damage.append(str(error))
    damage += [f"set aside earlier: {path.name}" for path in sorted(snapshot.folder.glob("*.corrupt-*"))]
    return damage


def gc_records(store: str | Path, drop: Sequence[str] = (), *, delete: bool = False) -> list[dict[str, Any]]:
    """Return path, bytes and reason of each file that nothing needs, and delete them only if told to.

    They are damaged files that were set aside, half-written ones, records without a rollout, and the records named in
    `drop`, one each. Records in use are passed over. Unless told to delete, nothing is changed, not even a lock made.

    Raises:
        UserError: a name in `drop` is empty, or means no record or several, or one in use.
    """
    records = RecordStore(store)
    dropped = [_one(records, name) for name in drop]
    found: list[dict[str, Any]] = []
    for name in records.names():
        lock = records.folder.joinpath(*name) / LOCK
        try:
            held = Lock(lock, f"record {'/'.join(name)}") if delete else check_free(lock, f"record {'/'.join(name)}")
        except UserError:
            if name in dropped:
                raise
            continue
        try:
            snapshot = records.read(*name)
            if name in dropped or not (snapshot.contents.entries or snapshot.contents.damaged):
                reason = "named" if name in dropped else "no rollouts"
                garbage = [(snapshot.folder, reason)]
            else:
                garbage = [(path, "damaged, set aside") for path in sorted(snapshot.folder.glob("*.corrupt-*"))]
                garbage += [(path, "half-written") for path in sorted(snapshot.folder.glob(".*.new"))]
            found += [{"path": str(path), "bytes": _bytes(path), "reason": reason} for path, reason in garbage]
            for path, _ in garbage if delete else ():
                _remove(path)
        except DamagedError:  # not to be touched by what cannot read it
            continue
        finally:
            if held is not None:
                held.release()
    return found


def _one(records: RecordStore, name: str) -> tuple[str, str]:
    """Return the one record that a name means; an empty one begins every hash."""
    if not name.partition("/")[0]:
        raise UserError(f"drop={name!r} names no record; accepted: the beginning of one record's hash")
    snapshot = records.one(name)
    return snapshot.record_hash, snapshot.task


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:  # of a link, the link
        path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def import_official(
    store: str | Path,
    folder: str | Path,
    *,
    ids: Sequence[str] | None = None,
    task: str | None = None,
    graders: Sequence[str] = ("plain", "robust"),
) -> dict[str, Any]:
    """Make a record of the authors' result folder, which is only read, and compare their verdicts with ours.

    The same files give the same record; an interrupted import goes on. Their verdicts are kept as grader `official`;
    each of `graders` grades the same texts again.

    Returns:
        The record's name, the counts, their scores, ours, how each grader agrees with them, and remarks.

    Raises:
        UserError: what `read_official` refuses.
    """
    run = read_official(folder, ids, task)
    graders = [grader_name(grader) for grader in graders]
    name = folder_name("task", str(task or run.task))
    config = RecordConfig(kind="imported", source={**run.source, "ids": list(ids) if ids is not None else None})
    records = RecordStore(store)
    prompts = {rollout.problem: str(rollout.prompt) for rollout in run.rollouts}
    asked = len(run.seeds) * run.per_seed
    with records.open(config, name, prompts, asked, about={"from": str(folder)}, sync_seconds=3600.0) as record:
        for rollout in run.rollouts:
            record.add(rollout)
        record.finish()
        head = {**record.header(), **versions(OFFICIAL)}
        rows = [
            verdict_row(rollout, run.gold[rollout.problem], "correct" if acc else "wrong")
            for rollout, acc in zip(run.rollouts, run.accs, strict=True)
        ]
        write_verdicts(record.folder, OFFICIAL, head, rows)
        for grader in graders:
            record.grade(run.gold, grader)
    snapshot = records.read(config.hash(), name)
    found: dict[str, Any] = {
        "record": snapshot.name,
        "counts": counts(snapshot),
        "scores": {OFFICIAL: scores(snapshot, OFFICIAL)},
        "remarks": _remarks(run.seeds, run.source),
    }
    for grader in graders:
        found["scores"][grader] = scores(snapshot, grader)
        found.setdefault("agreement", {})[grader] = agreement(snapshot, OFFICIAL, grader)
    return found


def _remarks(seeds: tuple[int, ...], source: dict[str, Any]) -> list[str]:
    remarks = []
    if seeds != tuple(range(8)):
        remarks.append(f"seeds {', '.join(map(str, seeds))}: the authors' notebook takes seeds 0 to 7 only")
    if "criterion" not in source:
        remarks.append("the folder's name does not give the settings, so none are recorded")
    return remarks

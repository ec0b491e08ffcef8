"""A store: a folder of records, `<store>/<config hash>/<task>`; opening one for writing, reading any without a lock."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.records import lines
from harness.records.config import RecordConfig
from harness.records.files import folder_name
from harness.records.journal import Contents, contents
from harness.records.record import ABOUT, CONFIG, JOURNAL, RECORD, Record, header, in_order, record_lines, same_bytes
from harness.records.rollout import Key, StoredRollout
from harness.spec import parse


@dataclass(frozen=True)
class Snapshot:
    """A record as it is on the disk now, perhaps while another process writes it."""

    folder: Path
    config_hash: str
    task: str
    config: RecordConfig | None  # None where config.json is damaged
    about: dict[str, Any]
    journal: bytes
    contents: Contents

    @property
    def name(self) -> str:
        """`<config hash>/<task>`"""
        return f"{self.config_hash}/{self.task}"

    @cached_property
    def held(self) -> list[Key]:
        """The keys of all good rollouts, in the record's order."""
        return in_order(self.contents.places)

    def row(self, key: Key) -> dict[str, Any]:
        """A stored row."""
        offset, length = self.contents.places[key]
        row = lines.decode(self.journal[offset : offset + length])
        assert row is not None  # `contents` has checked it
        return row

    def rollouts(self) -> Iterator[StoredRollout]:
        """All good rollouts, in the record's order."""
        return (StoredRollout.from_row(self.row(key)) for key in self.held)

    def lines(self) -> Iterator[bytes]:
        """What `record.jsonl` is when the record is finished as it stands."""
        return record_lines(self.config_hash, self.task, map(self.row, self.held))

    @property
    def finished(self) -> bool:
        """Whether `record.jsonl` is there and is, byte for byte, what the journal says."""
        return same_bytes(self.folder / RECORD, self.lines())


class RecordStore:
    """All records under one folder.

    >>> store = RecordStore("runs/records")                                              # doctest: +SKIP
    >>> with store.open(config, "aime24", problems, samples=32) as record:               # doctest: +SKIP
    ...     for rollout in resume(record, decode_missing): ...
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    def open(
        self,
        config: RecordConfig,
        task: str,
        problems: Sequence[str] | Mapping[str, str],
        samples: int,
        *,
        about: Mapping[str, Any] | None = None,
        sync_seconds: float = 0.0,
        trace_columns: int = 0,
    ) -> Record:
        """The record of `config` and `task`, made if need be, locked and repaired; see `Record`.

        Raises:
            UserError: another process writes it, or the disk is full.
        """
        folder = self.folder / config.hash() / folder_name("task", task)
        return Record(
            folder,
            config,
            task,
            problems,
            samples,
            about=about,
            sync_seconds=sync_seconds,
            trace_columns=trace_columns,
        )

    def names(self) -> list[tuple[str, str]]:
        """(config hash, task) of every record, sorted."""
        return sorted((path.parent.parent.name, path.parent.name) for path in self.folder.glob(f"*/*/{JOURNAL}"))

    def find(self, name: str) -> list[tuple[str, str]]:
        """The records that `name` means: the beginning of a config hash, with or without `/<task>`.

        Raises:
            UserError: none.
        """
        start, _, task = name.partition("/")
        found = [(hash_, of) for hash_, of in self.names() if hash_.startswith(start) and task in ("", of)]
        if not found:
            raise UserError(
                f"record={name!r} is not in {str(self.folder)!r}; accepted: the beginning of a hash that "
                "`rlvr-dir records list` shows, with or without /TASK"
            )
        return found

    def one(self, name: str) -> Snapshot:
        """The one record that `name` means.

        Raises:
            UserError: none, or several.
        """
        found = self.find(name)
        if len(found) > 1:
            names = ", ".join("/".join(each) for each in found[:5])
            raise UserError(f"record={name!r} means {len(found)} records ({names}); give more of the hash, or /TASK")
        return self.read(*found[0])

    def read(self, config_hash: str, task: str) -> Snapshot:
        """A record without locking or changing it.

        Raises:
            UserError: there is none.
        """
        folder = self.folder / config_hash / task
        try:
            journal = (folder / JOURNAL).read_bytes()
        except OSError:
            raise UserError(f"there is no record {config_hash}/{task} in {str(self.folder)!r}") from None
        found = contents(journal, header(config_hash, task))
        about = _json(folder / ABOUT) or {}
        return Snapshot(folder, config_hash, task, _config(folder / CONFIG, config_hash), about, journal, found)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _config(path: Path, config_hash: str) -> RecordConfig | None:
    data = _json(path)
    if data is None:
        return None
    try:
        config = parse(RecordConfig, data)
    except UserError:
        return None
    return config if config.hash() == config_hash else None

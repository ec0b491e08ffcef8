"""A store: a folder of records, `<store>/<record hash>/<task>`; opening one for writing, reading any without a lock."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError
from harness.files import folder_name
from harness.records import lines
from harness.records.config import RecordConfig
from harness.records.journal import JOURNAL, Contents, Entry, contents, header, journal_path
from harness.records.record import ABOUT, CONFIG, RECORD, Record, complete, in_order, manifest, read_about, same_bytes
from harness.records.rollout import Key, StoredRollout
from harness.spec import parse
from harness.spec.stored import read_json


@dataclass(frozen=True)
class Snapshot:
    """A record as it is on the disk now, perhaps while another process writes it.

    The facts of all rollouts are at hand; texts and tokens are read when asked for, and checked then.
    """

    folder: Path
    record_hash: str
    task: str
    config: RecordConfig | None  # None where config.json is damaged
    about: dict[str, Any]
    contents: Contents
    damaged: tuple[str, ...] = ()  # a sentence for each file that could not be read

    @property
    def name(self) -> str:
        """`<record hash>/<task>`"""
        return f"{self.record_hash}/{self.task}"

    @cached_property
    def held(self) -> list[Key]:
        """The keys of all good rollouts, in the record's order."""
        return in_order(self.contents.entries)

    def __contains__(self, key: Key) -> bool:
        return key in self.contents.entries

    def entry(self, key: Key) -> Entry:
        """Return the facts of a rollout that is held."""
        return self.contents.entries[key]

    def entries(self) -> Iterator[Entry]:
        """Yield the facts of all good rollouts, in the record's order."""
        return (self.contents.entries[key] for key in self.held)

    def rollout(self, key: Key) -> StoredRollout:
        """Return a rollout that is held."""
        return self.contents.entries[key].load()

    def rollouts(self) -> Iterator[StoredRollout]:
        """Yield all good rollouts, in the record's order."""
        return (entry.load() for entry in self.entries())

    @cached_property
    def complete(self) -> dict[str, int]:
        """How many first samples of each problem were asked and finished; see `harness.records.record.complete`."""
        return complete(self.about, self.held)

    def export(self) -> Iterator[bytes]:
        """Yield the lines of `rlvr-dir records export`: everything exact, in the record's order."""
        yield lines.encode(header(self.record_hash, self.task))
        for rollout in self.rollouts():
            yield lines.encode(rollout.exact_row())

    @property
    def finished(self) -> bool:
        """Whether `record.jsonl` is there and is, byte for byte, what the journal says."""
        return same_bytes(self.folder / RECORD, manifest(self.record_hash, self.task, self.contents.entries))


class RecordStore:
    """All records under one folder.

    >>> store = RecordStore("runs/records")                                              # doctest: +SKIP
    >>> with store.open(config, "aime24", problems, samples=32) as record:               # doctest: +SKIP
    ...     for problem, sample in record.missing(): record.add(decode(problem, sample))
    ...     record.finish()
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
        """Return the record of `config` and `task`, made if need be, locked and repaired; see `Record`.

        Raises:
            UserError: another process writes it, or the disk is full.
        """
        folder = self.folder / config.hash() / folder_name("task", task)
        how = {"about": about, "sync_seconds": sync_seconds, "trace_columns": trace_columns}
        return Record(folder, config, task, problems, samples, **how)

    def names(self) -> list[tuple[str, str]]:
        """Return (record hash, task) of every record, sorted."""
        found = {path.parent for path in self.folder.glob(f"*/*/{JOURNAL}")}
        return sorted((folder.parent.name, folder.name) for folder in found)

    def emptiness(self) -> str:
        """Say of a store without records that it has none, and whether its folder is there."""
        return f"no records in {str(self.folder)!r}{'' if self.folder.is_dir() else ', which does not exist'}"

    def find(self, name: str) -> list[tuple[str, str]]:
        """Return the records that `name` means: the beginning of a record hash, with or without `/<task>`.

        An empty name means all.

        Raises:
            UserError: none.
        """
        start, _, task = name.partition("/")
        found = [(hash_, of) for hash_, of in self.names() if hash_.startswith(start) and task in ("", of)]
        if not found and not name:
            raise UserError(f"store: {self.emptiness()}; accepted: a folder of records")
        if not found:
            raise UserError(
                f"record={name!r} is not in {str(self.folder)!r}; accepted: the beginning of a hash that "
                "`rlvr-dir records list` shows, with or without /TASK"
            )
        return found

    def one(self, name: str) -> Snapshot:
        """Return the one record that `name` means.

        Raises:
            UserError: none, or several.
        """
        found = self.find(name)
        if len(found) > 1:
            names = ", ".join("/".join(each) for each in found[:5])
            raise UserError(f"record={name!r} means {len(found)} records ({names}); give more of the hash, or /TASK")
        return self.read(*found[0])

    def read(self, record_hash: str, task: str, *, whole: bool = False) -> Snapshot:
        """Return a record without locking or changing it; every byte of its journal is checked if `whole`.

        Raises:
            UserError: there is none.
        """
        folder = self.folder / record_hash / task
        if not os.path.lexists(journal_path(folder)):
            raise UserError(f"there is no record {record_hash}/{task} in {str(self.folder)!r}")
        found = contents(journal_path(folder), record_hash, task, whole=whole)
        damaged: list[str] = []
        config: RecordConfig | None = None
        about: dict[str, Any] = {}
        try:
            config = _config(folder / CONFIG, record_hash)
        except DamagedError as error:
            damaged.append(str(error))
        try:
            about = read_about(folder / ABOUT)
        except DamagedError as error:
            damaged.append(str(error))
        return Snapshot(folder, record_hash, task, config, about, found, tuple(damaged))


def is_record(folder: Path) -> bool:
    """Tell whether a folder is that of a record."""
    return journal_path(folder).is_file()


def _config(path: Path, record_hash: str) -> RecordConfig:
    try:
        config = parse(RecordConfig, read_json(path))
        found = config.hash()
    except DamagedError:
        raise
    except (UserError, RecursionError) as error:
        raise DamagedError(f"{path}: {error}") from None
    if found != record_hash:
        raise DamagedError(f"{path} is damaged, or is not the one that the folder {record_hash} is named after")
    return config

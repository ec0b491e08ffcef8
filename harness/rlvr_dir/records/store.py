"""Open the records of a folder: for writing by their settings, for reading by name."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.errors import UserError
from rlvr_dir.files import folder_name
from rlvr_dir.records.config import RecordConfig
from rlvr_dir.records.record import JOURNAL, Record

SPREADS = "floor.json"  # beside the records: by base and type, how far rounding moves what is 0 of equal models


def stored_spreads(records: Path) -> dict[str, dict[str, float]]:
    """Return the spreads that audits have written beside a folder of records; empty if there is no such file."""
    file = records.parent / SPREADS
    return json.loads(file.read_text()) if file.is_file() else {}


class RecordStore:
    """Manage all records under one folder.

    >>> store = RecordStore("runs/records")                                              # doctest: +SKIP
    >>> with store.open(config, "aime24", problems, samples=32) as record:               # doctest: +SKIP
    ...     for problem, sample in record.missing(): record.add(decode(problem, sample)) ...     record.finish()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    def open(
        self,
        config: RecordConfig,
        task: str,
        problems: Sequence[str] | Mapping[str, str],
        samples: int,
        **options: Any,
    ) -> Record:
        """Return the record of `config` and `task`, locked and repaired. It is created if there is none.

        `options` are those of `Record.request`.

        Raises:
            UserError: Another process writes it, or the disk is full.
        """
        record = Record(self.folder / config.hash() / folder_name("task", task)).lock(config)
        try:
            return record.request(problems, samples, **options)
        except BaseException:
            record.close()
            raise

    def kept_as(self, config: RecordConfig, earlier: Sequence[RecordConfig], task: str) -> RecordConfig:
        """Return the config whose hash names a record here: its own, or that of an earlier version.

        The first of `earlier`, by which the previous version would have named it, is preferred to its own.
        """
        for candidate in (*earlier[:1], config, *earlier):
            if (self.folder / candidate.hash() / task / JOURNAL).is_file():
                return candidate
        return config

    def names(self) -> list[tuple[str, str]]:
        """Return (record hash, task) of every record, sorted."""
        folders = {path.parent for path in self.folder.glob(f"*/*/{JOURNAL}")}
        return sorted((folder.parent.name, folder.name) for folder in folders)

    def emptiness(self) -> str:
        """Describe a store without records, and whether its folder exists."""
        return f"no records in {str(self.folder)!r}{'' if self.folder.is_dir() else ', which does not exist'}"

    def find(self, name: str) -> list[tuple[str, str]]:
        """Return the records that match `name`, the first digits of a record hash, with or without `/<task>`.

        An empty name matches all.

        Raises:
            UserError: There is none.
        """
        start, _, task = name.partition("/")
        names = [(hash_, of) for hash_, of in self.names() if hash_.startswith(start) and task in ("", of)]
        if not names and not name:
            raise UserError(self.emptiness(), argument="store", accepted="a folder of records")
        if not names:
            raise UserError(
                f"is not in {str(self.folder)!r}",
                argument="record",
                value=name,
                accepted="the first digits of a hash that `rlvr-dir records list` shows, with or without /TASK",
            )
        return names

    def record(self, name: str) -> Record:
        """Return the one record that matches `name`.

        Raises:
            UserError: There is none, or several.
        """
        names_found = self.find(name)
        if len(names_found) > 1:
            names = ", ".join("/".join(parts) for parts in names_found[:5])
            raise UserError(
                f"matches {len(names_found)} records ({names})",
                argument="record",
                value=name,
                hint="Give more digits of the hash, or add /TASK",
            )
        return self.read(*names_found[0])

    def read(self, record_hash: str, task: str, *, whole: bool = False) -> Record:
        """Return a record without locking or changing it. With `whole` every byte is checked.

        Raises:
            UserError: There is none.
        """
        record = Record(self.folder / record_hash / task)
        if not os.path.lexists(record.path):
            raise UserError(f"there is no record {record.name} in {str(self.folder)!r}")
        return record.read(whole=whole)


def is_record(folder: Path) -> bool:
    """Return whether a folder is that of a record."""
    return (folder / JOURNAL).is_file()

"""The append-only journal of a record: one checksummed line a rollout, on the disk before anyone is told of it.

The first line says which record the journal belongs to. Opening repairs: a torn tail is cut off; a damaged file is
kept under another name and its good lines are carried over, so that only what was damaged is decoded again.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.records import lines
from harness.records.files import disk_error, set_aside, write_file
from harness.records.rollout import Key, StoredRollout


@dataclass(slots=True)
class Contents:
    """What a journal's bytes hold: where the good rollouts are, and what is wrong with the rest."""

    places: dict[Key, tuple[int, int]] = field(default_factory=dict)  # offset, length; the first line of a key counts,
    traces: dict[Key, int] = field(default_factory=dict)  # unless a later one has a trace of more columns (0: none)
    prompts: dict[Key, str | None] = field(default_factory=dict)
    bad: int = 0  # damaged lines
    tail: int = 0  # bytes of the torn tail
    header: bool = False  # the first line is there and belongs to this record
    foreign: bool = False  # it belongs to another one

    @property
    def damaged(self) -> bool:
        """Whether something other than an interrupted write has happened to the file."""
        return bool(self.bad or self.foreign)


def contents(data: bytes, header: dict[str, Any]) -> Contents:
    """Reads a journal; never fails, whatever the bytes are."""
    found = Contents()
    for line in lines.scan(data):
        if line.torn:
            found.tail = line.length
        elif line.row is None:
            found.bad += 1
        elif "config" in line.row:
            if line.row == header:
                found.header = found.header or line.offset == 0
            else:
                found.foreign = True
        else:
            key = line.row["problem"], line.row["sample"]
            width = line.row.get("trace_columns", 0)
            if key not in found.places or width > found.traces[key]:
                found.places[key], found.traces[key] = (line.offset, line.length), width
            found.prompts.setdefault(key, line.row["prompt"])
    if found.foreign:  # nothing in it can be trusted to be ours
        found.places, found.prompts, found.traces = {}, {}, {}
    return found


class Journal:
    """An open journal; its owner holds the record's lock.

    Durability: `append` returns once the line is in the file, and killing the process loses nothing from then on. With
    `sync_seconds` 0 the line is also forced to the disk first, so that a power cut loses nothing either; with more, a
    power cut may lose the lines of the last so many seconds, which the next run decodes again to the same tokens.
    """

    def __init__(self, path: Path, header: dict[str, Any], sync_seconds: float = 0.0) -> None:
        self.path, self.sync_seconds = path, sync_seconds
        self.repairs: list[str] = []
        data = path.read_bytes() if path.exists() else b""
        found = contents(data, header)
        if found.damaged:
            data, found = self._carry_over(data, found, header)
        elif found.tail:
            data = data[: len(data) - found.tail]
            self.repairs.append(f"{path}: a torn last line of {found.tail} bytes was cut off")
            self._cut(len(data))
        if not found.header:  # new, or torn before its first line was whole
            data = lines.encode(header)
            write_file(path, data, "nothing was written")
        self._places, self.prompts, self.traces = found.places, found.prompts, found.traces
        self._size = len(data)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._synced = time.monotonic()

    def _carry_over(self, data: bytes, found: Contents, header: dict[str, Any]) -> tuple[bytes, Contents]:
        """A fresh journal of the good lines, the damaged file kept beside it."""
        good = [data[offset : offset + length] for offset, length in found.places.values()]
        fresh = lines.encode(header) + b"".join(good)
        aside = set_aside(self.path)
        write_file(self.path, fresh, f"the damaged journal is as it was ({aside.name} is another name of it)")
        what = "belongs to another record" if found.foreign else f"has {found.bad} damaged lines"
        self.repairs.append(
            f"{self.path} {what}: set aside as {aside.name}; {len(good)} good rollouts kept, the others are redone"
        )
        return fresh, contents(fresh, header)

    def _cut(self, size: int) -> None:
        try:
            os.truncate(self.path, size)
        except OSError as error:
            raise disk_error(error, self.path, "its torn last line is still there") from None

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def keys(self) -> list[Key]:
        """Of all rollouts held, in order of arrival."""
        return list(self._places)

    def row(self, key: Key) -> dict[str, Any]:
        """The stored row of a key that is held.

        Raises:
            UserError: the file was damaged since it was opened.
        """
        offset, length = self._places[key]
        row = lines.decode(os.pread(self._fd, length, offset))
        if row is None:
            raise UserError(f"{self.path} was changed by something else while open; run again to repair it")
        return row

    def append(self, rollout: StoredRollout) -> None:
        """Stores a rollout whose key is not held yet, or held with fewer columns of trace.

        Raises:
            UserError: the disk is full or fails. Nothing of the line stays then, and all others are safe.
        """
        data = memoryview(line := lines.encode(rollout.row()))
        at = self._size
        try:
            while data:
                written = os.pwrite(self._fd, data, at)
                data, at = data[written:], at + written
            if time.monotonic() - self._synced >= self.sync_seconds:
                self.sync()
        except BaseException as error:  # Ctrl-C between two writes included
            os.ftruncate(self._fd, self._size)
            if isinstance(error, OSError):
                raise disk_error(error, self.path, f"the {len(self._places)} rollouts before it are safe") from None
            raise
        self._places[rollout.key] = self._size, len(line)
        self.prompts[rollout.key] = rollout.prompt
        self.traces[rollout.key] = 0 if rollout.trace is None else rollout.trace.shape[1]
        self._size = at

    def sync(self) -> None:
        """Forces everything appended so far to the disk."""
        os.fsync(self._fd)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Syncs and closes."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

"""The append-only journal of a record: every rollout, on the disk before anyone is told of it.

`journal.bin` is a sequence of entries. The first is a line that says which record this is; each other one is a rollout:
a line of JSON with its facts (`harness.records.lines`), the compressed columns that the line names, a newline. So facts
are read by skipping from line to line, and a damaged stretch ends where the next line begins. docs/records.md shows how
a few lines of Python read it.

Opening repairs: a torn tail is cut off; a damaged file is kept under another name and its good entries are carried
over, so that only what was damaged is decoded again.
"""

import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, get_args

from harness.errors import DamagedError
from harness.files import disk_error, set_aside, write_file
from harness.records import lines
from harness.records.rollout import FinishReason, Key, StoredRollout, unpacked
from harness.spec.stored import MOST

JOURNAL = "journal.bin"
FORMAT = 2
_LONGEST = 1 << 28  # bytes of a line
_START = b'\n{"sha":"'  # between two entries
_FACTS = {
    "problem": str, "sample": int, "finish_reason": str, "n_tokens": int, "n_replaced": int, "n_changed": int,
    "text_digest": str, "digest": str, "trace_columns": int,
}  # fmt: skip


def header(record_hash: str, task: str, form: int = 1) -> dict[str, Any]:
    """Return the first line of a file: which record it belongs to. Exports and verdicts have kept format 1."""
    return {"config": record_hash, "task": task, "format": form}


def journal_path(folder: Path) -> Path:
    """Return where the journal of a record is."""
    return folder / JOURNAL


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored rollout: its facts, and where the rest of it is, which is read when asked for.

    `digest` is the checksum of everything exact in it, `text_digest` that of its text.
    """

    problem: str
    sample: int
    prompt: str | None
    finish_reason: FinishReason
    n_tokens: int
    n_replaced: int
    n_changed: int
    text_digest: str
    digest: str
    trace_columns: int
    path: Path
    offset: int
    length: int
    n_forwards: int | None = None

    @classmethod
    def of(cls, row: dict[str, Any], path: Path, offset: int, length: int) -> "Entry":
        """Make it from the row of its line.

        Raises:
            ValueError: the row is not that of a rollout.
        """
        if "columns" not in row:
            raise ValueError("no rollout")
        facts: dict[str, Any] = {name: row.get(name) for name in _FACTS}
        if any(type(facts[name]) is not kind for name, kind in _FACTS.items()):
            raise ValueError("facts of another type")
        if any(kind is int and not 0 <= facts[name] <= MOST for name, kind in _FACTS.items()):
            raise ValueError("counts out of range")
        if facts["finish_reason"] not in get_args(FinishReason):
            raise ValueError("no reason to finish")
        if max(facts["n_replaced"], facts["n_changed"]) > facts["n_tokens"]:
            raise ValueError("more tokens are flagged than there are")
        prompt = row.get("prompt")
        if prompt is not None and type(prompt) is not str:
            raise ValueError("a prompt of another type")
        forwards = row.get("n_forwards")
        if forwards is not None and not (type(forwards) is int and facts["n_tokens"] <= forwards <= MOST):
            raise ValueError("fewer forwards than tokens, or too many")
        return cls(**facts, prompt=prompt, path=path, offset=offset, length=length, n_forwards=forwards)

    @property
    def key(self) -> Key:
        """(problem, sample)"""
        return self.problem, self.sample

    @property
    def text(self) -> str:
        """The response.

        Raises:
            DamagedError: the entry is damaged.
        """
        row, payload = self._read()
        try:
            return unpacked(row, payload, "text")["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None

    def counts(self) -> dict[str, Any]:
        """Return what the engine counted, by the names of lm-eval's samples file."""
        found = {name: getattr(self, name) for name in ("n_tokens", "n_replaced", "n_changed", "finish_reason")}
        return found | ({} if self.n_forwards is None else {"n_forwards": self.n_forwards})

    def load(self) -> StoredRollout:
        """Return the whole rollout.

        Raises:
            DamagedError: the entry is damaged.
        """
        row, payload = self._read()
        try:
            return StoredRollout.unpack(row, payload)
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None

    def manifest_row(self) -> dict[str, Any]:
        """Return the exact facts: a line of `record.jsonl`."""
        found = {name: getattr(self, name) for name in (*_FACTS, "prompt") if name != "trace_columns"}
        return found | ({} if self.n_forwards is None else {"n_forwards": self.n_forwards})

    def _read(self) -> tuple[dict[str, Any], bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.length)
        except OSError as error:
            raise self._damaged(error.strerror) from None
        line, payload = data[: data.find(b"\n") + 1], data[data.find(b"\n") + 1 : -1]
        row = lines.decode(line)
        if row is None or (row.get("problem"), row.get("sample")) != self.key:
            raise self._damaged("it is not where it was")
        if zlib.crc32(payload) != row.get("crc"):
            raise self._damaged("its checksum does not fit")
        return row, payload

    def _damaged(self, why: object) -> DamagedError:
        return DamagedError(
            f"{self.path}: {self.problem} sample {self.sample} was damaged or moved while in use ({why}); run again: "
            "`rlvr-dir records verify` names damage, and the command that decoded it decodes it again"
        )


@dataclass(slots=True)
class Contents:
    """What a journal holds: the good rollouts, and what is wrong with the rest."""

    path: Path
    entries: dict[Key, Entry] = field(default_factory=dict)  # the first of a key, unless a later one has a wider trace
    bad: int = 0  # damaged stretches
    tail: int = 0  # bytes of the torn tail
    size: int = 0  # bytes before the torn tail
    header: bool = False  # the first line is there and belongs to this record
    foreign: bool = False  # it belongs to another one

    @property
    def damaged(self) -> bool:
        """Whether something other than an interrupted write has happened to the file."""
        return bool(self.bad or self.foreign or (self.entries and not self.header))


def contents(path: Path, record_hash: str, task: str, *, whole: bool) -> Contents:
    """Read a journal; the columns are checked if `whole`, else skipped.

    Raises:
        DamagedError: the file cannot be read, or a later version of this program wrote it.
    """
    found = Contents(path)
    if os.path.lexists(path) and not path.is_file():  # a pipe would be waited for, a device never ends
        raise DamagedError(f"{path} is no plain file; the other records can be read")
    try:
        with path.open("rb") as file:
            for offset, length, row in scan(file, whole=whole):
                if row is None:
                    found.bad += 1
                elif not row:
                    found.tail = length
                    continue
                elif "config" in row:
                    if row.get("format") != FORMAT:
                        raise DamagedError(
                            f"{path} is of format {row.get('format')}, which this version of rlvr-dir does not read; "
                            f"accepted: {FORMAT}"
                        )
                    ours = (row["config"], row.get("task")) == (record_hash, task)
                    found.header, found.foreign = found.header or (ours and not offset), found.foreign or not ours
                else:
                    _take(found, row, path, offset, length)
                found.size = offset + length
    except FileNotFoundError:
        return found
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    if found.foreign:  # nothing in it can be trusted to be ours
        found.entries = {}
    return found


def _take(found: Contents, row: dict[str, Any], path: Path, offset: int, length: int) -> None:
    try:
        entry = Entry.of(row, path, offset, length)
    except ValueError:
        found.bad += 1
        return
    held = found.entries.get(entry.key)
    if held is None or entry.trace_columns > held.trace_columns:
        found.entries[entry.key] = entry


def scan(file: BinaryIO, *, whole: bool) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield (offset, length, row) of all stretches of a journal, in order; never fails, whatever the bytes are.

    The row is None where the stretch is damaged, and {} for a torn tail: the beginning of an entry, and the file's end.
    """
    size, at = os.fstat(file.fileno()).st_size, 0
    while at < size:
        file.seek(at)
        line = file.readline(_LONGEST)
        row, end = lines.decode(line), at + len(line)
        good, short = row is not None, not line.endswith(b"\n")
        if row is not None and "columns" in row:
            payload = _payload(row)
            good, end = payload >= 0, end + payload + 1
            short = end > size
            if good and not short:
                good = not whole or zlib.crc32(file.read(payload)) == row.get("crc")
                file.seek(end - 1)
                good = file.read(1) == b"\n" and good
        if good and not short:
            yield at, end - at, row
            at = end
            continue
        following = _find(file, at, size)
        yield at, following - at, {} if short and following == size else None
        at = following


def _payload(row: dict[str, Any]) -> int:
    """Return the bytes of all columns, -1 where the row does not say it as it should."""
    try:
        sizes = [size for _, _, size in row["columns"]]
    except (TypeError, ValueError):
        return -1
    return sum(sizes) if all(type(size) is int and size >= 0 for size in sizes) else -1


def _find(file: BinaryIO, at: int, size: int) -> int:
    """Return where the next entry after `at` begins, in the middle of anything; `size` if there is none."""
    step = 1 << 20
    while at < size:
        file.seek(at)
        found = file.read(step + len(_START)).find(_START)
        if found >= 0:
            return at + found + 1
        at += step
    return size


class Journal:
    """An open journal; its owner holds the record's lock.

    Durability: `append` returns once the entry is in the file, and killing the process loses nothing from then on. With
    `sync_seconds` 0 it is also forced to the disk first, so that a power cut loses nothing either; with more, a power
    cut may lose the entries of the last so many seconds, which the next run decodes again to the same tokens.
    """

    def __init__(self, path: Path, record_hash: str, task: str, sync_seconds: float = 0.0) -> None:
        self.path, self.sync_seconds = path, sync_seconds
        self.repairs: list[str] = []
        first = lines.encode(header(record_hash, task, 2))
        found = contents(path, record_hash, task, whole=True)
        if found.damaged:
            self._carry_over(found, first)
            found = contents(path, record_hash, task, whole=True)
        elif found.tail:
            self.repairs.append(f"{path}: a torn last entry of {found.tail} bytes was cut off")
            try:
                os.truncate(path, found.size)
            except OSError as error:
                raise disk_error(error, path, "its torn last entry is still there") from None
        if not found.header:  # new, or torn before its first line was whole
            write_file(path, first, "nothing was written")
            found.size = len(first)
        self.entries = found.entries
        self._size = found.size
        self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._synced = time.monotonic()

    def _carry_over(self, found: Contents, first: bytes) -> None:
        """Write a fresh journal of the good entries, and keep the damaged file beside it."""
        aside = set_aside(self.path)

        def good() -> Iterator[bytes]:
            yield first
            with aside.open("rb") as file:
                for entry in found.entries.values():
                    file.seek(entry.offset)
                    yield file.read(entry.length)

        write_file(self.path, good(), f"the damaged journal is as it was ({aside.name} is another name of it)")
        what = "belongs to another record" if found.foreign else f"has {found.bad} damaged entries"
        self.repairs.append(
            f"{self.path} {what}: set aside as {aside.name}; {len(found.entries)} good rollouts kept, the others are "
            "redone"
        )

    def append(self, rollout: StoredRollout) -> None:
        """Store a rollout whose key is not held yet, or held with fewer columns of trace.

        Raises:
            UserError: the disk is full or fails. Nothing of the entry stays then, and all others are safe.
            RuntimeError: the key is held with other tokens.
        """
        row, payload = rollout.pack()
        held = self.entries.get(rollout.key)
        if held is not None and held.digest != row["digest"]:
            raise RuntimeError(f"{rollout.key} was decoded again, for its trace, and came out with other tokens")
        data = memoryview(entry := lines.encode(row) + payload + b"\n")
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
                raise disk_error(error, self.path, f"the {len(self.entries)} rollouts before it are safe") from None
            raise
        self.entries[rollout.key] = Entry.of(row, self.path, self._size, len(entry))
        self._size = at

    def sync(self) -> None:
        """Force everything appended so far to the disk."""
        os.fsync(self._fd)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

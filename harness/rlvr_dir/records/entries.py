"""Write the entries of a record's file as bytes, and read a file of them with any content.

An entry is a line of JSON with its checksum,

    {"crc":1234567890,"entry":{"rollout":{"problem":"aime24/3","sample":0,...,"columns":{"text":[812,2790156331],...}}}}

A response's line is followed by the compressed columns whose sizes and checksums it contains, and a newline. So facts
can be read by skipping from line to line, and a damaged part ends where the next line begins.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from pydantic import Field, TypeAdapter

from rlvr_dir.config.pair import places_of
from rlvr_dir.config.stored import Count, Plain, Stored, Text
from rlvr_dir.records.replay import Replay
from rlvr_dir.records.row import Row
from rlvr_dir.records.verdicts import StoredVerdict

FORMAT = 5
_LONGEST = 1 << 28  # bytes of a line
_START = b'{"crc":'
_LINE = re.compile(rb'\{"crc":([0-9]{1,10}),"entry":(\{.*\})\}\n', re.DOTALL)


class RequestedSamples(Stored, frozen=True):
    """Store what was requested last: the first samples of the problems with these names."""

    problems: Count
    samples: Count
    names: tuple[Text, ...]


class PromptFormat(Stored, frozen=True):
    """Store how a benchmark was presented to the models, if not by default."""

    prompt: Text | None = None
    examples: tuple[Plain, ...] | None = None


class RecordMetadata(Stored, frozen=True):
    """Store what is known of a record: names and dates, the benchmark, and what was requested and finished."""

    format: Count = FORMAT
    config: Plain | None = None
    task: Text | None = None
    created: Text | None = None
    base: Text | None = None
    rl: Text | None = None
    recipient: Text | None = None
    chat: Text | None = None
    file: Text | None = None  # of a user's own benchmark
    problems: Count | None = None  # of the benchmark, all of them
    presentation: PromptFormat | None = None
    families: dict[str, Text] | None = None  # of its problems, by their ids
    grader: Text | None = None  # the grader that was requested last
    asked: RequestedSamples | None = None
    complete: dict[str, Count] = Field(default_factory=dict)  # samples of each problem that were requested and finished
    finished: Text | None = None  # the digest of all responses when it was last finished
    graded_with: dict[str, dict[str, Text]] = Field(default_factory=dict)  # by judge

    @property
    def models(self) -> dict[str, str]:
        """Return the places of the models, by role."""
        return places_of(dict(self))


KINDS = {
    kind: TypeAdapter(form).validate_python
    for kind, form in {"rollout": Row, "verdict": StoredVerdict, "replay": Replay, "about": RecordMetadata}.items()
}


def encode(entry: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Return the bytes of an entry."""
    line = json.dumps(entry, separators=(",", ":")).encode()
    return b'{"crc":%d,"entry":%s}\n' % (zlib.crc32(line), line) + (payload + b"\n" if payload else b"")


def decode(line: bytes) -> tuple[str, Any, Any] | None:
    """Return the kind of the entry in a line (newline included), its plain and its checked value; None for another
    line."""
    match = _LINE.fullmatch(line)
    if match is None or zlib.crc32(match[2]) != int(match[1]):
        return None
    try:
        [(kind, plain)] = json.loads(match[2].decode()).items()
        return kind, plain, KINDS[kind](plain)
    except (ValueError, KeyError, TypeError, RecursionError):  # written by another program
        return None


def scan(file: BinaryIO, *, checked: int | None = None) -> Iterator[tuple[int, int, tuple[str, Any, Any] | None]]:
    """Yield (offset, end, entry) of all parts of a file, in order. It never fails, whatever the bytes are.

    The entry is None if the part is damaged, and () for a torn tail, which is the beginning of an entry at the file's
    end. The columns of responses are skipped, except for those that begin after the byte `checked`.
    """
    size, at = os.fstat(file.fileno()).st_size, 0
    while at < size:
        file.seek(at)
        line = file.readline(_LONGEST)
        entry, end, short = decode(line), at + len(line), not line.endswith(b"\n")
        if entry is not None and entry[0] == "rollout":
            row, end = entry[2], end + entry[2].size + 1
            short = end > size
            if not short:
                good = checked is None or at < checked or row.holds(file.read(row.size))
                file.seek(end - 1)
                entry = entry if file.read(1) == b"\n" and good else None
        if entry is None or short:
            end = _find(file, at, size)
            entry = () if short and end == size else None
        yield at, end, entry  # pyright: ignore[reportReturnType]
        at = end


def _find(file: BinaryIO, at: int, size: int) -> int:
    """Return where the next entry after `at` begins, at any place within an entry; `size` if there is none."""
    step = 1 << 20
    while at < size:
        file.seek(at)
        offset = file.read(step + len(_START) + 1).find(b"\n" + _START)
        if offset >= 0:
            return at + offset + 1
        at += step
    return size

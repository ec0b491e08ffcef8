"""Checksummed lines: JSON that proves it is whole, `{"sha":"<16 hex>","row":{...}}`, one object a line.

A line is good if its checksum fits its row. What follows the last newline is a *torn tail*: a write that was cut short.
A whole line whose checksum does not fit is *bad*: something damaged it afterwards.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

_LINE = re.compile(rb'\{"sha":"([0-9a-f]{16})","row":(\{.*\})\}\n', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """A stretch of a file: `row` is None where it is damaged; `torn` where it has no newline at its end."""

    offset: int
    length: int
    row: dict[str, Any] | None
    torn: bool = False


def encode(row: dict[str, Any]) -> bytes:
    """One line. The same row gives the same bytes: keys sorted, no spaces, ASCII."""
    payload = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    return b'{"sha":"%s","row":%s}\n' % (_checksum(payload), payload)


def decode(line: bytes) -> dict[str, Any] | None:
    """The row of a line (newline included), or None where the line is damaged."""
    match = _LINE.fullmatch(line)
    if match is None or _checksum(match[2]) != match[1]:
        return None
    try:
        row = json.loads(match[2])
    except ValueError:  # cannot happen to what `encode` wrote
        return None
    return row if isinstance(row, dict) else None


def scan(data: bytes) -> Iterator[Line]:
    """All lines of a file's contents, in order, good and bad; the torn tail last, if there is one."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1
        if not end:
            yield Line(start, len(data) - start, None, torn=True)
            return
        yield Line(start, end - start, decode(data[start:end]))
        start = end


def _checksum(payload: bytes) -> bytes:
    return sha256(payload).hexdigest()[:16].encode()

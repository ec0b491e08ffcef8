"""Checksummed lines: JSON that proves it is whole, `{"sha":"<16 hex>","row":{...}}`, one object a line."""

import json
import re
from collections.abc import Iterable
from typing import Any

from harness.digest import digest

_LINE = re.compile(rb'\{"sha":"([0-9a-f]{16})","row":(\{.*\})\}\n', re.DOTALL)


def encode(row: dict[str, Any]) -> bytes:
    """Return one line. The same row gives the same bytes: keys sorted, no spaces, ASCII."""
    payload = _canonical(row)
    return b'{"sha":"%s","row":%s}\n' % (_sha(payload), payload)


def decode(line: bytes) -> dict[str, Any] | None:
    """Return the row of a line (newline included), or None where the line is damaged."""
    match = _LINE.fullmatch(line)
    if match is None or _sha(match[2]) != match[1]:
        return None
    try:
        row = json.loads(match[2])
    except (ValueError, RecursionError):  # cannot happen to what `encode` wrote
        return None
    return row if isinstance(row, dict) else None


def decode_all(data: bytes) -> Iterable[dict[str, Any] | None]:
    """Return the rows of a file's lines in order, None for a damaged one."""
    return map(decode, data.splitlines(keepends=True))


def checksum(row: dict[str, Any]) -> str:
    """Return the checksum that the line of a row has."""
    return _sha(_canonical(row)).decode()


def _canonical(row: dict[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _sha(payload: bytes) -> bytes:
    return digest(payload).encode()

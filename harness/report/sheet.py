"""CSV: tables and the data of figures as files that a spreadsheet opens without running anything."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from harness.report.model import Figure, Table
from harness.text import visible

LONGEST_FIELD = 32_000  # spreadsheets hold no more in a cell
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def field(value: Any) -> Any:
    """Keep a number as it is, make text visible; text that a spreadsheet takes for a formula gets an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return value
    text = visible(value, LONGEST_FIELD)
    return f"'{text}" if text.startswith(_FORMULA) else text


def rows(header: Sequence[str], data: Iterable[Sequence[Any]]) -> str:
    """Write a header and rows as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field(name) for name in header])
    writer.writerows([field(value) for value in row] for row in data)
    return out.getvalue()


def table(one: Table) -> str:
    """Write numbers as exactly as they are known, and beside each its interval and mark where the table has them."""
    header: list[str] = []
    extras = [
        (any(row.cells[i].small for row in one.rows), any(row.cells[i].mark for row in one.rows))
        for i in range(len(one.columns))
    ]
    for column, (small, mark) in zip(one.columns, extras, strict=True):
        title = f"{column.group} {column.title}".strip()
        header += [title, *([f"{title}: beside"] if small else []), *([f"{title}: mark"] if mark else [])]
    data = []
    for row in one.rows:
        line: list[Any] = []
        for cell, (small, mark) in zip(row.cells, extras, strict=True):
            line.append(cell.text + cell.sign if cell.value is None else cell.value)
            line += ["; ".join(cell.small)] if small else []
            line += [cell.mark] if mark else []
        data.append(line)
    return rows(header, data)


def figure(one: Figure) -> str:
    """Write the data behind a figure as CSV."""
    return rows(one.header, one.data)

"""Render the frame of a section as CSV that is safe to open in a spreadsheet."""

import csv
import io
from typing import Any

from rlvr_dir.report.model import KIND, SPLIT, Cell, Section, as_cell
from rlvr_dir.text import visible

LONGEST_FIELD = 32_000  # the most that spreadsheets allow in a cell
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def field(value: Any) -> Any:
    """Return a number unchanged and text made visible. Text that a spreadsheet would run as a formula gets an
    apostrophe."""
    if value is None or value != value:
        return ""
    if isinstance(value, int | float):
        return value
    text = visible(value, LONGEST_FIELD)
    return f"'{text}" if text.startswith(_FORMULA) else text


def render(section: Section) -> str:
    """Return all numbers at full precision, each with its interval and its notes."""
    out = io.StringIO()
    columns: dict[str, list[Any]] = {}
    for name in section.frame.columns:
        title, values = str(name).replace(SPLIT, " "), list(section.frame[name])
        if name == KIND:
            continue
        if not any(isinstance(value, Cell) for value in values):
            columns[title] = values
            continue
        cells = [as_cell(value) for value in values]
        columns[title] = [cell.text + cell.sign if cell.value is None else cell.value for cell in cells]
        ends = [cell.interval or (None, None) for cell in cells]
        beneath = [
            "; ".join(text for text in cell.small if not (cell.interval and text.startswith("["))) for cell in cells
        ]
        more = {"low": [low for low, _ in ends], "high": [high for _, high in ends], "beside": beneath}
        more["mark"] = [cell.mark for cell in cells]
        columns |= {
            f"{title}: {column}": values for column, values in more.items() if any(v not in (None, "") for v in values)
        }
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field(name) for name in columns])
    writer.writerows([field(value) for value in row] for row in zip(*columns.values(), strict=True))
    return out.getvalue()

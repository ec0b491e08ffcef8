"""What a report is made of, before it is HTML, Markdown, LaTeX or CSV: tables of cells, figures, paragraphs.

Text here is raw: it may come out of a model. Each renderer escapes all of it for its own format.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Mark = Literal["", "best", "second"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: `text` as printed, the number behind it, and what is said small beside it (intervals).

    `sign` is a sign after the number (`*`); `link` leads to where the number comes from.
    """

    text: str = ""
    value: float | None = None
    small: tuple[str, ...] = ()
    mark: Mark = ""
    sign: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the title it shares with its neighbours, and whether it holds words or numbers."""

    title: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row; `kind` sets it apart (a reference, or something that is no score), `rule` draws a line above it."""

    cells: tuple[Cell, ...]
    kind: Literal["", "reference", "aside"] = ""
    rule: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption and notes; `name` names its files, `paper` the table of the paper whose shape it has."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    paper: str = ""
    sortable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", file_name(self.name))
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.name}: a row of {len(row.cells)} cells in {len(self.columns)} columns")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its SVG, what it shows in words (for those who cannot see it), and the data behind it."""

    name: str
    caption: str
    alt: str
    svg: str
    header: tuple[str, ...]
    data: tuple[tuple[Any, ...], ...]
    paper: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", file_name(self.name))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report under one heading."""

    title: str
    paragraphs: tuple[str, ...] = ()
    parts: tuple[Table | Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where numbers come from: a result, its record, and the command that makes them again. `anchor` is its link."""

    anchor: str
    title: str
    facts: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()  # (text, address)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report; `verdict` is its first line.

    `viewers` are token viewers by title, as HTML of our own making (`viewer_fragment`): the one thing not escaped.
    """

    title: str
    verdict: str
    sections: tuple[Section, ...]
    sources: tuple[Provenance, ...] = ()
    facts: tuple[tuple[str, str], ...] = field(default=())
    viewers: tuple[tuple[str, str], ...] = ()

    @property
    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Table)]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Figure)]


def file_name(name: str) -> str:
    """Turn `name` into that of a file in the report's own folders and nowhere else: benchmarks have any name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:100].strip("-") or "unnamed"


def ranked(cells: Sequence[Cell], *, second: bool = True) -> list[Cell]:
    """Mark the best cells, and the second best: by the *printed* value, so that what looks equal is equal.

    Cells without a value take no part.

    >>> [cell.mark for cell in ranked([Cell("1.0", 0.96), Cell("1.0", 1.04), Cell("0.5", 0.5), Cell("-")])]
    ['best', 'best', 'second', '']
    """
    printed = {float(cell.text) for cell in cells if cell.value is not None}
    places = dict(zip(sorted(printed, reverse=True), ("best", "second") if second else ("best",), strict=False))
    return [replace(cell, mark=places.get(float(cell.text), "")) if cell.value is not None else cell for cell in cells]


def marked_columns(rows: Sequence[Sequence[Cell]], *, second: bool = True, first: int = 0) -> list[list[Cell]]:
    """Return rows of cells with each column from `first` on `ranked`."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns = [column if i < first else ranked(column, second=second) for i, column in enumerate(columns)]
    return [list(row) for row in zip(*columns, strict=True)]

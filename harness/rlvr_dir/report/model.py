"""Define the parts of a report before they become HTML, Markdown, LaTeX or CSV: sections with pandas frames.

Text here is not escaped, and it may come from a model. Each renderer escapes all of it for its own format.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlvr_dir.analysis.result import Frame
from rlvr_dir.stats import Estimate

SPLIT = "\n"  # separates, in a column's name, the title that it shares with its neighbours from its own
KIND = "kind of row"  # a column that is not shown: "reference" or "aside" formats a row differently
MARKS = ("best", "second")


@dataclass(frozen=True, slots=True)
class Cell:
    """Represent one cell of a frame: `text` as printed, the number behind it, its interval, and the small text below.

    `digits` is the number of decimals printed. `sign` is a sign after the number (`*`). `link` leads to the number's
    source.
    """

    text: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    small: tuple[str, ...] = ()
    mark: Literal["", "best", "second"] = ""
    sign: str = ""
    link: str = ""
    digits: int = 1


def cell(
    value: Estimate | float | None,
    digits: int | None = None,
    *,
    unit: float = 100.0,
    suffix: str = "",
    plus: bool = False,
    ends: int | None = None,
    beside: Iterable[str] = (),
    sign: str = "",
    link: str = "",
) -> Cell:
    """Make a cell from a number or an estimate, printed times `unit`, with its interval below (`ends`: its decimals).

    Scores have one decimal by default. Shares and numbers of other units have two, and small ones three significant
    digits. A share that would be printed as zero, but is not zero, is `< 0.01 %`.
    """
    digits = digits if digits is not None else 1 if unit == 100 and not suffix else 2
    value = value if isinstance(value, Estimate) else Estimate(value)
    if value.value is None:
        return Cell("–", link=link)
    text = value.number(digits, unit=unit, sign=plus)
    if suffix == " %" and value.value > 0 and round(unit * value.value, digits) == 0:
        text = f"< {10.0**-digits:.{digits}f}"
    between = value.interval(digits if ends is None else ends, unit=unit, sign=plus)
    interval = None if value.low is None or value.high is None else (unit * value.low, unit * value.high)
    small = tuple(word for word in (between, *beside) if word)
    return Cell(text + suffix, unit * value.value, interval, small, sign=sign, link=link, digits=digits)


def as_cell(value: Any) -> Cell:
    """Return a frame's value as a cell: text unchanged, a number with six digits, a dash for none."""
    if isinstance(value, Cell):
        return value
    if value is None or value != value:
        return Cell("–")
    if isinstance(value, bool | str):
        return Cell(str(value))
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.6g}", float(value))


@dataclass(frozen=True, slots=True)
class Column:
    """Describe a column: its title, the title it shares with its neighbours, and whether it contains words."""

    title: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True, eq=False)
class Section:
    """Hold a table, or a figure of the same numbers (`svg`): its title, notes, frame, and the files' `name`.

    `paper` names the corresponding table or figure of the paper, and `alt` describes a figure in words.
    """

    name: str
    title: str
    frame: Frame
    notes: tuple[str, ...] = ()
    svg: str = ""
    alt: str = ""
    paper: str = ""
    sortable: bool = False
    broad: bool = False  # a figure with the full width of the first page

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", file_name(self.name))

    @property
    def cells(self) -> list[list[Cell]]:
        """Return the cells, row by row."""
        visible_columns = [i for i, name in enumerate(self.frame.columns) if name != KIND]
        return [[as_cell(row[i]) for i in visible_columns] for row in self.frame.itertuples(index=False, name=None)]

    @property
    def kinds(self) -> list[str]:
        """Return the kind of each row, if there are different ones."""
        return list(self.frame[KIND]) if KIND in self.frame else [""] * len(self.frame)

    @property
    def columns(self) -> list[Column]:
        """Return the columns. A column without a number contains words."""
        names = [str(name) for name in self.frame.columns if name != KIND]
        rows, columns = self.cells, []
        for i, name in enumerate(names):
            group, split, own = name.rpartition(SPLIT)
            texts = [row[i].text for row in rows if row[i].text not in ("", "–")]
            words = bool(texts) and all(row[i].value is None for row in rows)
            columns.append(Column(own if split else name, group, words))
        return columns


@dataclass(frozen=True, eq=False, slots=True)
class Chapter:
    """Hold a part of a report under one heading."""

    title: str
    paragraphs: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Describe where numbers come from: a result, its record, and the command that makes them again. `anchor` is its
    link."""

    anchor: str
    title: str
    details: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()  # (text, address)


@dataclass(frozen=True, slots=True)
class Tile:
    """Show a large number at the top of a page, such as a decoding's accuracy. `kind` is a colour: base, rl or
    mixed."""

    title: str
    number: str
    notes: tuple[str, ...] = ()
    kind: str = "mixed"


@dataclass(frozen=True, eq=False)
class Report:
    """Hold a whole report. `tiles` and `front` are its first page. The chapters follow.

    `opening` has the sentences below the headline. `reading` explains what each pattern means, in pairs. `viewers`
    are token viewers by title, as HTML made by `viewer_fragment`. They are the only text that is not escaped.
    """

    title: str
    headline: str
    opening: tuple[str, ...] = ()
    front: tuple[Section, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    sources: tuple[Source, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    viewers: tuple[tuple[str, str], ...] = ()
    tiles: tuple[Tile, ...] = ()
    tiles_caption: str = ""
    reading: tuple[tuple[str, str], ...] = ()

    @property
    def sections(self) -> list[Section]:
        """Return all sections, in order."""
        return [*self.front, *(section for chapter in self.chapters for section in chapter.sections)]

    @property
    def shared(self) -> tuple[tuple[str, str], ...]:
        """Return the details that all sources have in common."""
        first = self.sources[0].details if len(self.sources) > 1 else ()
        return tuple(detail for detail in first if all(detail in source.details for source in self.sources))


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Frame:
    """Make a frame of rows that keeps every value unchanged. `columns` are needed if there may be no row."""
    import pandas

    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    values = [[row.get(name) for name in names] for row in rows]
    return pandas.DataFrame(values, columns=pandas.Index(names, dtype=object), dtype=object)


def file_name(name: str) -> str:
    """Return a name as that of a file within the report's own folders, because benchmarks can have any name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:100].strip("-") or "unnamed"


def ranked(cells: Sequence[Cell], *, second: bool = True) -> list[Cell]:
    """Mark the best cells, and the second best, by the *printed* value, so that equal text is ranked equally.

    Cells without a value are ignored. If all are equal, none is the best.

    >>> [cell.mark for cell in ranked([Cell("1.0", 0.96), Cell("1.0", 1.04), Cell("0.5", 0.5), Cell("-")])]
    ['best', 'best', 'second', '']
    >>> [cell.mark for cell in ranked([Cell("0.0", 0.0), Cell("0.0", 0.0)])]
    ['', '']
    """
    printed = [None if cell.value is None else round(cell.value, cell.digits) for cell in cells]
    values = sorted({value for value in printed if value is not None}, reverse=True)
    if len(values) < 2:
        return list(cells)
    marks = dict(zip(values, MARKS if second else MARKS[:1], strict=False))
    return [
        cell if value is None else replace(cell, mark=marks.get(value, ""))
        for cell, value in zip(cells, printed, strict=True)
    ]

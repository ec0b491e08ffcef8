"""Render a report as Markdown: padded tables, figures as separate files, and the sources in their own file."""

import re

from rlvr_dir.markdown import markdown_table
from rlvr_dir.report.model import Cell, Report, Section, Source
from rlvr_dir.text import visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$&])")


def escape(text: str) -> str:
    """Escape text so that Markdown, and HTML in it, shows it unchanged."""
    return _SPECIAL.sub(r"\\\1", visible(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def cell(value: Cell) -> str:
    """Return a cell: `**55.42** [44.1, 66.7]`."""
    text = escape(value.text + value.sign)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(value.mark, text)
    return text + "".join(f" {escape(small)}" for small in value.small)


def table(section: Section) -> str:
    """Return title, table and notes. The title of a group of columns is repeated in each of its columns."""
    columns = section.columns
    head = [escape(f"{column.group} {column.title}".strip()) for column in columns]
    rows = [[cell(value) for value in row] for row in section.cells]
    drawn = markdown_table(head, rows, [column.words for column in columns])
    return "\n".join([f"**{escape(section.title)}**", "", drawn, *("\n" + escape(note) for note in section.notes)])


def as_text(section: Section) -> str:
    """Return title, table and notes for a terminal, which shows plain text."""
    head = [f"{column.group} {column.title}".strip() for column in section.columns]
    rows = [[" ".join((value.text + value.sign, *value.small)) for value in row] for row in section.cells]
    drawn = markdown_table(head, rows, [column.words for column in section.columns])
    return "\n".join([section.title, "", drawn, *(f"\n{note}" for note in section.notes)])


def part(section: Section) -> str:
    """Return a section: its table, or its figure with its caption."""
    if not section.svg:
        return table(section)
    caption = " ".join(escape(text) for text in (f"{section.title.rstrip('.')}.", *section.notes))
    data = f"[figures/{section.name}.csv](figures/{section.name}.csv)"
    return f"![{escape(section.alt)}](figures/{section.name}.svg)\n\n{caption} Data: {data}"


def render(report: Report) -> str:
    """Return the whole report. It refers to figures and tables as separate files."""
    parts = [
        f"# {escape(report.title)}",
        escape(report.headline),
        *map(escape, report.opening),
        *map(part, report.front),
    ]
    for chapter in report.chapters:
        parts += [f"## {escape(chapter.title)}", *map(escape, chapter.paragraphs), *map(part, chapter.sections)]
    if report.sources:
        parts.append("Where each number comes from is in [sources.md](sources.md).")
    parts.append(_details(report.details))
    return "\n\n".join(part for part in parts if part) + "\n"


def sources(report: Report) -> str:
    """Return where the numbers come from: what all results have in common, then each result's own."""
    shared = report.shared
    lines = ["# Where the numbers come from", *([f"All: {_details(shared)}"] if shared else [])]
    return "\n\n".join([*lines, "\n".join(_source(source, shared) for source in report.sources)]) + "\n"


def _source(source: Source, shared: tuple[tuple[str, str], ...]) -> str:
    own = tuple(detail for detail in source.details if detail not in shared)
    return f"- **{escape(source.title)}**: {_details(own)}"


def _details(details: tuple[tuple[str, str], ...]) -> str:
    return "; ".join(f"{escape(name)}: {escape(value)}" for name, value in details)

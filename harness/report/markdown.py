"""A report as Markdown: tables padded to be read as they are, figures by their files."""

import re

from harness.markdown import markdown_table
from harness.report.model import Cell, Report, Table
from harness.text import visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$&])")


def escape(text: str) -> str:
    """Write text so that Markdown, and the HTML that it may hold, takes it as it is."""
    return _SPECIAL.sub(r"\\\1", visible(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def cell(one: Cell) -> str:
    """Write a cell: `**55.42** [44.1, 66.7]`."""
    text = escape(one.text + one.sign)
    if one.mark == "best":
        text = f"**{text}**"
    elif one.mark == "second":
        text = f"<u>{text}</u>"
    return text + "".join(f" {escape(small)}" for small in one.small)


def table(one: Table) -> str:
    """Write caption, table and notes. A group of columns is named in each of its titles."""
    head = [escape(f"{column.group} {column.title}".strip()) for column in one.columns]
    rows = [[cell(each) for each in row.cells] for row in one.rows]
    drawn = markdown_table(head, rows, [column.words for column in one.columns])
    return "\n".join([f"**{escape(one.caption)}**", "", drawn, *("\n" + escape(note) for note in one.notes)])


def render(report: Report) -> str:
    """Write the whole report; figures and tables are named by the files beside it."""
    parts = [f"# {escape(report.title)}", escape(report.verdict)]
    for section in report.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [escape(paragraph) for paragraph in section.paragraphs]
        for part in section.parts:
            if isinstance(part, Table):
                parts.append(table(part))
            else:
                parts.append(f"![{escape(part.alt)}](figures/{part.name}.svg)")
                parts.append(f"{escape(part.caption)} Data: [figures/{part.name}.csv](figures/{part.name}.csv)")
    if report.sources:
        parts.append("## Where the numbers come from")
        for source in report.sources:
            facts = "; ".join(f"{escape(name)}: {escape(value)}" for name, value in source.facts)
            parts.append(f"- **{escape(source.title)}**: {facts}")
    parts += ["; ".join(f"{escape(name)}: {escape(value)}" for name, value in report.facts)]
    return "\n\n".join(part for part in parts if part) + "\n"

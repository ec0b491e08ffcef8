"""Write a report as files: `report.html`, `report.md`, each table as LaTeX and CSV, each figure as SVG and CSV."""

from pathlib import Path

from rlvr_dir.files import make_folder, write_file
from rlvr_dir.report import html, latex, markdown, spreadsheet
from rlvr_dir.report.model import Report, Section

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
ALONE = '<svg style="color:#1b2a3a;background:#ffffff" '  # without the page there is no text colour to use


def write(report: Report, out: Path) -> Path:
    """Write everything under `out`, the page last; return its path.

    Raises:
        UserError: The files cannot be written.
    """
    for folder in (out / "tables", out / "figures"):
        make_folder(folder)
    for section in report.sections:
        where = out / ("figures" if section.svg else "tables") / section.name
        write_file(where.with_suffix(".csv"), spreadsheet.render(section))
        drawn, ending = (figure_file(section), ".svg") if section.svg else (latex.table(section), ".tex")
        write_file(where.with_suffix(ending), drawn)
    write_file(out / "report.md", markdown.render(report))
    if report.sources:
        write_file(out / "sources.md", markdown.sources(report))
    write_file(out / "report.html", html.render(report))
    return out / "report.html"


def figure_file(figure: Section) -> str:
    """Return a figure as the text of a separate SVG file."""
    return HEAD + figure.svg.replace("<svg ", ALONE, 1) + "\n"

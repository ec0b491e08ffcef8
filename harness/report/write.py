"""A report as files: `report.html`, `report.md`, each table as LaTeX and CSV, each figure as SVG and CSV."""

from pathlib import Path

from harness.files import make_folder, write_file
from harness.report import html, latex, markdown, sheet
from harness.report.model import Figure, Report

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
ALONE = '<svg style="color:#1b2a3a;background:#ffffff" '  # without the page there is no ink to take


def write(report: Report, out: Path) -> Path:
    """Write everything under `out`, the page last; return its path.

    Raises:
        UserError: the file system refused.
    """
    for folder in (out / "tables", out / "figures"):
        make_folder(folder)
    for table in report.tables:
        write_file(out / "tables" / f"{table.name}.tex", latex.table(table))
        write_file(out / "tables" / f"{table.name}.csv", sheet.table(table))
    for figure in report.figures:
        write_file(out / "figures" / f"{figure.name}.svg", figure_file(figure))
        write_file(out / "figures" / f"{figure.name}.csv", sheet.figure(figure))
    write_file(out / "report.md", markdown.render(report))
    write_file(out / "report.html", html.render(report))
    return out / "report.html"


def figure_file(figure: Figure) -> str:
    """Return a figure as the text of an SVG file of its own."""
    return HEAD + figure.svg.replace("<svg ", ALONE, 1) + "\n"

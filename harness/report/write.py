"""A report as files: `report.html`, `report.md`, each table as LaTeX and CSV, each figure as SVG and CSV."""

from pathlib import Path

from harness.report import html, latex, markdown, sheet
from harness.report.model import Figure, Report

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
ALONE = '<svg style="color:#1b2a3a;background:#ffffff" '  # without the page there is no ink to take


def write(report: Report, out: Path) -> Path:
    """Write everything under `out`; return the path of the page."""
    for folder in (out, out / "tables", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
    _write(out / "report.html", html.render(report))
    _write(out / "report.md", markdown.render(report))
    for table in report.tables:
        _write(out / "tables" / f"{table.name}.tex", latex.table(table))
        _write(out / "tables" / f"{table.name}.csv", sheet.table(table))
    for figure in report.figures:
        _write(out / "figures" / f"{figure.name}.svg", figure_file(figure))
        _write(out / "figures" / f"{figure.name}.csv", sheet.figure(figure))
    return out / "report.html"


def figure_file(figure: Figure) -> str:
    """Return a figure as the text of an SVG file of its own."""
    return HEAD + figure.svg.replace("<svg ", ALONE, 1) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")

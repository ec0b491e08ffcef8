"""How tests of printed numbers read a section: as its CSV, which a user reads."""

import csv
import io

from rlvr_dir.report.spreadsheet import render


def rows_of(section):
    """The rows of a section's CSV, by column."""
    return list(csv.DictReader(io.StringIO(render(section))))


def number(row, name):
    """A number of a row; the apostrophe keeps spreadsheets from taking a text for a formula."""
    return float(row[name].lstrip("'"))


def ends(row, name):
    """Low, value and high of a cell."""
    return [number(row, f"{name}{end}") for end in (": low", "", ": high")]


def printed(section, title):
    """The texts of a column, as a page prints them."""
    at = [column.title for column in section.columns].index(title)
    return [row[at].text for row in section.cells]

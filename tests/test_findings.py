"""What reports/findings.md quotes of the paper stands there, and its numbers and the README's stand in their tables.

A number is a link to its table, with the row in the link's title: `[+4.8 [+3.0, +6.7]](FILE.csv "CELL; CELL: COLUMN")`.
"""

import csv
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER = Path(os.environ.get("RLVR_DIR_PAPER") or ROOT.parent / "shared" / "paper" / "paper.tex")
QUOTE = re.compile(r'"([^"]+)"\s\(l\.\s(\d+)\)')
SIGNS = {
    r"$\Delta\log p$": "Δ log p", r"\Delta \log p": "Δ log p", r"\Delta\log p": "Δ log p", r"\gamma": "γ",
    r"\eg": "e.g.", r"\exists": "∃", r"\ge": "≥", "‑": "-", "’": "'", "~": " ", r"\%": "%",
}  # fmt: skip


def plain(text):
    """Text without LaTeX's commands and without white space."""
    for sign, words in SIGNS.items():
        text = text.replace(sign, words)
    text = re.sub(r"\\(?:ref|cite[pt]?|label)\{[^}]*\}", "", text)
    text = re.sub(r"\\[A-Za-z]+\*?|[{}$\\]", "", text)
    return "".join(text.split())


def quotes(page):
    """(what is quoted, the line that is named)"""
    return [(words, int(line)) for words, line in QUOTE.findall(page)]


def test_every_quotation_is_the_papers():
    if not PAPER.is_file():
        pytest.skip("needs the paper's source, paper.tex, beside the checkout or as RLVR_DIR_PAPER")
    lines = PAPER.read_text(encoding="utf-8").splitlines()
    found = quotes((ROOT / "reports/findings.md").read_text(encoding="utf-8"))
    assert len(found) >= 12
    for words, line in found:
        assert plain(words) in plain(" ".join(lines[line - 1 : line + 1])), f"l. {line}: {words}"


def test_every_claim_that_is_judged_is_quoted():
    page = (ROOT / "reports/findings.md").read_text(encoding="utf-8")
    table = page[page.index("| the paper |") :].split("\n\n")[0].splitlines()[2:]
    assert len(table) >= 10
    for row in table:
        assert QUOTE.search(re.split(r"(?<!\\)\|", row)[1]), row


PAGES = {"reports/findings.md": 30, "README.md": 4}  # with the least number of links that each has
LINK = re.compile(r'\[([^\[\]]+(?:\[[^\[\]]+\])?)\]\(([\w./-]+\.csv)\s"([^"]+)"\)')
INTERVAL = re.compile(r"[+−]?\d[\d.]*\s\[[+−]?\d[\d.]*,\s[+−]?\d[\d.]*\]")
DEFAULT = "Difference"


def is_cell(cell, value):
    """Return whether a table's value is the cell of a link's title: the same text, or `4.12 %` where it is 4.1249."""
    number, percent, _ = cell.partition(" %")
    try:
        return cell == value or bool(percent and as_written(value, number) == number)
    except ValueError:
        return False


def row_of(table, cells):
    """The one row of a table that has all of these cells."""
    rows = [row for row in table if all(any(is_cell(cell, value) for value in row.values()) for cell in cells)]
    assert len(rows) == 1, f"{len(rows)} rows have {cells}"
    return rows[0]


def as_written(value, like):
    """A number of a table with as many digits and the sign that a text has."""
    digits = len(like.partition(".")[2])
    return f"{float(value):{'+' if like[0] in '+−' else ''}.{digits}f}".replace("-", "−")


def wrong_numbers(page, folder, read):
    """A sentence for each number of a page that is not its table's."""
    wrong = []
    for text, file, title in LINK.findall(page):
        cells, _, column = " ".join(title.replace("\\|", "|").split()).partition(": ")
        try:
            row = row_of(read(folder / file), cells.split("; "))
            values = [
                row[name] for name in (column or DEFAULT, *(f"{column or DEFAULT}: {end}" for end in ("low", "high")))
            ]
        except (AssertionError, KeyError) as error:
            wrong.append(f"{text} ({title}): {error}")
            continue
        numbers = re.findall(r"[+−]?\d[\d.]*", text)
        shown = [as_written(value, number) for value, number in zip(values, numbers, strict=False)]
        if shown != numbers:
            wrong.append(f"{' '.join(text.split())} is {shown} in {file} ({title})")
    return wrong


def read_csv(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", PAGES)
def test_every_number_is_its_tables(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert wrong_numbers(page, (ROOT / name).parent, read_csv) == []
    assert len(LINK.findall(page)) >= PAGES[name]
    assert INTERVAL.findall(LINK.sub("", page)) == [], "an interval that no table is named for"


def test_a_table_that_changes_names_the_sentence():
    page = (ROOT / "reports/findings.md").read_text(encoding="utf-8")

    def altered(path):
        rows = read_csv(path)
        for row in rows if path.name == "differences.csv" else ():
            if (row["Decoding"], row["minus"]) == ("reject τ-0.2", "veto τ-0.2"):
                row["Difference"] = str(float(row["Difference"]) + 0.2)
        return rows

    [said] = wrong_numbers(page, ROOT / "reports", altered)
    assert said.startswith("−4.6 [−5.8, −3.4] is ['−4.4', '−5.8', '−3.4'] in tiny/decision/tables/differences.csv")


def test_the_findings_are_read_in_minutes():
    page = (ROOT / "reports/findings.md").read_text(encoding="utf-8")
    assert len(re.sub(r"\]\([^)]*\)", "]", page).split()) <= 2000  # places and titles of links are not read

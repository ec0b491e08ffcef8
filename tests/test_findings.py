"""Whatever reports/findings.md quotes of the paper stands in the paper, word for word, at the line that it names."""

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

"""The documents: lines that fit a screen, and links that lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reports/*.md")]
)
WIDTH = 120
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(text):
    """Lines that can be broken, with their numbers: no table, no code, no picture, more than one word."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        start = line.lstrip()
        fenced ^= start.startswith("```")
        unbroken = start.startswith(("|", "![", "#", "<")) or " " not in line.strip(" -*")
        if not (fenced or unbroken or line.startswith("    ")):
            yield number, line


def anchors(path):
    """The names by which a page's headings can be linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_lines_wrap(name):
    long = [number for number, line in prose((ROOT / name).read_text()) if len(line) > WIDTH]
    assert long == [], f"{name}: lines of more than {WIDTH} characters"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    for target, anchor in LINK.findall((ROOT / name).read_text()):
        page = (ROOT / name).parent / target if target else ROOT / name
        assert page.exists(), f"{name} links to {target}"
        assert not anchor or page.suffix != ".md" or anchor in anchors(page), f"{name} links to {target}#{anchor}"

"""The page as a person meets it: a real browser, wide and narrow, light and dark, and no network."""

import re
from dataclasses import replace

import pytest

from rlvr_dir.report.html import content_hash
from rlvr_dir.report.viewer.page import viewer_fragment
from rlvr_dir.report.write import write
from tests.chromium import settle
from tests.report.made import report

# What the page says of itself.
PROBE = """() => {
  const outside = [...document.querySelectorAll("body *")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1) && !one.closest(".wide, .skip") &&
      (one.tagName === "text" || !one.parentElement.closest("svg"));
  }).map(one => one.tagName + "#" + one.id + "." + one.className);
  const table = document.querySelector("table.sortable");
  return {
    width: innerWidth, page: document.documentElement.scrollWidth, outside,
    sorted: table ? [...table.tBodies[0].rows].map(row => row.cells[0].innerText) : [],
    theme: document.documentElement.dataset.theme, text: document.querySelector("main").innerText,
    letters: [...document.querySelectorAll("figure svg")].flatMap(one => [...one.querySelectorAll("text")].map(
      text => parseFloat(getComputedStyle(text).fontSize) * one.getScreenCTM().a)),
    unnamed: [...document.querySelectorAll("[role=img], figure, .wide")].filter(one => !one.ariaLabel).length,
  };
}"""


@pytest.fixture
def browse(visitor):
    """Opens a report, sorts its first table by its first column, changes the theme; what the page says of itself."""

    def look(path, width):
        page = visitor.open(path.as_uri(), width)
        heading = page.locator("table.sortable th button").first
        if heading.count() and heading.is_visible():  # on a phone a row is a card, without the heads of columns
            heading.click()
            heading.click()
        page.click("#theme")
        settle(page)
        return page.evaluate(PROBE), visitor.complaints

    return look


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(report(), tmp_path_factory.mktemp("report"))


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows_nothing_fails(browse, page, width):
    found, complaints = browse(page, width)
    assert complaints == []
    assert found["width"] == width
    assert found["page"] <= width
    assert found["outside"] == []
    assert found["unnamed"] == 0
    assert min(found["letters"]) >= 11  # pixels of the screen
    assert not re.search(r"\bnan\b|\binf\b|undefined|None\b", found["text"], flags=re.IGNORECASE)
    assert found["sorted"] == sorted(found["sorted"])
    assert found["theme"] in ("light", "dark")


def test_the_page_is_alone(page):
    text = page.read_text()
    assert not re.search(r"""(src|href)=["'](https?:)?//""", text)
    assert "@import" not in text
    assert text.count("<!doctype html>") == 1


def test_only_our_scripts_may_run(tmp_path):
    """Any script could run in a report: its policy named none by what it is, as the viewer's does."""
    viewers = tuple((name, viewer_fragment({"records": []}, name, assets=not i)) for i, name in enumerate("ab"))
    text = write(replace(report(), viewers=viewers), tmp_path).read_text()
    [policy] = re.findall("script-src ([^;]*);", text)
    scripts = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    assert sorted(policy.split()) == sorted(map(content_hash, scripts))
    assert len(scripts) == 2


def test_the_same_results_give_the_same_bytes(page, tmp_path):
    again = write(report.__wrapped__(), tmp_path)
    for path in sorted(page.parent.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (again.parent / path.relative_to(page.parent)).read_bytes(), path

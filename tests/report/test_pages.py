"""The page as a person meets it: a real browser, wide and narrow, light and dark, and no network."""

import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from harness.report.build import build
from harness.report.tokens import token_section
from harness.report.write import write
from tests.report.made import report, tokens
from tests.report.test_render import HOSTILE, hostile_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
PROBE = """<script>
addEventListener("load", () => {
  const outside = [...document.querySelectorAll("body *")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1) && !one.closest(".wide, .skip, svg");
  }).map(one => one.tagName + "#" + one.id + "." + one.className);
  const head = document.querySelector("table.sortable th button"), table = head?.closest("table");
  const column = () => table ? [...table.tBodies[0].rows].map(row => row.cells[0].innerText) : [];
  head?.click(); head?.click();
  document.getElementById("theme").click();
  parent.postMessage(JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, outside, sorted: column(),
    theme: document.documentElement.dataset.theme, text: document.querySelector("main").innerText,
    unnamed: [...document.querySelectorAll("[role=img], figure, .wide")].filter(one => !one.ariaLabel).length,
  }), "*");
});
</script>"""
# A frame is as narrow as it is told to be; a window of the browser is not.
FRAME = """<!doctype html><iframe src="probed.html" width="{width}" height="900" style="border:0"></iframe>
<pre id="probe"></pre><script>
addEventListener("message", one => { document.getElementById("probe").textContent = one.data; });
</script>"""


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a report in the browser; what the page says of itself, and what the browser complained of."""
    folder = tmp_path_factory.mktemp("browser")

    def look(page, width):
        probed = folder / "probed.html"
        probed.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
        (folder / "frame.html").write_text(FRAME.replace("{width}", str(width)))
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--enable-logging=stderr",
            "--virtual-time-budget=20000", "--dump-dom", f"file://{folder / 'frame.html'}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, flags=re.DOTALL)
        assert found, done.stderr[-2000:]
        text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return json.loads(text), [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return look


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(report(), tmp_path_factory.mktemp("report"))


@needs_chromium
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overflows_nothing_fails(browse, page, width):
    found, complaints = browse(page, width)
    assert complaints == []
    assert found["width"] == width
    assert found["page"] <= width
    assert found["outside"] == []
    assert found["unnamed"] == 0
    assert not re.search(r"\bnan\b|\binf\b|undefined|None\b", found["text"], flags=re.IGNORECASE)
    assert found["sorted"] == sorted(found["sorted"])
    assert found["theme"] in ("light", "dark")


@needs_chromium
def test_hostile_text_stays_text(browse, tmp_path):
    found, complaints = browse(write(hostile_report(), tmp_path), 400)
    assert complaints == []
    assert found["page"] <= 400
    assert "alert(1)" in found["text"]


def test_hostile_tokens_stay_tokens(tmp_path):
    """Through matplotlib: no mathematics of it, no broken XML, and nothing that reorders the page."""
    page = write(build([], more=[token_section(tokens(HOSTILE))]), tmp_path)
    for path in sorted(tmp_path.glob("figures/*.svg")):
        text = path.read_text()
        assert ElementTree.fromstring(text.encode()).tag.endswith("svg")
        assert not re.search("<script|[\u202a-\u202e\u2066-\u2069\x00-\x08]", text)
    assert "&lt;script&gt;" in (tmp_path / "figures" / "likelier.svg").read_text()
    assert len(page.read_text()) < 1_000_000


@needs_chromium
@pytest.mark.parametrize("width", [1280, 400])
def test_token_statistics_fit_the_page(browse, tmp_path, width):
    found, complaints = browse(write(build([], more=[token_section(tokens(HOSTILE))]), tmp_path), width)
    assert complaints == []
    assert found["page"] <= width
    assert found["outside"] == []
    assert found["unnamed"] == 0


def test_the_page_is_alone(page):
    text = page.read_text()
    assert not re.search(r"""(src|href)=["'](https?:)?//""", text)
    assert "@import" not in text
    assert text.count("<!doctype html>") == 1


def test_the_same_results_give_the_same_bytes(page, tmp_path):
    again = write(report(), tmp_path)
    for path in sorted(page.parent.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (again.parent / path.relative_to(page.parent)).read_bytes(), path


def test_the_drawings_are_well_formed(page):
    drawings = sorted(page.parent.glob("figures/*.svg"))
    assert drawings
    for path in drawings:
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert path.with_suffix(".csv").is_file()

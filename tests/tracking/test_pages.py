"""`rlvr-dir ui` as a person meets it: the real MLflow pages, the links it prints, opened in a real browser."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from rlvr_dir.tracking import comparison_link, log_result
from tests.tracking.made import GRID, result

pytestmark = pytest.mark.whole(reason="MLflow's server and a browser")

UI = [sys.executable, "-m", "rlvr_dir.cli", "ui"]


@pytest.fixture(scope="module")
def pages(template, tmp_path_factory):
    """A store of five runs, its address, and what `rlvr-dir ui` printed."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(template, folder)
    for decoding in GRID:
        assert log_result(result(decoding), folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with open(folder / "ui.log", "w") as log:
        process = subprocess.Popen(
            [*UI, "--store", str(folder), "--port", str(port)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
        )
        try:
            while "Ready: " not in (folder / "ui.log").read_text():
                assert process.poll() is None, "the pages did not start"
                time.sleep(0.1)
            yield folder, address, (folder / "ui.log").read_text()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_links_are_printed_and_the_pages_start(pages):
    folder, address, printed = pages
    links = comparison_link(folder, "rlvr-dir-aime24", int(address.rpartition(":")[2]))
    assert "rlvr-dir-aime24: aime24, 5 runs" in printed
    for link in links:
        assert link.startswith(address)
        assert link in printed


def test_the_links_open_on_a_readable_comparison(pages, visitor):
    folder, address, _ = pages
    links = comparison_link(folder, "rlvr-dir-aime24", int(address.rpartition(":")[2]))

    table = visitor.open(links.table, 1720, 1100)
    table.wait_for_selector("[role=columnheader][col-id^='metrics.']")
    columns = re.compile(r"(?:metrics|params)\.`(\w+)`")
    headers = {
        int(one.get_attribute("aria-colindex")): columns.match(one.get_attribute("col-id"))
        for one in table.locator("[role=columnheader][aria-colindex][col-id]").all()
    }
    order = [found.group(1) for _, found in sorted(headers.items()) if found]
    assert order == ["avg_at_4", "avg_at_4_se", "pass_at_2", "changed_ratio", "replacement_ratio", "tau", "gamma"]
    for name in ("base", "rl", "replace τ-0.3", "extrapolate τ-0.3 γ0.05", "extrapolate τ-0.1 γ0.1"):
        table.get_by_text(name, exact=True).first.wait_for()

    charts = visitor.open(links.charts, 1720, 1100)
    charts.get_by_text("changed_ratio vs. avg_at_4").first.wait_for()
    charts.locator(".scatterlayer .trace").first.wait_for(state="attached")
    points = charts.locator(".scatterlayer .trace path.point")
    assert points.count() == 5  # base and RL among them

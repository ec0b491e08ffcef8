"""How long the viewer takes to answer: `python -m tests.report.measure_viewer [TOKENS]`; a measurement, not a test.

From an event's time stamp to just after the frame that shows its effect, in milliseconds, with four responses; and the
CPU time of the page's main thread for each, which the load of the machine does not change.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from harness.report.viewer import viewer_data, viewer_html
from tests.chromium import Visitor, open_browser, settle
from tests.report.viewer_pages import PLAIN, answers

WATCH = """(() => {
  window.spent = [];
  for (const kind of ["pointerover", "keydown", "click", "change", "input", "scroll"]) {
    addEventListener(kind, event => requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => window.spent.push([kind, performance.now() - event.timeStamp]);
      channel.port2.postMessage(0);
    }), true);
  }
})()"""
SET = """(c => {{ c.value = {value!r}; c.dispatchEvent(new Event("{event}", {{bubbles: true}})); }})
(document.querySelector("[data-set={name}]"))"""


def measure(tokens: int) -> None:
    """Prints one line an interaction."""
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        path = Path(folder) / "view.html"
        path.write_text(viewer_html(viewer_data({"made": answers(tokens)}, PLAIN)))
        visitor = Visitor(browser)
        page = visitor.open(path.as_uri())
        protocol = page.context.new_cdp_session(page)
        timing = page.evaluate(
            "(t => [t.domInteractive, t.loadEventEnd])(performance.getEntriesByType('navigation')[0])"
        )
        print(f"{tokens:,} tokens x 4: {path.stat().st_size / 1e6:.1f} MB, loaded after {timing[1]:.0f} ms")
        page.evaluate(WATCH)
        protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            metrics = protocol.send("Performance.getMetrics")["metrics"]
            return 1000 * next(one["value"] for one in metrics if one["name"] == "TaskDuration")

        before = busy()

        def report(name: str, kind: str) -> None:
            nonlocal before
            settle(page)
            spent = [ms for one, ms in page.evaluate("window.spent.splice(0)") if one == kind]
            own, before = (busy() - before) / len(spent), busy()
            print(
                f"{name:28s} median {np.median(spent):5.0f}   worst {max(spent):5.0f}   "
                f"CPU of the page's thread {own:5.1f}   ({len(spent)} times)"
            )

        for i in range(20):
            page.hover(f".tv-answer:nth-child({1 + i % 4}) .t[data-i='{20 + i}']", force=True)
        report("point at a token", "pointerover")
        page.evaluate("document.querySelector('.tv-answer:nth-child(3) .t').focus()")
        for key in ["ArrowRight"] * 10 + ["ArrowDown"] * 10 + ["End", "Home"] * 3:
            page.keyboard.press(key)
        report("arrow keys, Home, End", "keydown")
        for key in ["n"] * 15 + ["p"] * 5:
            page.keyboard.press(key)
        report("next, previous replaced", "keydown")
        page.evaluate("document.querySelector('[data-set=kind]').value = 'changed'")
        for _ in range(10):
            page.click("[data-do='next']", force=True)
        report("the button Next", "click")
        for name in ("entropy_base", "kl", "logp_rl", "rank_base", "delta_logp") * 2:
            page.evaluate(SET.format(name="metric", value=name, event="change"))
            settle(page)
        report("another metric", "change")
        for i in range(20):
            page.evaluate(SET.format(name="slider", value=-0.05 * i, event="input"))
            settle(page)
        report("the slider of tau", "input")
        for i in range(20):
            page.evaluate(
                f"document.querySelector('.tv-answer:nth-child({1 + i % 4}) .tv-scroll').scrollTop = {2500 * i}"
            )
            settle(page)
        report("scroll to elsewhere", "scroll")
        page.set_viewport_size({"width": 1000, "height": 900})
        print(f"elements in the page: {page.locator('*').count():,}; errors: {visitor.complaints}")


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)

"""The token viewer inside a report: of the records behind its results, inert whatever they hold, or absent."""

import json
import re

import numpy as np

from harness.records import RecordConfig, RecordStore, Row
from harness.report import html
from harness.report.build import build
from harness.report.shown import token_viewers
from harness.spec import Decoding, Pair, Sampling
from tests.report.made import result

HOSTILE = "</script><script>alert(1)</script>\u202e<img src=x onerror=alert(1)>"


def stored(folder, decoding, problems=4):
    """A record with a hostile text for each problem, and a result that names it; problem 2's answers differ."""
    config = RecordConfig.of(Pair(base="b", rl="r"), decoding, Sampling(samples=1), {"backend": "made"})
    names = [f"aime24/p{i}" for i in range(problems)]
    with RecordStore(folder).open(config, "aime24", names, 1) as record:
        for name in names:
            none = np.zeros(3, bool)
            ids, delta = (1, 2, 3), np.array([0.0, -1.0, 1.0], np.float32)
            record.add(Row.make(name, 0, HOSTILE, "stop", none, none, ids, (1,), "d", delta))
        record.finish()
    place = {"records": str(folder), "record": f"{config.hash()}/aime24"}
    one = result(decoding, samples=1, problems=problems, **place)
    right = np.zeros((problems, 1), bool)
    right[2] = decoding.mode == "rl"
    return one.replace(values={"correct": right})


def test_a_report_shows_the_telling_problems_of_its_records(tmp_path):
    results = [stored(tmp_path, Decoding(mode=mode)) for mode in ("base", "rl")]
    results += [stored(tmp_path, Decoding(mode="replace", tau=tau)) for tau in (-0.1, -0.2)]
    entries = results
    viewers = token_viewers(entries, 2, lambda snapshots: None)
    [(title, fragment)] = viewers
    assert title.startswith("aime24, ")
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', fragment, re.DOTALL)[1])
    assert [problem["id"] for problem in data["problems"]] == ["aime24/p2", "aime24/p0"]
    assert [answer["label"] for answer in data["problems"][0]["answers"]] == ["base", "rl", "replace τ-0.1"]
    page = html.render(build(entries, viewers=viewers))
    assert "Tokens: aime24" in page
    assert "alert(1)</script>" not in page
    assert "<img src=x" not in page
    assert page == html.render(build(entries, viewers=token_viewers(entries, 2, lambda snapshots: None)))

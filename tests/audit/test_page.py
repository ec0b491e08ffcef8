"""The page of an audit, of frames whose numbers are known: as a person meets it, wide and narrow, and its files."""

import csv
import html
import re
from functools import cache

import numpy as np
import pandas
import pytest

from rlvr_dir.analysis.result import Analysis
from rlvr_dir.audit.claim import GROUPS
from rlvr_dir.audit.gather import Evidence
from rlvr_dir.audit.interventions import SHARES, WAYS, name_of
from rlvr_dir.audit.log import metrics_of
from rlvr_dir.audit.page import SUMMARY, _number, lines, report, summary
from rlvr_dir.audit.run import THIS, Audit, claims, estimate_of, table_rows
from rlvr_dir.config import Pair
from rlvr_dir.report.html import render
from rlvr_dir.report.write import write
from rlvr_dir.stats import Estimate
from tests.audit.made import responses, ten_tokens
from tests.audit.test_interventions import right
from tests.chromium import settle
from tests.facts import states

STRANGE = "<script>alert(1)</script>=SUM(A1)"


def frames():
    """What claims read of a pair of which everything is known."""
    random = np.random.default_rng(0)
    names = [
        f"model.layers.{layer}.{part}.weight" for layer in range(4) for part in ("self_attn.q_proj", "mlp.up_proj")
    ]
    weights = pandas.DataFrame(
        {"tensor": names, "layer": np.repeat(np.arange(4.0), 2), "numbers": 100.0, "equal": 10.0}
    )
    weights = weights.assign(kind=["attention", "MLP"] * 4, size=1.0, change=random.uniform(0.001, 0.01, 8))
    weights = weights.assign(
        equal_bf16=40.0,
        smallest=5.0,
        within_atol=20.0,
        within_rtol=30.0,
        spectrum=True,
        matrix=True,
        full_rank=10,
        rank=9,
    )
    weights = weights.assign(effective_rank=2.5, first=weights.change / 3, eight=weights.change, hundredth=0.0)
    points = [responses("base", right(0.2), way="base", share=0.0), responses("rl", right(0.8), way="rl", share=1.0)]
    for number, way in enumerate(map(name_of, WAYS)):
        for share in SHARES:
            counts = {"tokens": 1000, "replaced": 1000 * share, "changed": (400 + 20 * number) * share}
            points.append(responses("x", right(min(1.0, 0.2 + 8 * share)), way=way, share=share, **counts))
    scores = pandas.concat(points[:2], ignore_index=True)
    return {"traces": ten_tokens()[0], "weights": weights, "points": pandas.concat(points), "scores": scores}


@cache
def audit(groups=tuple(GROUPS)):
    """An audit of that pair, beside one of which only weights could be read, whose name is a trap."""
    own = frames()
    known = {THIS: own, STRANGE: {"weights": own["weights"]}}
    missing = {group: f"{STRANGE}: other tokenizers" for group in groups if group != "weights"}
    asked = tuple(claim for claim in claims() if claim.group in groups)
    context = {
        "tasks": ["mine"],
        "families": {},
        "questions": "40 problems of mine",
        "samples": 10,
        "sampling": "T = 1, top-p 0.7",
        "same": [],
    }
    context |= {"date": "2026-11-27", "minutes": 1.5, "missing": {THIS: {}, STRANGE: missing}}
    context["pairs"] = {name: [Pair(base="models/base", rl="models/rl").model_dump(mode="json")] for name in known}
    numbers = {
        name: [estimate_of(claim, Evidence(Pair(base="a", rl="b"), of)) for claim in asked]
        for name, of in known.items()
    }
    return Audit(asked, Analysis(kind="audit", context=context, tables={"rows": table_rows(asked, numbers, 10)}), own)


@pytest.mark.parametrize(
    ("families", "words"),
    [({}, "problems"), ({"mine": 12}, "the 12 families of mine and the problems of other"),
     ({"mine": 12, "other": 30}, "the 12 families of mine and the 30 families of other")],
)  # fmt: skip
def test_the_page_says_over_what_its_intervals_are(families, words):
    found = audit()
    context = {**found.analysis.context, "tasks": ["mine", "other"], "families": families}
    said = lines(Audit(found.claims, found.analysis.replace(context=context), found.frames))
    states(said[-1], f" over {words}. ")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(report(audit()), tmp_path_factory.mktemp("audit"))


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_overflows_in_light_and_dark(visitor, page, width):
    opened = visitor.open(page.as_uri(), width)
    for theme in ("light", "dark"):
        opened.click("#theme")
        settle(opened)
        found = opened.evaluate(
            """() => ({page: document.documentElement.scrollWidth, figures: document.querySelectorAll("figure").length,
            theme: document.documentElement.dataset.theme, text: document.querySelector("main").innerText,
            ink: getComputedStyle(document.body).color,
            sentences: [...document.querySelectorAll("td.long:first-child")].map(one => one.clientWidth),
            letters: [...document.querySelectorAll("figure svg")].flatMap(
              one => [...one.querySelectorAll("text")].map(
                text => parseFloat(getComputedStyle(text).fontSize) * one.getScreenCTM().a))})"""
        )
        assert found["page"] <= width, theme
        assert found["figures"] == 4
        assert min(found["letters"]) >= 11
        assert min(found["sentences"]) >= 150  # or a sentence is a word a line
        assert not re.search(r"\b(nan|inf|NaN|None|undefined)\b", found["text"])
    assert visitor.complaints == []


def test_first_what_was_compared_then_four_pictures_then_the_groups(page):
    text = page.read_text()
    places = [text.index(words) for words in (
        'class="tile base"', "What RL changed in", "40 problems of mine, 10 samples each", 'id="f-accuracy"',
        'id="f-pass"', 'id="f-concentration"', 'id="f-layers"', 'id="t-outcomes"', 'id="t-interventions"',
        'id="t-tokens"', 'id="t-weights"',
    )]  # fmt: skip
    assert places == sorted(places)


def test_the_first_sentences_are_numbers_of_the_table(page):
    """Each number of the summary is the one of its row, with the interval; what is not known is not said."""
    found = audit().estimates
    said = summary(audit())
    assert len(said) == len(SUMMARY)
    for sentence, made in zip(SUMMARY, said, strict=True):
        for name in re.findall(r"{([^}]+)}", sentence):
            claim = next(claim for claim in audit().claims if claim.name == name)
            number = found[name, THIS].text(claim.digits, unit=claim.unit, sign=claim.signed)
            assert number.split()[0] in made, name
        assert made in html.unescape(page.read_text())
    of_weights = [made for sentence, made in zip(SUMMARY, said, strict=True) if "{weights/" in sentence]
    assert summary(audit(("weights",))) == of_weights


@pytest.mark.parametrize(
    ("value", "text"), [(2.34e-5, "0.00002"), (0.0, "0.0000"), (0.00213, "0.0021"), (1e-9, "0.000000")]
)
def test_a_small_number_is_not_printed_as_zero_outside_its_interval(value, text):
    claim = next(claim for claim in audit().claims if claim.name == "tokens/kld_50/base")
    assert claim.digits == 4
    assert _number(claim, Estimate(value, value, 2 * value)).text.split()[0] == text


def test_nothing_that_a_stranger_wrote_is_run(page):
    text = page.read_text()
    assert STRANGE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_each_claim_is_a_row_in_every_file(page):
    for group in GROUPS:
        asked = [claim for claim in audit().claims if claim.group == group]
        asked = sorted(asked, key=lambda claim: not claim.sources)  # those with a published number first
        files = [page.parent / "tables" / f"{group}{part}.csv" for part in ("", "-further")]
        rows = [row for file in files if file.exists() for row in csv.DictReader(file.open())]
        assert [row["Measured"] for row in rows] == [claim.sentence.replace("{k}", "10") for claim in asked]
        assert all(bool(row.get("Published")) == bool(claim.sources) for claim, row in zip(asked, rows, strict=True))
        assert all(row["How"] and "{" not in row["How"] for row in rows)
        tables = [file.with_suffix(".tex").read_text() for file in files if file.exists()]
        assert sum(table.count(" \\\\\n") - 1 for table in tables) == len(asked)
        for claim, row in zip(asked, rows, strict=True):
            value = audit().estimates[claim.name, THIS].value
            assert row[THIS] == "–" if value is None else float(row[THIS]) == pytest.approx(claim.unit * value)


def test_metrics_are_the_same_list():
    metrics = metrics_of(audit())
    assert metrics["outcomes/avg/rl"] == pytest.approx(0.8)
    assert metrics["outcomes/avg/rl_low"] < 0.8 < metrics["outcomes/avg/rl_high"]
    other = [name for name in metrics if name.endswith("/weights/equal")]
    assert other == ["_script_alert_1__/script__SUM_A1_/weights/equal"]
    assert {claim.name for claim in audit().claims} >= {
        name.removesuffix("_low") for name in metrics if "script" not in name and name.endswith("_low")
    }


def test_a_page_of_weights_alone():
    text = render(report(audit(("weights",))))
    assert text.count("<figure") == 4, "frames are there, whatever rows were asked"
    assert "t-tokens" not in text


def test_claims_are_found_by_name_and_say_who_published_what():
    every = claims((1, 8))
    assert len({claim.name for claim in every}) == len(every)
    assert all(claim.how and claim.sentence for claim in every)
    for source in (source for claim in every for source in claim.sources):
        assert re.fullmatch(r"\d{4}\.\d{5}", source.arxiv)
        assert bool(source.number) <= bool(source.place or source.pair), source

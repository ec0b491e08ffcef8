"""One table in four formats, to the byte; and text from a model that must not do anything in any of them."""

import csv
import io
import re
from html.parser import HTMLParser

import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.report import latex, markdown, spreadsheet
from rlvr_dir.report.draw import look
from rlvr_dir.report.figures import in_legible_parts
from rlvr_dir.report.html import safe_link
from rlvr_dir.report.model import KIND, SPLIT, Cell, Chapter, Report, Section, Source, cell, frame
from rlvr_dir.report.write import write
from rlvr_dir.results.settings import settings_of
from rlvr_dir.stats import Estimate
from tests.report.made import result

AVG, PASS = (f"AIME24{SPLIT}{title}" for title in ("Avg@32", "Pass@16"))
TABLE = Section(
    "small",
    "Two ways.",
    frame(
        [
            {"Method": "Base", AVG: Cell("14.79", 14.79), PASS: Cell("47.46", 47.46, mark="second"), KIND: "reference"},
            {
                "Method": "100 % & more",
                AVG: Cell("39.06", 39.0625, (30.1, 48.0), ("[30.1, 48.0]",), "best", "*", "#r-1"),
                PASS: None,
                KIND: "",
            },
        ]
    ),
    ("A note.",),
)
HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style></textarea><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "{{ 7 * 7 }} {% include 'x' %}",
    "\u202egnp.exe \u2066\u200f",
    "a\x00b\x07\x1b[31m\r\n\ud800",
    "| a | b |\n|---|",
    "[click](javascript:alert(1)) `code` **x** <u>",
    "$\\input{/etc/passwd}$ %comment \\end{table} ^^41",
    "=HYPERLINK(1)",
    "x" * 1_000_000,
]


def test_markdown():
    assert markdown.table(TABLE).splitlines() == [
        "**Two ways.**",
        "",
        "| Method           |              AIME24 Avg@32 |   AIME24 Pass@16 |",
        "|:-----------------|---------------------------:|-----------------:|",
        "| Base             |                      14.79 |     <u>47.46</u> |",
        r"| 100 % &amp; more | **39.06\*** \[30.1, 48.0\] |                – |",
        "",
        "A note.",
    ]


def test_a_terminal_shows_a_table_without_marks():
    assert markdown.as_text(TABLE).splitlines() == [
        "Two ways.",
        "",
        "| Method       |       AIME24 Avg@32 |   AIME24 Pass@16 |",
        "|:-------------|--------------------:|-----------------:|",
        "| Base         |               14.79 |            47.46 |",
        "| 100 % & more | 39.06* [30.1, 48.0] |                – |",
        "",
        "A note.",
    ]


def test_latex():
    assert latex.table(TABLE).splitlines() == [
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{Two ways.}",
        r"\label{tab:small}",
        r"\begin{tabular}{@{}lrr@{}}",
        r"\toprule",
        r" & \multicolumn{2}{c}{AIME24} \\",
        r"\cmidrule(lr){2-3}",
        r"Method & Avg@32 & Pass@16 \\",
        r"\midrule",
        r"Base & 14.79 & \underline{47.46} \\",
        r"100 \% \& more & \textbf{39.06$^{*}$} {\scriptsize [30.1, 48.0]} & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip{\footnotesize A note.}",
        r"\end{table}",
    ]


def test_csv_has_the_exact_numbers():
    assert spreadsheet.render(TABLE) == (
        "Method,AIME24 Avg@32,AIME24 Avg@32: low,AIME24 Avg@32: high,AIME24 Avg@32: mark,AIME24 Pass@16,"
        "AIME24 Pass@16: mark\n"
        "Base,14.79,,,,47.46,second\n"
        "100 % & more,39.0625,30.1,48.0,best,–,\n"
    )


@pytest.mark.parametrize(
    ("value", "how", "text", "small"),
    [
        (Estimate(0.5542, 0.441, 0.667), {}, "55.4", ("[44.1, 66.7]",)),
        (Estimate(0.004, -0.00004, 0.0121), {"digits": 1, "plus": True}, "+0.4", ("[-0.004, +1.2]",)),
        (0.00004, {"suffix": " %"}, "< 0.01 %", ()),
        (0.0, {"suffix": " %"}, "0.00 %", ()),
        (float("nan"), {}, "–", ()),
        (None, {}, "–", ()),
        (Estimate(1.5, None, None), {"unit": 1, "beside": ["of 3", ""]}, "1.50", ("of 3",)),
    ],
)
def test_estimates_are_printed_in_one_way(value, how, text, small):
    assert (cell(value, **how).text, cell(value, **how).small) == (text, small)


def hostile_report():
    sections, sources = [], []
    for i, text in enumerate(HOSTILE):
        shown = Cell(text, small=(text,))
        rows = frame(
            [{f"{text.replace(SPLIT, '')}{SPLIT}{text.replace(SPLIT, '')}": shown, "n": Cell("1", 1.0, link=text)}]
        )
        sections.append(Section(f"t{i}", text, rows, (text,), sortable=True))
        sections.append(Section(f"f{i}", text, frame([{text: text}]), (), "<svg></svg>", text, text))
        sources.append(Source(f"r-{i}", text, ((text, text),), ((text, f"javascript:{text}"), (text, text))))
    chapters = (Chapter(HOSTILE[0], (HOSTILE[5],), tuple(sections[2:])),)
    return Report(HOSTILE[0], HOSTILE[1], (HOSTILE[2],), tuple(sections[:2]), chapters, tuple(sources))


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    out = tmp_path_factory.mktemp("hostile")
    write(hostile_report(), out)
    return out


def test_html_runs_nothing_of_it(pages):
    page = (pages / "report.html").read_text()
    tags = _Tags()
    tags.feed(page)
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert not [tag for tag, _ in tags.seen if tag in ("img", "iframe", "object", "embed", "base", "form")]
    for _, attributes in tags.seen:
        assert not [name for name in attributes if name.startswith("on")]
        address = attributes.get("href") or ""
        assert address == "data:," or safe_link(address) or "href" not in attributes
        assert not address.lower().startswith("javascript")
    assert "{{ 7 * 7 }}" in page  # as text, not evaluated
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x08\x0b-\x1f]", page)


def test_markdown_and_csv_and_latex_too(pages):
    text = (pages / "report.md").read_text()
    assert not re.search(r"<(?!/?u>)[a-z/]", text)
    assert "](javascript" not in text.replace("\\](javascript", "")
    for i, hostile in enumerate(HOSTILE):
        rows = list(csv.reader(io.StringIO((pages / "tables" / f"t{i}.csv").read_text())))
        assert len(rows) == 2
        assert not any(value.startswith(("=", "+", "@", "\t")) for row in rows for value in row)
        tex = (pages / "tables" / f"t{i}.tex").read_text()
        assert tex.count(r"\end{table}") == 1, hostile
        assert r"\input" not in tex
        assert not re.search(r"(?<!\\)%", tex)


RUN_OR_LEAVE = ("javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//evil", "\\\\evil", "", "vbscript:x")
LEAD = ("#r-1", "../runs/records/ab/aime24", "https://example.org/x", "http://127.0.0.1:5000/#/x")


@pytest.mark.parametrize("address", [*RUN_OR_LEAVE, *LEAD])
def test_addresses_that_run_or_leave_are_told_from_those_that_lead_somewhere(address):
    assert safe_link(address) == (address in LEAD)


def test_a_name_never_leaves_the_folder():
    assert Section("../../etc/x", "", frame([])).name == "etc-x"
    assert Section("/a b\x00<c>", "", frame([])).name == "a-b-c"


def test_no_two_lines_of_a_figure_have_colour_and_mark_in_common():
    looks = [look(i) for i in range(9)]  # as many criteria as a pair is decoded by
    assert len({(each["color"], each["marker"]) for each in looks}) == len(looks)


def test_a_figure_of_too_many_criteria_is_split_into_the_papers_seven_and_controls():
    """l. 324 and 359 of the paper name its criteria; Δ log p, its absolute value and the coupling are in both parts."""
    taus = {"delta_logp": -0.1, "abs_delta_logp": 1.0, "coupling": None}
    papers = {"entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl", "random"}
    controls = {"js", "ce", "nll_rl"}
    ways = [Decoding(mode="replace", criterion=name, tau=taus.get(name, 0.5)) for name in (*taus, *papers, *controls)]
    settings = settings_of([result(how) for how in (Decoding(mode="base"), Decoding(mode="rl"), *ways)])
    parts = dict(in_legible_parts(settings))
    shown = {word: {each.decoding.criterion for each in part if each.decoding.gated} for word, part in parts.items()}
    assert shown == {"": {*taus, *papers}, "controls-": {*taus, *controls}}
    few = settings_of([result(how) for how in (Decoding(mode="base"), Decoding(mode="rl"), *ways[:3])])
    assert dict(in_legible_parts(few)) == {"": few}

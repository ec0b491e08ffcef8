"""The token viewer: its data without a browser, then the page in a real one, with model output that means harm."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from rlvr_dir.cli import app
from rlvr_dir.config import Decoding
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.records import RecordStore, Replay
from rlvr_dir.report.viewer import changed_first, common_problems, stored_answers, viewer_data, viewer_html
from rlvr_dir.report.viewer.page import embedded
from rlvr_dir.report.viewer.token_texts import TokenTexts, segments
from tests.chromium import settle
from tests.facts import ROBUST, refuses, states
from tests.records.made import PROBLEMS, TASK, fill
from tests.report.viewer_pages import HOSTILE, PLAIN, WORDS, Table, answers, rollout

HOSTILE_IDS = list(range(len(HOSTILE))) * 3
LINE = "x<b>" * 262_144  # one line of 1 MiB


def column(data, name):
    kind, _, text = data[name].partition(":")
    return np.frombuffer(base64.b64decode(text), f"<{kind}")


def tokenizer():
    from transformers import AutoTokenizer

    from rlvr_dir.tiny import tiny_pair

    return AutoTokenizer.from_pretrained(tiny_pair().rl)


def test_tokens_join_to_the_text_whatever_the_bytes():
    tok = tokenizer()
    text = "we have 13 − 4 = 9 ; naïve 数学 👩‍👩‍👧 \\boxed{9}\n\nanswer"
    ids = tok.encode(text)
    token_texts = TokenTexts(tok)
    shown = [token_texts.texts[i] for i in token_texts.response(ids)]
    assert "".join(shown) == text

    emoji = tok.encode("👩")
    broken = [*emoji[:2], *tok.encode("a"), *emoji[3:], *emoji[:1], 10**9, *emoji[:3]]
    shown = [token_texts.texts[i] for i in token_texts.response(broken)]
    assert len(shown) == len(broken)
    assert "a" in "".join(shown)
    assert "\ufffd" in "".join(shown)


def test_criteria_keep_every_bit_and_lists_keep_their_order():
    one = answers(500)[2]
    [problem] = viewer_data({"p": [one]}, PLAIN)["problems"]
    [data] = problem["answers"]
    stored = one.rollout
    assert np.array_equal(column(data, "delta_logp"), stored.delta_logp)
    assert np.array_equal(column(data, "delta_logp") < np.float32(-0.3), stored.replaced)
    assert np.array_equal(column(data, "replaced").astype(bool), stored.replaced)
    assert np.array_equal(column(data, "changed").astype(bool), stored.changed)
    assert np.array_equal(column(data, "entropy_base"), stored.trace[:, 2])
    assert column(data, "top_rl_logp").reshape(-1, 5)[0].tolist() == [-200, -1700, -3200, -4700, -6200]
    assert (data["gate"], problem["gold"]) == ({"criterion": "delta_logp", "tau": -0.3, "gamma": 0.0}, "42")


def replayed(answer):
    """The answer, wrong, with replays of three tokens; a fourth is drawn and not replayed."""
    own, row = {"by": "own", "judge": ROBUST}, answer.rollout
    rl = {"by": digest_of(Decoding(mode="replace", criterion="always").model_dump(mode="json")), "judge": ROBUST}
    made = [(4, 3, rl | {"right": True}), (4, 3, rl | {"right": True}), (4, 3, rl | {"right": False})]
    made += [(4, 5, own | {"right": False}), (6, 2, rl | {"right": False}), (7, row.token_ids[7], {"by": rl["by"]})]
    made += [(8, (row.token_ids[8] + 1) % len(WORDS), {"by": rl["by"]})]
    about = {"problem": row.problem, "sample": row.sample, "response": row.digest}
    replays = [Replay(**about, at=at, token=token, noise=i, **known) for i, (at, token, known) in enumerate(made)]
    return replace(answer, verdict="wrong", replays=replays)


def test_replays_are_put_together_by_place_and_by_who_drew_the_token():
    base = replayed(answers(12)[0])
    data = viewer_data({"p": [base, answers(12)[1]]}, PLAIN)
    first, second = data["problems"][0]["answers"]
    told = [
        (one["at"], one["who"], data["pieces"][one["token"]], one["draws"], one["right"]) for one in first["credit"]
    ]
    here = PLAIN.texts[base.rollout.token_ids[7]]
    assert told == [
        (4, "RL", WORDS[3], 3, 2),
        (4, "base", WORDS[5], 1, 0),
        (6, "RL", WORDS[2], 1, 0),
        (7, "RL", here, 0, 0),
    ]
    assert "credit" not in second


def test_less_is_known_of_other_records():
    plain = replace(answers(9)[2], rollout=rollout(9, traced=False))
    [first] = viewer_data({"p": [plain]}, PLAIN)["problems"][0]["answers"]
    assert "delta_logp" in first
    assert not {"entropy_base", "top"} & first.keys()
    assert not first["words"]
    long = replace(plain, rollout=rollout(1, tokenizer=Table(["a\nb  c" + "y" * 70])))
    data = viewer_data({"p": [long]})  # without a tokenizer
    [second] = data["problems"][0]["answers"]
    assert second["words"]
    assert (first["generated"], second["generated"], second["n_replaced"]) == (9, 1, long.rollout.n_replaced)
    assert [data["pieces"][i] for i in column(second, "token")] == [
        "a",
        "\n",
        "b",
        "  ",
        "c" + "y" * 23,
        "y" * 24,
        "y" * 23,
    ]
    assert "".join(segments(LINE)) == LINE


def test_what_is_embedded_is_ascii_that_no_parser_can_leave():
    page = viewer_html(viewer_data({HOSTILE[0]: answers(0, Table(HOSTILE), HOSTILE_IDS)}, Table(HOSTILE)), HOSTILE[0])
    inside = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL).group(1)
    assert inside.isascii()
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside)["pieces"][: len(HOSTILE)] == list(HOSTILE)
    assert embedded({"a": "</script>\u2029\ud800"}) == '{"a":"\\u003c/script\\u003e\\u2029\\ud800"}'


def test_stored_records_and_the_command(tmp_path):
    fill(tmp_path / "records")
    store = RecordStore(tmp_path / "records")
    snapshot = store.read(*store.names()[0])
    assert common_problems([snapshot], 2) == PROBLEMS
    assert common_problems([snapshot], 3) == []
    rows = stored_answers([snapshot, snapshot], [PROBLEMS[4].removeprefix(f"{TASK}/")], 1)
    assert [one.label for one in rows[PROBLEMS[4]]] == [f"replace τ-0.3 ({snapshot.record_hash[:4]})"] * 2
    with refuses("sample", "9"):
        stored_answers([snapshot], [PROBLEMS[0]], 9)

    run, out = CliRunner().invoke, tmp_path / "deep" / "view.html"
    done = run(app, ["view", snapshot.record_hash[:4], "--store", str(store.folder), "--out", str(out)])
    assert done.exit_code == 0
    assert out.as_uri() in done.output
    assert run(app, ["view", str(snapshot.folder), "--out", str(out), "--problem", PROBLEMS[3]]).exit_code == 0
    assert run(app, ["view", str(tmp_path), "--out", str(out)]).exit_code == 0  # a run
    assert run(app, ["view", "--store", str(store.folder), "--out", str(out)]).exit_code == 0
    for wrong, *facts in (
        (["feed", "--tasks", TASK], "tasks", TASK),
        (["--tasks", TASK, "--out", str(tmp_path)], "out", tmp_path),
        (["feed"], "record", "feed"),
        ([str(snapshot.folder), "--problem", "nope"], "problem", "nope"),
        ([str(snapshot.folder), "--sample", "7"], "sample", "7"),
        ([str(snapshot.folder), "--top-p", "0.9"], "top_p", "0.9"),
        ([str(snapshot.folder), "-d", "rl"], "decoding", "rl"),
        ([str(snapshot.folder), "--tokenizer", str(tmp_path)], "tokenizer", tmp_path),
        ([str(snapshot.folder), "--out", str(tmp_path)], "out", tmp_path),
        (["--store", str(tmp_path / "nothing")], "place", tmp_path / "nothing"),
    ):
        done = run(app, ["view", "--store", str(store.folder), "--out", str(out), *wrong])
        error = done.exception
        assert isinstance(error, UserError)
        assert error.argument in ("", facts[0])
        assert states(error, *facts[1:])

    empty = tmp_path / "empty"
    done = run(app, ["view", "--tasks", TASK, "--store", str(empty), "--out", str(out), "--tokenizer", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert states(done.exception, tmp_path)
    assert not [*empty.rglob("journal*")]  # nothing was decoded


def page_data(path):
    inside = re.search(r'<script type="application/json">(.*?)</script>', path.read_text(), re.DOTALL).group(1)
    return json.loads(inside)


def test_the_problems_where_a_token_changed_come_first(tmp_path):
    fill(tmp_path, samples=2)
    [record] = [RecordStore(tmp_path).read(*name) for name in RecordStore(tmp_path).names()]
    for sample in (0, 1):
        changed = [problem for problem in PROBLEMS if record.rows[problem, sample].n_changed]
        assert 0 < len(changed) < len(PROBLEMS)
        others = [problem for problem in PROBLEMS if problem not in changed]
        assert changed_first([record], sample) == [*changed, *others]
        assert changed_first([record, record], sample) == [*changed, *others]


def test_view_shows_what_was_evaluated_with_both_models_most_likely_tokens(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("--tasks", "tiny_medium", "--backend", "transformers", "--max-tokens", 60)
    drawn = ("--top-p", 0.9, "--samples", 1, "--limit", 8)
    done = typed("eval", *asked, *drawn, "-d", "base", "-d", "replace,tau=-0.2", "--records", "runs/records")
    assert done.returncode == 0, done.stderr
    store = RecordStore("runs/records")
    before = {name: store.read(*name).digest() for name in store.names()}
    done = typed("view", *asked, "--limit", 2)
    assert done.returncode == 0, done.stderr
    assert {name: store.read(*name).digest() for name in store.names()} == before  # nothing else was decoded
    problems = page_data(tmp_path / "view.html")["problems"]
    assert len(problems) == 2
    for one in problems:
        assert [answer["label"] for answer in one["answers"]] == ["base", "replace τ-0.2"]
        assert [answer["top"] for answer in one["answers"]] == [5, 5]
    assert problems[0]["answers"][1]["n_changed"] > 0
    assert typed("view", "--limit", 2, "--out", "stored.html").returncode == 0
    stored = page_data(tmp_path / "stored.html")["problems"]
    assert [one["id"] for one in stored] == [one["id"] for one in problems]
    for ours, theirs in zip(stored, problems, strict=True):
        assert [answer["token"] for answer in ours["answers"]] == [answer["token"] for answer in theirs["answers"]]


# ---- in a browser ----


@pytest.fixture
def show(visitor, tmp_path):
    """Opens the viewer of some answers; it complains of nothing and asks no network for anything."""

    def write(problems, tok=PLAIN, html=viewer_html, width=1280):
        path = tmp_path / "view.html"
        path.write_text(html(viewer_data(problems, tok)), encoding="utf-8")
        return visitor.open(path.as_uri(), width)

    yield write
    assert visitor.complaints == []
    assert visitor.requests
    assert all(url.startswith(("file:", "data:")) for url in visitor.requests)


def tokens(place):
    return f".tv-answer:nth-child({place + 1}) .t"


def says(page):
    settle(page)
    return page.text_content(".tv-say")


def test_hostile_text_stays_text(show):
    table = Table((*HOSTILE, LINE))
    ids = [*HOSTILE_IDS, len(HOSTILE)]
    rows = answers(0, table, ids)
    rows.append(replace(rows[0], label=HOSTILE[0], gold=HOSTILE[1], decoding=rows[2].decoding))
    page = show({HOSTILE[0]: rows, HOSTILE[1]: rows[:1]}, table)
    dangerous = "document.querySelectorAll('img, iframe, svg, b, i[onload], [onerror], [onload], .tv a').length"
    for answer in range(len(rows)):
        for i in (0, 1, 8, 11, 12, 16):
            page.evaluate(f"document.querySelectorAll({tokens(answer)!r})[{i}]?.focus()")
        page.evaluate(f"document.querySelectorAll('.tv-text')[{answer}].open = true")
    page.evaluate("document.querySelector('.tv-question').open = true")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(dangerous) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    shown = page.evaluate("document.querySelector('#content').innerText")
    for hidden in "\u202e\u202c\u2066\u2069\u200f\u200b\ufeff\u2028\u2029\x00\x07\x08\x1b\x7f\x9b\ud800":
        assert hidden not in shown
    assert HOSTILE[0] in shown
    assert "⟨U+202E⟩evil⟨U+202C⟩" in shown
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.t')].map(one => one.textContent.length))") < 500
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(
        "(s => { s.value = 1; s.dispatchEvent(new Event('change')); })(document.querySelector('[data-set=problem]'))"
    )
    settle(page)
    assert page.evaluate("document.querySelectorAll('.tv-answer').length") == 1
    assert page.evaluate("window.pwned") is None


def test_pointing_and_focusing_tell_the_facts(show):
    rows = answers(60)
    page = show({"p": rows})
    one = rows[2].rollout
    i = int(np.flatnonzero(one.changed)[0])
    page.hover(f"{tokens(2)}[data-i='{i}']")
    said = says(page)
    dropped, written = (PLAIN.texts[token].replace("\n", "⏎") for token in (one.proposed[i], one.token_ids[i]))
    assert said.startswith(f"Token {i + 1} of 60, replace τ-0.3: base proposed {dropped};")
    assert written in said.removeprefix(said.split(";")[0])
    facts = page.evaluate("document.querySelector('.tv-facts').innerText")
    p_base, p_rl = np.exp(one.trace[i, :2].astype(float))
    for expected in (
        f"{p_base:.3f}\t{p_rl:.3f}",
        f"{one.trace[i, 2]:.3f}\t{one.trace[i, 3]:.3f}",
        f"{one.delta_logp[i]:.3f} nats".replace("-", "−"),
        f"{one.delta_logp_written[i]:.3f} nats".replace("-", "−"),
        f"{one.trace[i, 5]:.3f}\t{one.trace[i, 4]:.3f}",
        "of base",
        "of RL",
        "0.905",
        "dropped",
        "written",
    ):
        assert expected in facts
    page.evaluate(f"document.querySelector(\"{tokens(0)}[data-i='5']\").focus()")
    for key, place in (("ArrowRight", 7), ("End", 60), ("Home", 1)):
        page.keyboard.press(key)
        assert says(page).startswith(f"Token {place} of 60, base: ")


BACKGROUND = "one => getComputedStyle(one).backgroundColor"


def tint(nats):
    """The class of a colour: seven levels, d where RL made a token less likely, u where more likely."""
    level = round(7 * min(1, (abs(nats) / 2) ** 0.5))
    return {f"{'u' if nats > 0 else 'd'}{level}"} if level else set()


def test_a_dropped_token_is_struck_through_in_its_own_colour_beside_the_written_one_in_its_own(show):
    rows = answers(60)
    page = show({"p": rows})
    for place, one in enumerate(answer.rollout for answer in rows):
        struck = page.locator(f".tv-answer:nth-child({place + 1}) del")
        assert [int(each.get_attribute("data-i")) for each in struck.all()] == np.flatnonzero(one.changed).tolist()
    one = rows[2].rollout
    colours = set()
    for i in np.flatnonzero(one.changed).tolist():
        dropped, written = (page.locator(f".tv-answer:nth-child(3) {kind}[data-i='{i}']") for kind in ("del", ".t"))
        assert dropped.inner_text() == PLAIN.texts[one.proposed[i]].replace("\n", "⏎")
        assert written.inner_text() == PLAIN.texts[one.token_ids[i]].replace("\n", "⏎")
        assert dropped.evaluate("one => getComputedStyle(one).textDecorationLine") == "line-through"
        assert tint(one.delta_logp[i]) == set(dropped.get_attribute("class").split()) - {"x", "m"}
        assert tint(one.delta_logp_written[i]) == set(written.get_attribute("class").split()) - {"t", "r", "c"}
        colours.add((dropped.evaluate(BACKGROUND), written.evaluate(BACKGROUND)))
    assert all(dropped != written for dropped, written in colours)
    keys = page.locator(".tv-legend").locator("del, .t.r.c")
    assert [key.evaluate("one => one.localName") for key in keys.all()] == ["del", "span"]
    page.locator("[data-set=metric]").select_option("entropy_base")  # of a position, so of no dropped token
    assert {each.get_attribute("class").replace(" m", "") for each in page.locator("del[data-i]").all()} == {"x"}


def test_a_proposal_that_an_older_record_does_not_have_is_shown_as_unknown(show):
    old = replace(answers(60)[2], rollout=rollout(60, 2, traced=False, known=False))
    page, one = show({"p": [old]}), old.rollout
    i = int(np.flatnonzero(one.changed)[0])
    dropped, written = (page.locator(f"{kind}[data-i='{i}']") for kind in ("del", ".t"))
    assert dropped.inner_text() == "?"
    assert tint(one.delta_logp[i]) == set(dropped.get_attribute("class").split()) - {"x", "m"}
    assert written.get_attribute("class").split() == ["t", "r", "c"]
    assert "unknown" in page.locator(".tv-facts").inner_text()


def test_the_panel_begins_with_the_first_replaced_token_or_with_a_line(show):
    """It kept 200 empty pixels until a token was pointed at."""
    rows = answers(60)
    height = "document.querySelector('.tv-details').offsetHeight"
    page = show({"p": rows[:2], "q": rows})
    assert says(page).startswith("Point at a token")  # nothing was flagged
    assert page.evaluate(height) < 80
    page.locator("[data-set=problem]").select_option("1")
    first = int(np.flatnonzero(rows[2].rollout.changed)[0])
    assert says(page).startswith(f"Token {first + 1} of 60, replace τ-0.3: base proposed ")
    assert page.locator(".tv-facts meter").count() == 10  # five most likely tokens of each model
    assert not page.locator(".t.here").count()  # nothing is chosen yet
    page.locator("[data-set=problem]").select_option("0")
    assert says(page).startswith("Point at a token")
    assert page.evaluate(height) < 80


COVERED = """() => {
  const panel = document.querySelector(".tv-details").getBoundingClientRect();
  return [...document.querySelectorAll(".tv-answer, .tv-legend, .tv-bar")].filter(part => {
    const box = part.getBoundingClientRect();
    return box.top < panel.bottom - 1 && box.bottom > panel.top + 1;
  }).length;
}"""
BROKEN = """() => {
  const broken = [], walk = document.createTreeWalker(document.querySelector(".tv-legend"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(walk.currentNode, word.index); range.setEnd(walk.currentNode, word.index + word[0].length);
    if (range.getClientRects().length > 1) broken.push(word[0]);
  }
  return broken;
}"""


def test_on_a_telephone_the_panel_covers_nothing_and_no_word_is_broken(show):
    page = show({"p": answers(300)}, width=390)
    assert page.evaluate(BROKEN) == []
    assert page.evaluate("scrollY") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for answer in (3, 0, 2):
        token = page.locator(".tv-answer").nth(answer).locator(".t[data-i='8']")
        token.click()
        assert says(page).startswith("Token 9 of 300, ")
        top = token.bounding_box()["y"]
        panel = page.locator(".tv-details").bounding_box()
        assert 0 <= top < panel["y"]  # both are in sight
        assert panel["y"] + panel["height"] < 901
        settle(page)
        assert token.bounding_box()["y"] == top
        for by in (0, 400, -700):
            page.evaluate(f"scrollBy(0, {by})")
            assert page.evaluate(COVERED) == 0
    page.set_viewport_size({"width": 1280, "height": 900})
    settle(page)
    assert page.evaluate("document.querySelector('.tv-details').previousElementSibling.className") == "tv-answers"


def test_the_threshold_marks_what_numpy_marks(show):
    rows = answers(3000)
    page = show({"p": rows})

    def set_(control, value, event):
        page.evaluate(
            f"(c => {{ c.value = {json.dumps(value)}; c.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})"
            f"(document.querySelector('[data-set={control}]'))"
        )

    def marked():
        return page.evaluate("[...document.querySelectorAll('.tv-answer p:nth-of-type(3)')].map(p => p.textContent)")

    def expected(counts):
        return [f"τ marks {count:,} ({100 * count / 3000:.2f} %)" for count in counts]

    assert marked() == expected(int((one.rollout.delta_logp < np.float32(-0.3)).sum()) for one in rows)
    assert marked()[2] == expected([rows[2].rollout.n_replaced])[0]
    for tau in (-0.125, -0.31, float(rows[0].rollout.delta_logp[7]), 0.02):
        set_("tau", tau, "input")
        assert marked() == expected(int((one.rollout.delta_logp < np.float32(tau)).sum()) for one in rows)
    set_("slider", -0.7, "input")
    assert page.evaluate("document.querySelector('[data-set=tau]').value") == "-0.7"
    assert marked() == expected(int((one.rollout.delta_logp < np.float32(-0.7)).sum()) for one in rows)
    set_("criterion", "entropy_rl", "change")
    set_("tau", 0.5, "input")
    assert marked() == expected(int((one.rollout.trace[:, 3] > np.float32(0.5)).sum()) for one in rows)
    assert page.evaluate("document.querySelector('[data-out=side]').textContent") == ">"
    visible = page.evaluate(
        "[...document.querySelectorAll('.tv-answer:first-child .t.m')].map(t => Number(t.dataset.i))"
    )
    assert visible
    assert all(rows[0].rollout.trace[i, 3] > 0.5 for i in visible)


def test_credit_is_one_more_colouring(show):
    page = show({"p": [replayed(answers(12)[0]), answers(12)[1]], "q": answers(12)[1:]})
    assert not page.locator(".t.q").count()
    page.locator("[data-set=metric]").select_option("credit")
    assert "right → wrong" in page.locator(".tv-legend").inner_text()
    looks = [one.get_attribute("class").split() for one in page.locator(tokens(0)).all()]
    assert [i for i, look in enumerate(looks) if "q" in look] == [6, 7]
    assert [i for i, look in enumerate(looks) if "u5" in look] == [4]  # 2 of 3, in sevenths
    page.locator("[data-set=kind]").select_option("replayed")
    for at, rows in ((4, ["RL", "right in 2 of 3", "base", "right in 0 of 1"]), (6, ["RL"]), (7, ["the same token"])):
        page.locator("[data-do=next]").click()
        assert says(page).startswith(f"Token {at + 1} of 12")
        facts = page.locator(".tv-facts").inner_text()
        assert "Another token here (now wrong)" in facts
        assert all(row in facts for row in rows)
    page.locator("[data-set=problem]").select_option("1")
    assert page.locator("[data-set=metric]").input_value() == "delta_logp"  # nothing was replayed here

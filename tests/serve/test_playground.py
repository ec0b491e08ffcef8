"""The playground in a real browser: four answers side by side as they stream, the viewer's own page in the end."""

import json
import os
import re
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

pytest.importorskip("vllm", reason="vLLM is not installed")

from rlvr_dir.serve.run import EXAMPLE
from rlvr_dir.tiny import benchmark
from tests.chromium import settle
from tests.serve.server import problems

pytestmark = pytest.mark.vllm
HOUSE = Path(__file__).parents[2]
RULES = ["base", "rl", "replace,tau=-0.1", "extrapolate,gamma=0.1,tau=-0.1"]


@pytest.fixture(scope="module")
def site(server):
    """Where the server's playground is."""
    return server.url.removesuffix("v1")


def ask(page, problem):
    """Type a problem, press Ctrl+Enter, and wait for the viewer."""
    page.locator("#problem").fill(problem)
    page.locator("#problem").press("Control+Enter")
    page.wait_for_selector("#answers .tv[data-ready]")
    settle(page)


def texts(page):
    """{rule: text} of the viewer's answers."""
    found = {}
    for answer in page.locator("#answers .tv-answer").all():
        found[answer.locator("h3").inner_text()] = "".join(answer.locator(".t").all_inner_texts())
    return found


def test_four_rules_answer_side_by_side_and_a_link_asks_the_same_again(site, visitor, tmp_path):
    page = visitor.open(site)
    ask(page, problems(12)[11][1])
    found = texts(page)
    assert list(found) == RULES
    assert all("boxed" in text for text in found.values())
    link = page.locator("#link").get_attribute("href")
    other = visitor.open(site + link)
    other.wait_for_selector("#answers .tv[data-ready]")
    assert texts(other) == found
    with page.expect_download() as download:
        page.locator("#save").click()
    saved = tmp_path / "view.html"
    download.value.save_as(saved)
    alone = visitor.open(saved.as_uri())
    assert alone.locator(".tv-answer h3").all_inner_texts() == RULES
    assert not visitor.complaints
    assert all(re.match(rf"{re.escape(site)}|data:|file:|blob:", each) for each in visitor.requests)


def test_the_example_has_run_when_the_page_opens(site, visitor):
    page = visitor.open(site)
    page.wait_for_selector("#answers .tv[data-ready]")
    assert list(texts(page)) == RULES
    assert page.locator(".tv-right").count() == 3
    assert page.locator(".tv-say").inner_text().startswith("Token 17 of 46, replace,tau=-0.1: base proposed")
    assert "Δ log p" in page.locator(".tv-facts").inner_text()
    assert page.locator(".tv-facts meter").count() == 10  # five most likely tokens of each model
    dropped = page.locator("#answers .tv-answer").nth(2).locator("del")
    assert dropped.count() == 1
    assert dropped.get_attribute("class").split()[1][0] == "d"  # RL made the dropped token less likely
    assert page.locator("#answers .tv-answer").nth(2).locator(".t.c").get_attribute("class").split()[1][0] == "u"


def test_a_bad_rule_is_said_in_its_own_column_beside_the_answers_of_the_others(site, visitor):
    page = visitor.open(site)
    page.wait_for_selector("#answers .tv[data-ready]")
    page.locator("#rules input").nth(2).fill("replacing")
    page.locator("#problem").press("Control+Enter")
    page.wait_for_selector("#answers .tv[data-ready]")
    assert page.locator("#status").inner_text() == "3 of 4 answered"
    assert page.locator("#answers .tv-answer h3").all_inner_texts() == [*RULES[:2], "replacing", RULES[3]]
    column = page.locator("#answers .tv-answer").nth(2)
    assert "replacing" in column.get_by_role("alert").inner_text()
    page.locator("#answers .tv-answer").nth(3).locator(".t").nth(5).click()
    page.locator("#one").click()  # writes the viewer again
    page.get_by_text("1 replayed, ").wait_for()
    assert page.locator("#answers .tv-answer h3").all_inner_texts() == [*RULES[:2], "replacing", RULES[3]]
    page.locator("#rules input").nth(1).fill("rll")
    for place in (0, 3):
        page.locator("#rules input").nth(place).fill("nothing")
    page.locator("#problem").press("Control+Enter")
    page.get_by_text("0 of 4 answered").wait_for()
    assert page.get_by_role("alert").count() == 4


def test_a_right_answer_is_that_of_one_problem(site, visitor):
    """27 stayed beside whatever was typed, and each answer to that was called wrong."""
    page = visitor.open(site)
    page.wait_for_selector("#answers .tv[data-ready]")
    problem, gold = page.locator("#problem"), page.locator("#gold")
    example, right = problem.input_value(), gold.input_value()
    assert right == str(benchmark("tiny_medium")[EXAMPLE]["answer"])
    ask(page, problems(12)[11][1])
    assert gold.input_value() == ""
    assert page.locator(".tv-right, .tv-wrong").count() == 0
    gold.fill("12")  # typed for the problem that comes
    problem.fill(problems(13)[12][1])
    assert gold.input_value() == "12"
    ask(page, problems(13)[12][1])
    assert page.locator(".tv-right, .tv-wrong").count() == 4
    problem.fill(example)
    assert gold.input_value() == right


def test_a_token_of_the_other_model_is_put_in_and_the_verdict_stands_beside_the_old_one(site, visitor, tmp_path):
    """RL's token at the place where replace has put it turns base's answer; at others it does not."""
    page = visitor.open(site)
    page.wait_for_selector("#answers .tv[data-ready]")
    base = page.locator("#answers .tv-answer").nth(0)
    assert page.locator("#one").is_disabled()  # until a token is chosen
    base.locator(".t[data-i='16']").click()
    assert page.locator("#one").inner_text() == "Put RL’s token at 17 of base: about 26 tokens"
    page.locator("#one").click()
    page.get_by_text("1 replayed, 1 with another token; the verdict turns at 1").wait_for()
    assert page.locator(".tv-answer .u7").get_attribute("data-i") == "16"
    assert "right in 1 of 1" in page.locator(".tv-facts").inner_text()
    assert "each of 42 places of base: up to 42 continuations, about 903 tokens" in page.locator("#all").inner_text()
    page.locator("#all").click()
    page.get_by_text(re.compile("42 replayed, .* with another token; the verdict turns at 1$")).wait_for()
    assert base.locator(".t.q").count() == 41
    with page.expect_download() as download:
        page.locator("#save").click()
    download.value.save_as(tmp_path / "view.html")
    assert visitor.open((tmp_path / "view.html").as_uri()).locator(".tv-answer :is(.u7, .q)").count() == 42
    page.locator("#answers .tv-answer").nth(1).locator(".t").first.click()
    assert page.locator("#one").inner_text().startswith("Put base’s token at 1 of rl")
    page.locator("#one").click()
    page.get_by_text("1 replayed, ").wait_for()
    page.locator("#gold").fill("")
    page.locator("#problem").press("Control+Enter")
    page.wait_for_selector("#one[disabled]")
    assert "right answer is not known" in page.locator("#one").get_attribute("title")
    assert not visitor.complaints


def test_the_picture_in_the_readme_shows_what_the_page_shows(site, visitor):
    """One redrawn token puts a wrong answer right. `make screenshots` takes the picture again."""
    page = visitor.open(site, width=1020, height=1240, scale=2)
    page.wait_for_selector("#answers .tv[data-ready]")
    redrawn = page.locator("#answers .tv-answer").nth(2).locator(".t.r")
    redrawn.hover()
    settle(page)
    assert not visitor.complaints
    found = texts(page)
    answers = {rule: re.findall(r"boxed{(\d+)}", text)[-1] for rule, text in found.items()}
    right = str(benchmark("tiny_medium")[EXAMPLE]["answer"])
    assert [answer == right for answer in answers.values()] == [False, True, True, True]
    assert (redrawn.count(), redrawn.inner_text(), redrawn.get_attribute("data-i")) == (1, " = ", "16")
    assert page.locator("#answers .tv-answer").nth(3).locator(".t.r").inner_text() == " = "
    picture = HOUSE / "docs" / "playground.png"
    if os.environ.get("RLVR_DIR_SCREENSHOTS"):
        take(page, picture, found)
    with Image.open(picture) as shown:
        assert json.loads(shown.info["answers"]) == found, "docs/playground.png is old: run `make screenshots`"
    for file in ("README.md", "docs/serve.md"):
        [said] = re.findall(r"!\[([^]]*)\]\((?:docs/)?playground\.png\)", (HOUSE / file).read_text())
        assert answers["base"] in said
        assert right in said


def take(page, picture, answers):
    """Write a picture of the page, down to the token's numbers; the answers that it shows are in it as text."""
    end = page.locator(".tv-details").bounding_box()
    clip = {"x": 0, "y": 0, "width": 1020, "height": end["y"] + end["height"] + 24}
    about = PngInfo()
    about.add_text("answers", json.dumps(answers))
    with Image.open(BytesIO(page.screenshot(full_page=True, clip=clip))) as shot:
        shot.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True, pnginfo=about)

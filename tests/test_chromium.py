"""The browser of the tests sees what a page does wrong."""

POLICY = "<meta http-equiv=Content-Security-Policy content=\"script-src 'sha256-x'\">"
WRONG = "<script>console.error('said'); fetch('http://127.0.0.1:9/asked').catch(() => 0); missing()</script>"


def test_scripts_that_fail_or_complain_or_ask_the_network_are_noted(visitor, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(WRONG)
    visitor.open(path.as_uri())
    assert "said" in visitor.complaints
    assert any("missing is not defined" in one for one in visitor.complaints)
    assert "http://127.0.0.1:9/asked" in visitor.requests


def test_a_script_that_the_policy_stops_is_noted(visitor, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(POLICY + WRONG)
    visitor.open(path.as_uri())
    assert visitor.complaints
    assert all("Content Security Policy" in one for one in visitor.complaints)
    assert visitor.requests == [path.as_uri()]


def test_a_telephone_is_as_narrow_as_it_is_told(visitor, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        "<meta name=viewport content='width=device-width'><body style='margin: 0'><p style='width: 700px'>wide"
    )
    page = visitor.open(path.as_uri(), width=400)
    assert page.evaluate("screen.width") == 400
    assert page.evaluate("document.documentElement.scrollWidth") == 700

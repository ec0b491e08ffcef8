"""The author's findings at the head of a report: first, escaped, and refused where a verdict is none."""

import pytest

from harness.errors import UserError
from harness.report.build import build
from harness.report.claims import read_findings
from harness.report.html import render
from harness.report.markdown import render as markdown
from tests.report.made import grid

ROWS = """
findings:
  - {claim: "Few tokens <b>matter</b>", found: "1.6 % [1.5, 1.7]", verdict: confirmed}
  - {claim: "Nobody looked", verdict: not tested}
notes: ["60 problems."]
"""


def test_findings_stand_before_everything_else(tmp_path):
    file = tmp_path / "findings.yaml"
    file.write_text(ROWS)
    made = build(grid(), first=[read_findings(file)])
    assert [section.name for section in made.front[:3]] == ["changed-aime24", "findings", "claims"]
    assert '<td class="words">Nobody looked</td>' in render(made)
    assert '<td class="words is-not-tested">not tested</td>' in render(made)
    assert "Few tokens &lt;b&gt;matter" in render(made)
    assert "| Nobody looked " in markdown(made)
    assert "60 problems." in markdown(made)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("findings: []", "findings"),
        ("- a", ""),
        (ROWS.replace("confirmed", "proven"), "verdict"),
        ("findngs: [1]", "findngs"),
    ],
)
def test_a_file_that_holds_something_else_is_one_sentence(tmp_path, text, key):
    file = tmp_path / "findings.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=key):
        read_findings(file)

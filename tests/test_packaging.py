"""The page of a package's index: README without links that lead nowhere there."""

import re
from pathlib import Path

import pytest

from hatch_build import page

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("repository", ["", "https://example.org/o/rlvr-dir"])
def test_the_index_page_has_no_relative_link(repository):
    made = page(README, repository, "1.2.3")
    links = re.findall(r"\]\(([^)\s]+)\)", made)
    assert all(link.startswith(("https://", "#")) for link in links)
    assert (f"{repository}/raw/v1.2.3/docs/playground.png" in links) == bool(repository)

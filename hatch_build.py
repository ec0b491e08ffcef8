"""Make the page of the package's index out of README.md, whose links and pictures are relative to the repository.

    RLVR_DIR_REPOSITORY=https://HOST/OWNER/rlvr-dir python -m build --wheel

makes them absolute, and names the repository among the project's URLs. Without it links become plain text and pictures
are left out: a page without dead links.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def page(text: str, repository: str, version: str) -> str:
    """Return README's text with absolute links, or without links."""

    def link(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return RELATIVE.sub(link, text)


class CustomMetadataHook(MetadataHookInterface):
    """Gives the wheel its readme and its URLs."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both."""
        repository = os.environ.get("RLVR_DIR_REPOSITORY", "").rstrip("/")
        text = page(Path(self.root, "README.md").read_text(encoding="utf-8"), repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = (
            {"Repository": repository, "Changelog": f"{repository}/blob/main/CHANGELOG.md"} if repository else {}
        )

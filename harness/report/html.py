"""A report as one HTML file: no network, no other file, autoescaped; light and dark, for screen, print and readers."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any

from harness.report.model import Column, Report, Table
from harness.report.names import cited
from harness.text import visible


def render(report: Report) -> str:
    """Write the whole page."""
    script = asset("report.js")
    hashes = f"{content_hash(script)} {content_hash(asset('viewer.js'))}"  # the viewers bring their own
    return environment().get_template("report.html.j2").render(report=report, script=script, script_hashes=hashes)


def environment() -> Any:
    """Set up Jinja with autoescape on everything and undefined names refused; this room's other pages use it, too.

    The filter `visible` writes out what cannot be seen; `groups` joins columns under their common title.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("harness.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["visible"] = visible
    made.filters["groups"] = groups
    made.filters["cited"] = cited
    made.tests["safe_link"] = safe_link
    made.tests["table"] = lambda part: isinstance(part, Table)
    return made


def groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Return (title, width) of each run of columns that share a title."""
    return [(title, len(list(mine))) for title, mine in groupby(columns, key=lambda column: column.group)]


def safe_link(address: str) -> bool:
    """Tell whether an address can be followed without running anything: a place on this page, a path, http(s)."""
    if visible(address) != address:
        return False
    if address.startswith(("#", "http://", "https://")):
        return True
    return bool(address) and ":" not in address.partition("/")[0] and not address.startswith(("//", "\\"))


def asset(name: str) -> str:
    """Return a file of the templates' folder."""
    return (files("harness.report") / "templates" / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return what a content security policy calls a script or a style by."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

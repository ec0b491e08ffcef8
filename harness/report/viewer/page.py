"""The viewer's HTML, alone or as part of a larger page; whatever a model wrote travels as inert JSON."""

import json
from typing import Any

from harness.report.html import asset, content_hash, environment


def viewer_html(data: dict[str, Any] | None, title: str = "Tokens") -> str:
    """Write a page by itself: no network, no other file, and only its own script and style may run."""
    style, script = asset("style.css") + asset("viewer.css"), asset("viewer.js")
    template = environment().get_template("viewer.html.j2")
    return template.render(
        title=title,
        data=embedded(data),
        style=style,
        script=script,
        style_hash=content_hash(style),
        script_hash=content_hash(script),
    )


def viewer_fragment(data: dict[str, Any], name: str = "tokens", *, assets: bool = True) -> str:
    """Write the viewer for a page of ours; `assets` False where another viewer has brought style and script.

    It brings no heading; the page's sheet defines the colours (`--paper`, `--ink`, `--soft`, `--line`, `--tint`).
    """
    style, script = (asset("viewer.css"), asset("viewer.js")) if assets else ("", "")
    template = environment().get_template("viewer_part.html.j2")
    return template.render(name=name, data=embedded(data), style=style, script=script)


def embedded(data: dict[str, Any] | None) -> str:
    """Write JSON that can stand in a `script` element: ASCII only, and no `<`, `>` or `&`."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

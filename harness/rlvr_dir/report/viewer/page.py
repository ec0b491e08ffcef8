"""Render the viewer as HTML, as its own page or as part of a larger one. Text from models is embedded as inert JSON."""

import json
from typing import Any

from rlvr_dir.report.html import asset, content_hash, environment


def viewer_html(data: dict[str, Any] | None, title: str = "Tokens") -> str:
    """Return a separate page that needs no network and no other file, and in which only its own script and style may
    run."""
    style, script = asset("style.css") + asset("viewer.css"), asset("viewer.js")
    return _page("viewer.html.j2", style, script, title=title, data=embedded(data))


def playground_html(config: dict[str, Any]) -> str:
    """Return the page on which a user compares several decodings at once; `rlvr-dir serve` serves it.

    Args:
        config: `name` of the pair as a model, `rules`, `problem` and its answer `gold` to begin with, `max_tokens`, and
            whether it is `guarded` by a key.
    """
    style = asset("style.css") + asset("viewer.css") + asset("playground.css")
    script = asset("viewer.js") + asset("playground.js")
    return _page("playground.html.j2", style, script, name=config["name"], config=embedded(config))


def _page(template: str, style: str, script: str, **values: Any) -> str:
    """Fill in a page that allows one style and one script, by their digests."""
    hashes = {"style_hash": content_hash(style), "script_hash": content_hash(script)}
    return environment().get_template(template).render(style=style, script=script, **hashes, **values)


def viewer_fragment(data: dict[str, Any], name: str = "tokens", *, assets: bool = True) -> str:
    """Return the viewer for one of our pages; `assets` is False if another viewer has added style and script.

    It has no heading. The page's style sheet defines the colours (`--paper`, `--ink`, `--soft`, `--line`, `--tint`).
    """
    style, script = (asset("viewer.css"), asset("viewer.js")) if assets else ("", "")
    template = environment().get_template("viewer_part.html.j2")
    return template.render(name=name, data=embedded(data), style=style, script=script)


def embedded(data: dict[str, Any] | None) -> str:
    """Return JSON that can be part of a `script` element: ASCII only, and no `<`, `>` or `&`."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

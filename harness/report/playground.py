"""The playground's page: a problem, answered under several rules at once, in the token viewer's colours.

It asks the server that it comes from, and nobody else.
"""

from typing import Any

from harness.report.html import asset, content_hash, environment
from harness.report.viewer.page import embedded


def playground_html(config: dict[str, Any]) -> str:
    """Write the page.

    Args:
        config: `name` of the pair as a model, `rules`, `problem` and its answer `gold` to begin with, `max_tokens`,
            and whether it is `guarded` by a key.
    """
    style = asset("style.css") + asset("viewer.css") + asset("playground.css")
    script = asset("viewer.js") + asset("playground.js")
    return (
        environment()
        .get_template("playground.html.j2")
        .render(
            name=config["name"],
            config=embedded(config),
            style=style,
            script=script,
            style_hash=content_hash(style),
            script_hash=content_hash(script),
        )
    )

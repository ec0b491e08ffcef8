"""A response that carries its facts through lm-eval: text to everyone else, counters to us."""

from typing import Any


class Response(str):
    """A `str` with `info`: what the engine counted (tokens, replacements) and later the verdict.

    lm-eval's return type is text; a subclass passes its filters, JSON and pickle. Any string operation gives a plain
    `str` again, so facts that a foreign filter dropped are absent, never wrong.
    """

    __slots__ = ("info",)
    info: dict[str, Any]

    def __new__(cls, text: str, info: dict[str, Any] | None = None) -> "Response":
        response = super().__new__(cls, text)
        response.info = dict(info or {})
        return response

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, Any]]]:
        return type(self), (str(self), self.info)


def facts(response: str) -> dict[str, Any]:
    """Copy the response's facts; empty for a plain string."""
    return dict(getattr(response, "info", {}))

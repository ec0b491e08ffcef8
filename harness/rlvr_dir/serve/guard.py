"""Guard vLLM's application with ASGI middleware: which paths are served, to whom, and until when.

Limits on the size of a body and on concurrent requests are left to a reverse proxy.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from rlvr_dir.config.serving import is_loopback
from rlvr_dir.errors import UserError
from rlvr_dir.serve.client import PairClient

OPEN = ("/health", "/ping", "/version", "/v1/models", "/metrics")  # paths that do not use the engine
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Guard:
    """Pass a request on, or reply with an error of one sentence."""

    def __init__(self, app: Any) -> None:
        """Wrap `app`. The engine is in its state."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; see ASGI."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        state, path = scope["app"].state, scope["path"].rstrip("/")
        client: PairClient = state.rlvr_client
        if state.rlvr_local and not is_loopback(_host(scope)):
            only = UserError("This server answers its own machine only", accepted="a loopback address, or an api_key")
            await _refuse(send, 403, str(only))
        elif path in state.rlvr_pages and scope["method"] in ("GET", "HEAD"):
            await _send(send, 200, state.rlvr_pages[path], b"text/html; charset=utf-8")
        elif path in OPEN or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
        elif path not in PATHS:
            await _refuse(send, 404, str(UserError(f"{scope['path']} is not served", accepted=", ".join(PATHS))))
        elif client.ending:
            await _refuse(send, 503, "the server is shutting down and accepts no more requests")
        else:
            await self._app(scope, receive, send)


def _host(scope: Scope) -> str:
    """Return the host in a request. Another site's page may have pointed its own name at this machine."""
    named = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return urlsplit(f"//{named}").hostname or ""


async def _refuse(send: Send, status: int, sentence: str) -> None:
    """Send an error in the form that OpenAI's clients read."""
    kind = {403: "PermissionDeniedError", 404: "NotFoundError"}.get(status, "ServiceUnavailableError")
    body = json.dumps({"error": {"message": sentence, "type": kind, "param": None, "code": status}}).encode()
    await _send(send, status, body, b"application/json", [(b"retry-after", b"1")] if status == 503 else [])


async def _send(send: Send, status: int, body: bytes, kind: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

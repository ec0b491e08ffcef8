"""The door of the server: which paths are served, how large a body may be, how many are answered at once, the end."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from harness.serve.client import PairClient
from harness.spec.serving import Limits, is_loopback

OPEN = ("/health", "/ping", "/version", "/v1/models")  # paths that ask the engine for nothing
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Guard:
    """ASGI middleware around vLLM's application."""

    def __init__(self, app: Any) -> None:
        """Stand before `app`; the engine and the limits are those of its state."""
        self._app, self._answering = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or turn it down with one sentence."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        state, path = scope["app"].state, scope["path"].rstrip("/")
        client: PairClient = state.rlvr_client
        limits: Limits = state.rlvr_limits
        if state.rlvr_local and not is_loopback(_host(scope)):
            await _refuse(
                send, 403, "this server is for this machine only; accepted: a loopback address, or an api_key"
            )
        elif path in state.rlvr_pages and scope["method"] in ("GET", "HEAD"):
            await _send(send, 200, state.rlvr_pages[path], b"text/html; charset=utf-8")
        elif path in OPEN or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
        elif path not in PATHS:
            await _refuse(send, 404, f"{scope['path']} is not served; accepted: {', '.join(PATHS)}")
        elif client.ending:
            await _refuse(send, 503, "the server is ending and takes no more requests", retry=True)
        elif self._answering >= limits.most_requests:
            most = limits.most_requests
            await _refuse(send, 429, f"{most} requests are being answered already, the most there may be", retry=True)
        else:
            await self._answer(scope, receive, send, client, limits)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, client: PairClient, limits: Limits) -> None:
        begun, size, most = False, 0, limits.most_kib * 1024

        async def bounded() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message if size <= most else {"type": "http.disconnect"}

        async def watched(message: Any) -> None:
            nonlocal begun
            if size <= most or begun:  # else what is said of half a body is not sent
                begun = True
                await send(message)

        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit():
            size = int(length) if int(length) > most else 0
        self._answering += 1
        client.answering(1)
        try:
            if size <= most:
                await self._app(scope, bounded, watched)
        except Exception:
            if size <= most:
                raise
        finally:
            self._answering -= 1
            client.answering(-1)
        if size > most and not begun:
            await _refuse(send, 413, f"the body is larger than {limits.most_kib} KiB")


def _host(scope: Scope) -> str:
    """Return the host that a request names; a page from elsewhere may have made its own name lead here."""
    named = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return urlsplit(f"//{named}").hostname or ""


async def _refuse(send: Send, status: int, sentence: str, *, retry: bool = False) -> None:
    """Send an error as OpenAI's clients read it."""
    kind = {403: "PermissionDeniedError", 404: "NotFoundError", 413: "BadRequestError", 429: "RateLimitError"}.get(
        status, "ServiceUnavailableError"
    )
    body = json.dumps({"error": {"message": sentence, "type": kind, "param": None, "code": status}}).encode()
    await _send(send, status, body, b"application/json", [(b"retry-after", b"1")] if retry else [])


async def _send(send: Send, status: int, body: bytes, kind: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

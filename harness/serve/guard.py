"""The door of the server: which paths are served, how large a body may be, how many are answered at once, the end."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from harness.serve.client import PairClient
from harness.spec.serving import Limits, is_loopback

OPEN = ("/health", "/ping", "/version", "/v1/models")  # paths that ask the engine for nothing
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
PATIENCE = 30  # seconds for the first request of a connection, and for a body
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
        elif (body := await _body(scope, receive, send, limits)) is not None:
            if client.ending:
                await _refuse(send, 503, "the server is ending and takes no more requests", retry=True)
            elif self._answering >= (most := limits.most_requests):
                sentence = f"{most} requests are being answered already, the most there may be"
                await _refuse(send, 429, sentence, retry=True)
            else:
                await self._answer(scope, body, receive, send, client)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send, client: PairClient) -> None:
        given = False

        async def replayed() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        self._answering += 1
        client.answering(1)
        try:
            await self._app(scope, replayed, send)
        finally:
            self._answering -= 1
            client.answering(-1)


async def _body(scope: Scope, receive: Receive, send: Send, limits: Limits) -> bytes | None:
    """Return a request's body; None where it was refused, as too large or too slow, or its caller is gone.

    It is whole before the request counts as one that is being answered: a slow one keeps nobody waiting.
    """
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    most, body, more = limits.most_kib * 1024, b"", True
    try:
        async with asyncio.timeout(PATIENCE):
            while more and len(body) <= most and not (length.isdigit() and int(length) > most):
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body, more = body + message.get("body", b""), message.get("more_body", False)
    except TimeoutError:
        await _refuse(send, 408, f"the body was not whole after {PATIENCE} s")
        return None
    if more or len(body) > most:
        await _refuse(send, 413, f"the body is larger than {limits.most_kib} KiB")
        return None
    return body


class ImpatientProtocol(AutoHTTPProtocol):
    """uvicorn's HTTP protocol, which closes a connection whose first request does not come within `PATIENCE`."""

    loop: Any
    cycle: Any

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request; see uvicorn's."""
        super().connection_made(transport)
        self.loop.call_later(PATIENCE, lambda: None if self.cycle else transport.close())


def _host(scope: Scope) -> str:
    """Return the host that a request names; a page from elsewhere may have made its own name lead here."""
    named = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return urlsplit(f"//{named}").hostname or ""


async def _refuse(send: Send, status: int, sentence: str, *, retry: bool = False) -> None:
    """Send an error as OpenAI's clients read it."""
    kind = {
        403: "PermissionDeniedError",
        404: "NotFoundError",
        408: "BadRequestError",
        413: "BadRequestError",
        429: "RateLimitError",
    }.get(status, "ServiceUnavailableError")
    body = json.dumps({"error": {"message": sentence, "type": kind, "param": None, "code": status}}).encode()
    await _send(send, status, body, b"application/json", [(b"retry-after", b"1")] if retry else [])


async def _send(send: Send, status: int, body: bytes, kind: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""The server's door alone, before a small application: slow and silent callers keep nobody waiting."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import uvicorn

from harness.serve import guard
from harness.spec.serving import Limits

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n"


async def echo(scope, receive, send):
    """Answer with the body that was sent."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


async def asked(port, data, wait=True):
    """Send bytes, and give all that comes until the server closes, or only the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return await reader.read() if wait else writer


async def serving(check):
    """Run `check` with the port of a server that answers one request at a time."""
    client = SimpleNamespace(ending=False, answering=lambda change: None)
    limits = Limits(most_requests=1)
    application = SimpleNamespace(
        state=SimpleNamespace(rlvr_client=client, rlvr_limits=limits, rlvr_local=True, rlvr_pages={})
    )
    inner = guard.Guard(echo)

    async def app(scope, receive, send):
        await inner({**scope, "app": application}, receive, send)

    config = uvicorn.Config(app, port=0, lifespan="off", log_level="error", http=guard.ImpatientProtocol)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        return await check(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await running


def test_a_slow_body_keeps_nobody_waiting_and_ends(monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 2)

    async def check(port):
        slow = [asyncio.create_task(asked(port, HEAD + b"1")) for _ in range(8)]
        await asyncio.sleep(0.2)
        quick = await asked(port, HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + b"1234567890")
        return quick, [await each for each in slow]

    quick, slow = asyncio.run(serving(check))
    assert quick.startswith(b"HTTP/1.1 200")
    assert b"1234567890" in quick
    assert all(b"408" in each.splitlines()[0] and b"the body was not whole after 2 s" in each for each in slow)


def test_a_connection_that_asks_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 1)

    async def check(port):
        return await asyncio.wait_for(asyncio.gather(asked(port, b""), asked(port, HEAD[:20])), timeout=60)

    assert asyncio.run(serving(check)) == [b"", b""]

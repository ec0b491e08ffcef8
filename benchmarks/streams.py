"""Run a server of the tiny pair and send it many requests at once."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Request
from rlvr_dir.errors import UserError
from rlvr_dir.tiny import benchmark

RULE = Decoding(mode="replace", tau=-0.1)


@dataclass
class Load:
    """Hold what users saw: for each answer its token ids, the seconds to its first token and to its end."""

    seconds: float = 0.0
    answers: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def made_requests(count: int, tokens: int) -> list[Request]:
    rows = benchmark("tiny_medium")
    sampling = Sampling(max_tokens=tokens, seed=0)
    return [
        Request(f"<s>{rows[i % len(rows)]['problem']}", f"bench/{i % len(rows)}", i // len(rows), RULE, sampling)
        for i in range(count)
    ]


@contextmanager
def running_server(threads: int, *options: str) -> Iterator[tuple[Any, str]]:
    """Start the server; yield its process and its address.

    Raises:
        UserError: It does not start.
    """
    command = [sys.executable, "-m", "rlvr_dir.cli", "serve", "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    environment["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-") as folder:
        log = Path(folder) / "serve.err"
        with log.open("wb") as err:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, env=environment)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("serving at "):
                raise UserError(f"the server does not start: {log.read_text(errors='replace').strip()[-300:]}")
            yield process, line.split()[2].rstrip(";")
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


async def ask_server(url: str, asked: Sequence[Request], users: int, *, stream: bool) -> Load:
    """Let users send all requests; each takes the next one that nobody has sent.

    Raises:
        UserError: The server rejects a request, or ends an answer too early.
    """
    load, waiting, texts = Load(), iter(asked), dict[tuple[str, int], bytes]()
    address = urlsplit(url)
    where = address.hostname or "", address.port or 0

    async def user() -> None:
        _, asker = await asyncio.get_running_loop().create_connection(_Asker, *where)
        for request in waiting:
            begun = perf_counter()
            first, end, text = await asker.ask(f"{address.path}/completions", _body(request, stream))
            texts[request.problem, request.sample] = text
            load.first.append(first - begun)
            load.whole.append(end - begun)
        asker.transport.close()

    begun = perf_counter()
    await asyncio.gather(*(user() for _ in range(users)))
    load.seconds = perf_counter() - begun
    load.answers = {key: _token_ids(text, stream) for key, text in texts.items()}
    return load


class _Asker(asyncio.Protocol):
    """Send one request after another on a connection and store the bytes, which are read after the load.

    It shares the processors with what is measured, so it does no more than that, unlike an OpenAI client.
    """

    transport: Any

    def connection_made(self, transport: Any) -> None:
        """Store the transport to the server."""
        self.transport = transport

    def ask(self, path: str, body: dict[str, Any]) -> asyncio.Future[tuple[float, float, bytes]]:
        """Send a request; return when the first and the last data arrived, and the whole answer."""
        data = json.dumps(body).encode()
        self._pieces, self._first, self._length, self._size = list[bytes](), 0.0, 0, 0
        self._done = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.transport.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return self._done

    def data_received(self, data: bytes) -> None:
        """Store a part, and check whether it is the last: for a stream an empty chunk, otherwise by its length."""
        if not self._pieces:
            head, _, _ = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
            self._length = len(head) + 4 + int(length[1]) if length else 0
        self._pieces.append(data)
        self._size += len(data)
        if not self._first and (self._length or b"data: {" in data):
            self._first = perf_counter()
        if self._size >= self._length if self._length else data.endswith(b"0\r\n\r\n"):
            self._done.set_result((self._first, perf_counter(), b"".join(self._pieces)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that no more data will arrive."""
        if not self._done.done():
            self._done.set_exception(UserError("the server left in the middle of an answer"))


def _token_ids(text: bytes, stream: bool) -> list[int]:
    """Return the token ids in an answer, with its head.

    Raises:
        UserError: It is an error.
    """
    if not text.startswith(b"HTTP/1.1 200"):
        raise UserError(f"the server answers {text[:300].decode(errors='replace')}")
    if not stream:
        return json.loads(text.partition(b"\r\n\r\n")[2])["choices"][0]["token_ids"]
    chunks = [json.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: {")]
    return [each for chunk in chunks for choice in chunk["choices"] for each in choice["token_ids"] or ()]


def _body(request: Request, stream: bool) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "model": "tiny:replace,tau=-0.1", "prompt": request.prompt, "problem": request.problem,
        "sample": request.sample, "seed": sampling.seed, "max_tokens": sampling.max_tokens, "stream": stream,
        "return_token_ids": True,
    }  # fmt: skip

"""The server's speed beside offline decoding of the same requests, in one run: tokens a second, time to the first one.

A server (a process with its engine in another) and an engine in this process take turns, one round at a time. In a
round each decodes the same problems under the same keys; the server is asked by so many users at once, each of whom
asks again when he is answered; the engine has as many responses in its batch. The tokens must be the same ones.
"""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from harness.bench.decode import machine
from harness.decode import Request, open_engine
from harness.errors import UserError
from harness.spec import Decoding, EngineSpec, Sampling
from harness.tiny import benchmark, tiny_pair

RULE = Decoding(mode="replace", tau=-0.1)
LONG = {"temperature": 20.0, "top_p": 1.0, "decoding": "base"}  # hardly ever ends before its limit


@dataclass
class Load:
    """What users saw: of each answer its token ids, the seconds to its first token and to its end."""

    seconds: float = 0.0
    answers: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def bench_serve(
    *,
    users: int = 64,
    requests: int = 512,
    rounds: int = 3,
    tokens: int = 128,
    threads: int = 1,
    eager: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure the tiny pair, served and offline.

    Args:
        users: who ask at once.
        requests: of a round, each for one response.
        rounds: measured, after one that warms up.
        tokens: new tokens of a response, at most.
        threads: that decode, on either side; the server's own process and its users come on top.
        eager: compile nothing, on either side.
        say: is told how far the run is.

    Returns:
        A plain object: `served_to_offline` (median over rounds of the ratio of tokens a second, for users who take
        whole answers and for those who stream), `tokens_per_second`, `first_token_s` and `answer_s` (p50 and p95 of
        streams), `left` and `ended` (what became of running requests), `settings`, `machine`, `date`.

    Raises:
        UserError: the server does not start, or gives other tokens than the engine.
    """
    import torch
    import uvloop

    settings = {
        "users": users, "requests": requests, "rounds": rounds, "tokens": tokens, "threads": threads, "eager": eager,
    }  # fmt: skip
    torch.set_num_threads(threads)
    asked = made_requests(requests, tokens)
    flags = () if not eager else ("--enforce-eager",)
    spec = EngineSpec(backend="vllm", kv_cache_gib=0.5, enforce_eager=eager, max_num_seqs=users)
    kinds = ("offline", "whole", "streamed")
    speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    loads: list[Load] = []
    say("starting the server")
    with running_server(threads, "--kv-cache-gib", "0.5", *flags) as (process, url):
        say("starting the engine")
        with open_engine(tiny_pair(), spec) as engine:
            for number in range(rounds + 1):
                say(f"round {number} of {rounds}" if number else "warming up")
                begun = perf_counter()
                offline = {(each.request.problem, each.request.sample): each for each in engine.generate(asked)}
                seconds = perf_counter() - begun
                count = sum(each.n_tokens for each in offline.values())
                for kind in kinds[1:]:
                    load = uvloop.run(ask_server(url, asked, users, stream=kind == "streamed"))
                    for key, ids in load.answers.items():
                        if tuple(ids) != offline[key].token_ids:
                            raise UserError(f"the server gave other tokens than the engine for {key}")
                    if number:
                        speeds[kind].append(count / load.seconds)
                        loads += [load] if kind == "streamed" else []
                if number:
                    speeds["offline"].append(count / seconds)
        say("clients that leave, and the end")
        ends = asyncio.run(_ends(process, url, users))
    pairs = {
        kind: statistics.median(a / b for a, b in zip(speeds[kind], speeds["offline"], strict=True))
        for kind in kinds[1:]
    }
    return {
        "served_to_offline": pairs,
        "tokens_per_second": {kind: statistics.median(each) for kind, each in speeds.items()},
        "first_token_s": _quantiles([each for load in loads for each in load.first]),
        "answer_s": _quantiles([each for load in loads for each in load.whole]),
        **ends,
        "settings": settings,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def made_requests(count: int, tokens: int) -> list[Request]:
    rows = benchmark("tiny_medium")
    sampling = Sampling(max_tokens=tokens, seed=0)
    return [
        Request(f"<s>{rows[i % len(rows)]['problem']}", f"bench/{i % len(rows)}", i // len(rows), RULE, sampling)
        for i in range(count)
    ]


@contextmanager
def running_server(threads: int, *options: str) -> Iterator[tuple[Any, str]]:
    """Start the server; give its process and its address.

    Raises:
        UserError: it does not start.
    """
    command = [sys.executable, "-m", "harness.cli", "serve", "--port", "0", *options]
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
    """Let users ask for everything; each asks for the next response that nobody has asked for.

    Raises:
        UserError: the server refuses, or ends an answer before its end.
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
    """A connection that asks for one answer after another and keeps its bytes; they are read when the load is over.

    It shares the processors with what is measured, so it does no more than that: not what a client of OpenAI's does.
    """

    transport: Any

    def connection_made(self, transport: Any) -> None:
        """Keep the way to the server."""
        self.transport = transport

    def ask(self, path: str, body: dict[str, Any]) -> asyncio.Future[tuple[float, float, bytes]]:
        """Ask; return when the first data came, when the last, and all of the answer."""
        data = json.dumps(body).encode()
        self._pieces, self._first, self._length, self._size = list[bytes](), 0.0, 0, 0
        self._done = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.transport.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return self._done

    def data_received(self, data: bytes) -> None:
        """Keep a piece, and see whether it is the last: of a stream an empty chunk, else by its length."""
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
        """Tell whoever waits that nothing more comes."""
        if not self._done.done():
            self._done.set_exception(UserError("the server left in the middle of an answer"))


def _token_ids(text: bytes, stream: bool) -> list[int]:
    """Return the token ids in an answer, with its head.

    Raises:
        UserError: it is a refusal.
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


async def _ends(process: Any, url: str, users: int) -> dict[str, Any]:
    """Let half of the users leave in the middle of a stream, then end the server under the others' requests.

    Returns `left` (streams that were left, and how long the next answer took) and `ended` (streams that ran at SIGTERM,
    those that came to their end, those that did not).
    """
    import aiohttp

    body = {**LONG, "model": "tiny", "prompt": "<s>1", "stream": True, "max_tokens": 200}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        leaving = [
            await session.post(f"{url}/completions", json={**body, "max_tokens": 1500}) for _ in range(users // 2)
        ]
        await asyncio.gather(*(answer.content.readline() for answer in leaving))
        for answer in leaving:
            answer.close()
        begun = perf_counter()
        await (await session.post(f"{url}/completions", json={**body, "max_tokens": 4, "stream": False})).read()
        next_answer = perf_counter() - begun
        staying = [await session.post(f"{url}/completions", json=body) for _ in range(users)]
        await asyncio.gather(*(answer.content.readline() for answer in staying))
        process.send_signal(signal.SIGTERM)
        ends = [(await answer.read()).rstrip() for answer in staying]
    whole = sum(end.endswith(b"data: [DONE]") and b'"error"' not in end for end in ends)
    return {
        "left": {"streams": len(leaving), "next_answer_s": next_answer},
        "ended": {"running": len(ends), "whole": whole, "lost": len(ends) - whole},
    }


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    import numpy as np

    return {name: float(np.quantile(values, q)) for name, q in {"p50": 0.5, "p95": 0.95}.items()}

"""Measure the server's speed and that of offline decoding of the same requests: tokens per second, time to the first
one.

A server (a process with its engine in another) and an engine in this process take turns, one round at a time. In a
round each decodes the same problems with the same keys. The server has a number of concurrent users, each of whom sends
the next request after the answer; the engine has as many responses in its batch. The tokens must be the same.
"""

import asyncio
import signal
import statistics
from collections.abc import Callable, Sequence
from datetime import date
from time import perf_counter
from typing import Any

from benchmarks.script import run
from benchmarks.streams import Load, ask_server, made_requests, running_server
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.errors import UserError
from rlvr_dir.tiny import tiny_pair

LONG = {"temperature": 20.0, "top_p": 1.0, "decoding": "base"}  # hardly ever ends before its limit


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
        users: Concurrent users.
        requests: Requests per round, each for one response.
        rounds: Measured rounds, after one to warm up.
        tokens: The most new tokens of a response.
        threads: Threads that decode, on either side, in addition to the server's own process and its users.
        eager: Skip compilation, on either side.
        say: Called with the progress.

    Returns:
        A plain object: `served_to_offline` (median over rounds of the ratio of tokens per second, for users who receive
            whole answers and for those who stream), `tokens_per_second`, `first_token_s` and `answer_s` (p50 and p95 of
            streams), `left` and `ended` (what became of running requests), `settings`, `machine`, `date`.

    Raises:
        UserError: The server does not start, or returns other tokens than the engine.
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


async def _ends(process: Any, url: str, users: int) -> dict[str, Any]:
    """Let half of the users disconnect in the middle of a stream, then end the server while the others' requests run.

    Returns `left` (streams that were left, and the time of the next answer) and `ended` (streams that ran at SIGTERM,
    those that finished, those that did not).
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


if __name__ == "__main__":
    run(bench_serve)

"""SIGTERM or Ctrl-C: what runs is answered in full, what comes later is turned away, and the process ends by itself."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from openai import APIConnectionError, APIError, AsyncOpenAI, InternalServerError

from rlvr_dir.config import load_eval
from rlvr_dir.config.serving import Address, Limits
from rlvr_dir.serve.run import Served, check
from tests.facts import refuses
from tests.serve.server import problems, served, start, tell

MESSAGES = [{"role": "user", "content": problems(1)[0][1]}]
LONG = {"model": "tiny:base", "messages": MESSAGES, "temperature": 20.0, "top_p": 1.0, "max_tokens": 400, "seed": 1}


async def turned_away(client):
    """Ask for a token; return the error, if there is one."""
    try:
        await client.chat.completions.create(model="tiny:rl", messages=MESSAGES, max_tokens=1)
    except (InternalServerError, APIConnectionError) as error:
        return error


@pytest.mark.parametrize("given", ["", "ignore::BytesWarning"])
def test_semaphores_that_a_killed_process_leaves_are_no_word_to_the_user(given):
    """Ctrl-C ended with "resource_tracker: There appear to be 1 leaked semaphore objects"."""
    leaves = "import os, multiprocessing; kept = multiprocessing.get_context('spawn').Lock(); os._exit(0)"
    quiet = "from rlvr_dir.serve.run import quiet_resource_tracker; quiet_resource_tracker(); "
    environment = {**os.environ, "PYTHONWARNINGS": given}
    for code, warned in ((leaves, True), (quiet + leaves, False)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert ("leaked semaphore" in done.stderr) == warned


@pytest.mark.whole(reason="a server that is ended")
@pytest.mark.vllm
def test_ctrl_c_loses_no_request_that_was_begun(tmp_path):
    """The terminal's signal goes to the core, too; SIGTERM, whose way is the same, ends the server below."""
    with served(tmp_path) as server:

        async def everything():
            client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
            begun = [asyncio.Event() for _ in range(8)]

            async def streamed(i):
                texts, reasons = 0, []
                stream = await client.chat.completions.create(**LONG, stream=True, extra_body={"sample": i})
                async for chunk in stream:
                    begun[i].set()
                    texts += sum(bool(choice.delta.content) for choice in chunk.choices)
                    reasons += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
                return texts, reasons

            running = [asyncio.create_task(streamed(i)) for i in range(8)]
            whole = asyncio.create_task(client.chat.completions.create(**LONG, n=4))
            await asyncio.gather(*(each.wait() for each in begun))
            tell(server.process, signal.SIGINT)
            refused = None
            while refused is None:  # until it has heard
                refused = await turned_away(client)
            found = await asyncio.gather(*running)
            return found, await whole, refused

        found, whole, refused = asyncio.run(everything())
        assert all(reasons in (["stop"], ["length"]) for _, reasons in found)
        assert [each.finish_reason for each in whole.choices].count(None) == 0 < len(whole.choices) == 4
        assert isinstance(refused, APIConnectionError | InternalServerError)
        assert server.process.wait(timeout=60) == 0
    assert "Traceback" not in (tmp_path / "serve.err").read_text()


def is_spawned(process):
    """Tell whether a process was spawned to run a function, as vLLM's core is, and has not ended since."""
    try:
        return "--multiprocessing-fork" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.whole(reason="a server that is ended")
@pytest.mark.vllm
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_models_load_ends_it_at_once(signum):
    process = start(subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        while "starting vLLM" not in (line := process.stderr.readline()):
            assert line, "it ended by itself"
        loading = []
        while not any(map(is_spawned, loading)):  # until the core is there
            assert process.poll() is None
            loading = psutil.Process(process.pid).children(recursive=True)
        tell(process, signum)
        said = process.stderr.read()  # as long as any of its processes can write there
        assert process.wait(timeout=60) == 128 + signum
        assert not psutil.wait_procs(loading, timeout=60)[1]
        assert not process.stdout.read()
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
    assert "Traceback" not in said


@pytest.mark.whole(reason="a server that is ended")
@pytest.mark.vllm
def test_what_does_not_end_in_time_is_told_so(tmp_path):
    endless = {**LONG, "max_tokens": 2000, "n": 32}
    with served(tmp_path, "--grace", "1") as server:

        async def everything():
            client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
            stream = await client.chat.completions.create(**endless, stream=True)
            whole = asyncio.create_task(client.chat.completions.create(**{**endless, "seed": 2}))
            await anext(stream)
            tell(server.process, signal.SIGTERM)
            with pytest.raises(APIError, match="server"):
                async for _ in stream:
                    pass
            with pytest.raises(InternalServerError):
                await whole

        asyncio.run(everything())
        assert server.process.wait(timeout=60) == 0


def refuse(options, address=None):
    check(Served(load_eval({}, options), address or Address(), Limits()))


def test_what_cannot_be_served_is_refused_before_anything_loads(monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    for asked, *facts in (
        (({"backend": "transformers"},), "backend", "transformers", "vllm"),
        (({"workers": 2},), "workers", 2),
        (({}, Address(host="0.0.0.0")), "host", "0.0.0.0", "VLLM_API_KEY"),
        (({}, Address(host="192.0.2.1", api_key="key")), "host", "192.0.2.1"),
    ):
        with refuses(*facts):
            refuse(*asked)
    refuse({}, Address(host="0.0.0.0", port=0, api_key="key"))


def test_a_taken_port_is_refused_before_the_checkpoints_are_read():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refuses("port", port, "--port"):
            refuse({}, Address(port=port))
        done = subprocess.run(
            [sys.executable, "-m", "rlvr_dir.cli", "serve", "--port", str(port)], capture_output=True, text=True
        )
    assert done.returncode == 2
    assert "reading the checkpoints" not in done.stderr
    refuse({}, Address(port=port))  # as soon as it is free

"""Start vLLM's server on a pair, and end it."""

import asyncio
import errno
import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_dir.config import TINY, EvalSpec, Pair, parse_decoding
from rlvr_dir.config.pair import model_name
from rlvr_dir.config.presentation import INSTRUCTION
from rlvr_dir.config.serving import Address, Limits, is_loopback
from rlvr_dir.errors import UserError, mention
from rlvr_dir.serve.request_parser import SHIPPED, RequestParser
from rlvr_dir.watch import APART

EXAMPLE = 13  # the playground's first problem, of tiny_medium: base answers wrongly, and one changed token is enough


@dataclass(frozen=True)
class Served:
    """Describe what is served: an evaluation's pair, first decoding and engine; the address; and the limits.

    `sampling` contains the settings that the user gave. A request may set the others.
    """

    spec: EvalSpec
    address: Address
    limits: Limits
    listed: tuple[str, ...] = SHIPPED
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def guarded(self) -> bool:
        """Return whether clients need a key."""
        return bool(self.address.api_key or os.environ.get("VLLM_API_KEY"))

    def parser(self, name: str) -> RequestParser:
        """Return the request parser.

        Raises:
            UserError: A listed decoding is not valid.
        """
        for rule in self.listed:
            parse_decoding(rule)
        kwargs = self.spec.engine.chat_template_kwargs
        return RequestParser(name, self.spec.decodings[0], self.sampling, self.limits, self.listed, kwargs)


def check(served: Served) -> None:
    """Check the settings before anything loads.

    Raises:
        UserError: A setting is not supported; the error names it and what is accepted.
    """
    from importlib.util import find_spec

    engine, address = served.spec.engine, served.address
    if engine.backend == "transformers" or (engine.backend == "auto" and find_spec("vllm") is None):
        raise UserError(
            "cannot serve, because transformers decodes one batch after another and no request can join a running one",
            argument="backend",
            value=engine.backend,
            accepted="vllm",
            hint="Install the extra [cpu] or [gpu].",
        )
    if engine.workers > 1 or engine.ray_address:
        name, value = ("workers", engine.workers) if engine.workers > 1 else ("ray_address", engine.ray_address)
        raise UserError("is not allowed: a server has one engine", argument=name, value=value, hint="Leave it out.")
    if not served.guarded and not is_loopback(address.host):
        raise UserError(
            "needs a key",
            argument="host",
            value=address.host,
            accepted="a loopback host, or any host with a key",
            hint="Set the environment variable VLLM_API_KEY.",
        )
    served.parser("pair")
    _listen_once(address.host, address.port)


def _listen_once(host: str, port: int) -> None:
    """Listen on an address for a moment, to check that this is possible before libraries are imported.

    Raises:
        UserError: It is not.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            raise _not_listening(host, port, error) from None


def _not_listening(host: str, port: int, error: OSError) -> UserError:
    taken = error.errno == errno.EADDRINUSE
    free = "another --port; 0 selects a free one" if taken else "an address of this machine"
    problem = f"Cannot listen on {mention('host', host)} {mention('port', port)}: {error.strerror}"
    return UserError(problem, argument="port" if taken else "host", accepted=free)


def pair_name(spec: EvalSpec, named: str | None) -> str:
    """Return the pair's name as a model: the user's, `tiny`, or its RL model's."""
    if named:
        return named
    if spec.pair == TINY:
        return TINY
    pair = spec.pair
    assert isinstance(pair, Pair)
    return model_name(pair.rl).replace("/", "-").replace(":", "-")


def serve(served: Served, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the address as soon as requests are accepted.

    Raises:
        UserError: The pair cannot be served, or the address is not available.
    """
    check(served)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # also on a CPU, so that the core has its own process
    os.environ[APART] = "1"  # otherwise Ctrl-C in a terminal would end the core while it decodes requests
    quiet_resource_tracker()
    for number in (signal.SIGTERM, signal.SIGINT):  # until vLLM's server handles them
        signal.signal(number, _end_at_once)
    import uvloop  # vLLM's own server also uses it

    uvloop.run(_serve(served, announce))


def quiet_resource_tracker() -> None:
    """Make Python's resource tracker remove semaphores of a core that vLLM killed, at the end, without a warning."""
    rules = (os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning")
    os.environ["PYTHONWARNINGS"] = ",".join(rule for rule in rules if rule)


def _end_at_once(signum: int, _: object) -> None:
    """End while the models load, which a waiting thread would prevent. The core ends with its parent."""
    os._exit(128 + signum)


async def _serve(served: Served, announce: Callable[[str], None]) -> None:
    from rlvr_dir.checkpoints.resolve import resolve
    from rlvr_dir.decode.vllm_pair.start import LEVEL
    from rlvr_dir.serve.engine import ServedPair

    settings, address = served.spec, served.address
    name = pair_name(settings, address.name)
    pair = ServedPair(resolve(settings.pair), settings.engine, asyncio.get_running_loop(), served.limits)
    arguments = _arguments(served, name, pair.pair.rl)
    listening, sock = _bind(arguments)
    try:
        await asyncio.to_thread(pair.start)
        logging.getLogger("vllm").setLevel(os.environ[LEVEL])  # vLLM sets it again while it starts
        stopped = await _answer(served, served.parser(name), pair, arguments, sock, lambda: announce(listening()))
    except BaseException:
        pair.close()
        raise
    try:
        await stopped
    finally:
        sock.close()
    if pair.started:  # it is not closed yet
        pair.close()
        raise UserError("vLLM's core ended unexpectedly, so the server shuts down", hint="Start it again.")


def _arguments(served: Served, name: str, model: str) -> Any:
    """Return the arguments of vLLM's server, as its own command line would make them."""
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ModuleNotFoundError:  # vLLM 0.33
        from vllm.entrypoints.common.cli_args import make_arg_parser  # pyright: ignore[reportMissingImports]
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    address, limits = served.address, served.limits
    words = ["--host", address.host, "--port", str(address.port), "--served-model-name", *served.parser(name).models]
    words += ["--model", model, "--uvicorn-log-level", "warning", "--disable-uvicorn-access-log", "--disable-log-stats"]
    words += ["--disable-fastapi-docs", "--shutdown-timeout", str(limits.grace), "--generation-config", "vllm"]
    arguments: Any = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    arguments.api_key = [address.api_key] if address.api_key else None
    arguments.default_chat_template_kwargs = served.spec.engine.chat_template_kwargs or None
    arguments.model = name  # no path of this machine in the list of models
    arguments.middleware = ["rlvr_dir.serve.guard.Guard"]
    arguments.allowed_origins = []  # pages of other sites in the user's browser may not send requests
    return arguments


def _bind(arguments: Any) -> tuple[Callable[[], str], Any]:
    """Reserve the address before the models load; return its URL and the socket."""
    from vllm.entrypoints.launchers.launcher import create_server_socket

    try:
        sock = create_server_socket((arguments.host, arguments.port), reuse_port=False)
    except OSError as error:
        raise _not_listening(arguments.host, arguments.port, error) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does not for this one: 40 ms an answer
    arguments.port = sock.getsockname()[1]
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    return lambda: f"http://{host}:{arguments.port}", sock


async def _answer(
    served: Served, parser: RequestParser, pair: Any, arguments: Any, sock: Any, ready: Callable[[], None]
) -> Any:
    """Run vLLM's application with our handlers and guard until it is shut down."""
    from fastapi.exceptions import RequestValidationError
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.launcher import serve_http
    from vllm.exceptions import VLLMValidationError

    from rlvr_dir.serve.client import PairClient
    from rlvr_dir.serve.openai import PairChat, PairCompletion, misread, refused

    client: Any = PairClient(pair)
    tasks = await client.get_supported_tasks()
    app = build_app(arguments, tasks, client.model_config)
    app.add_exception_handler(RequestValidationError, misread)
    app.add_exception_handler(VLLMValidationError, refused)
    app.middleware_stack = app.build_middleware_stack()  # `build_app` has built one, with vLLM's handler in it
    await init_app_state(client, app.state, arguments, tasks)
    app.state.openai_serving_chat = PairChat.of(app.state.openai_serving_chat, parser)
    app.state.openai_serving_completion = PairCompletion.of(app.state.openai_serving_completion, parser)
    app.state.rlvr_client = client
    app.state.rlvr_local = not served.guarded
    app.state.rlvr_pages = _pages(served, parser) if served.address.ui else {}
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sock.listen()  # requests from now on wait until they are answered
    ready()
    return await serve_http(
        app, sock=sock, host=arguments.host, port=arguments.port, log_level="warning", access_log=False,
        timeout_graceful_shutdown=5,
    )  # fmt: skip


def _pages(served: Served, parser: RequestParser) -> dict[str, bytes]:
    """Return the pages beside the API, by path: the playground, and the empty viewer in which it saves a view."""
    from rlvr_dir.report.viewer import playground_html, viewer_html
    from rlvr_dir.tiny import benchmark

    tiny = benchmark("tiny_medium")[EXAMPLE]
    problem, gold = (
        (tiny["problem"] + INSTRUCTION, tiny["answer"])
        if served.spec.pair == TINY
        else (
            "Flo has 17 pens, gives 5 away and then buys three packs of 10. How many has she now?" + INSTRUCTION,
            "42",
        )
    )
    most = served.limits.most_tokens or parser.sampling.get("max_tokens", 512)
    config = {
        "name": parser.name,
        "rules": ["base", "rl", "replace", "extrapolate,gamma=0.1"],
        "problem": problem,
        "gold": str(gold),
        "max_tokens": min(most, 512),
        "guarded": served.guarded,
    }
    return {"": playground_html(config).encode(), "/viewer.html": viewer_html(None, "Playground").encode()}

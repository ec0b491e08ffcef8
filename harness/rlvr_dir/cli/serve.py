"""Define `rlvr-dir serve`, an OpenAI-compatible server for a pair."""

import os
import sys
from typing import Annotated, Any

import typer

from rlvr_dir.cli.base import echo
from rlvr_dir.cli.evaluate import announce_tiny
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling, load_eval, parse
from rlvr_dir.config.serving import Address, Limits


@spec_options(Address, Pair, Decoding, Sampling, Limits, EngineSpec, without=("samples",))
def serve_command(
    options: dict[str, Any],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "-d",
            "--decoding",
            "--rule",
            help="A decoding to list as a model, such as replace,tau=-0.3. Can be repeated.",
        ),
    ] = None,
) -> None:
    """Serve a pair with OpenAI's API (chats and completions). Every request may choose its own decoding.

    The server is vLLM's. A request sets its decoding in the model's name or in additional fields (extra_body).
    Otherwise the decoding of the options is used. The same seed, problem and sample give the same tokens as `eval`. For
    example:

    \b
        rlvr-dir serve                                     # the tiny pair at http://127.0.0.1:8000
        rlvr-dir serve --pair dapo-32b --mode extrapolate --tau -0.3 --gamma 0.05
        curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
            -d '{"model": "tiny:replace,tau=-0.1", "prompt": "<bos>Ann has 45 pens a gets 7 how many ?", "seed": 0}'

    A request may set every field of a decoding, temperature, top_p, max_tokens, seed, problem, sample and n. On
    SIGTERM running requests are finished.
    """
    from rlvr_dir.serve.run import Served, serve

    address, limits = (
        {name: value for name, value in options.items() if name in kind.model_fields} for kind in (Address, Limits)
    )
    spec = load_eval({}, {name: value for name, value in options.items() if name not in address | limits})
    served = Served(
        spec,
        parse(Address, address),
        parse(Limits, limits),
        sampling={name: value for name, value in options.items() if name in Sampling.options()},
        **({"listed": tuple(rules)} if rules else {}),
    )
    announce_tiny(spec)

    def announce(address: str) -> None:
        page = f", a playground at {address}/" if served.address.ui else ""
        echo(f"serving at {address}/v1{page}; Ctrl-C ends it")

    serve(served, announce)
    sys.stdout.flush()
    os._exit(0)  # everything is closed; unloading vLLM's modules would print messages of Triton's bindings

"""`rlvr-dir serve`: an OpenAI server on a pair."""

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
        typer.Option("-d", "--rule", help="A rule that is listed as a model, as 'replace,tau=-0.3'; several."),
    ] = None,
) -> None:
    """Serve a pair as OpenAI's API, a rule for each request.

    Chats and completions.

    The server is vLLM's. A request says its rule in the model's name or in fields beside OpenAI's (extra_body), and
    else has the one of the options here. The same seed, problem and sample give the tokens that eval gives:

    \b
        rlvr-dir serve                                     # the tiny pair at http://127.0.0.1:8000
        rlvr-dir serve --pair dapo-32b --mode extrapolate --tau -0.3 --gamma 0.05
        curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
            -d '{"model": "tiny:replace,tau=-0.1", "prompt": "Problem: 2 + 3 = ?", "seed": 0, "max_tokens": 64}'

    In a request: mode, criterion, tau, gamma, primary, window, temperature, top_p, max_tokens, seed, problem, sample,
    n. SIGTERM lets running requests end.
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
    os._exit(0)  # all is closed; to take vLLM's modules apart would print what Triton's bindings leave behind

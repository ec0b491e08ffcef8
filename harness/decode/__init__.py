"""Engines behind one protocol: `open_engine(pair, spec).generate(requests)` yields rollouts as they finish."""

from importlib.util import find_spec
from typing import Any

from harness.decode.trace import Trace
from harness.decode.types import Engine, Request, Rollout
from harness.errors import UserError
from harness.spec import EngineSpec, Pair

__all__ = ["Engine", "Request", "Rollout", "Trace", "open_engine"]


def open_engine(pair: Pair, spec: EngineSpec | None = None, *, lazily: bool = False) -> Engine:
    """The engine that `spec.backend` names, loaded and ready; `lazily`, its weights wait for the first `generate`.

    `auto` takes vLLM where it is installed, else transformers. Several `workers`, or a `ray_address`, make it a pool of
    such engines on Ray.

    Raises:
        UserError: the checkpoints do not fit together, vLLM is asked for and absent, or a setting cannot be served.
    """
    spec = spec or EngineSpec()
    installed = find_spec("vllm") is not None
    if spec.backend == "vllm" and not installed:
        raise UserError(
            "backend='vllm': vLLM is not installed; install the extra [cpu] or [gpu], or use backend=transformers"
        )
    engine: Any
    if spec.workers > 1 or spec.ray_address:
        from harness.decode.ray_pool import RayEngines

        engine = RayEngines(pair, spec)
    elif spec.backend == "transformers" or not installed:
        from harness.decode.transformers_pair import TransformersPair

        engine = TransformersPair(pair, spec)
    else:
        from harness.decode.vllm_pair.engine import VllmPair

        engine = VllmPair(pair, spec)
    if not lazily:
        engine.start()
    return engine

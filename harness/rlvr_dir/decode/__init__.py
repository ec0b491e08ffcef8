"""Decode with engines behind one protocol: `open_engine(pair, spec).generate(requests)` yields rollouts as they finish.

Names are imported on first use, so that reading the traces of stored responses does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.trace import Trace

if TYPE_CHECKING:
    from rlvr_dir.decode.engine import Engine
    from rlvr_dir.decode.types import Request, Rollout

__all__ = ["Engine", "Request", "Rollout", "Trace", "open_engine"]

_HOMES = {"Engine": "engine", "Request": "types", "Rollout": "types"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"rlvr_dir.decode.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_engine(pair: Pair, spec: EngineSpec | None = None, *, lazily: bool = False) -> "Engine":
    """Open the engine that `spec.backend` names, loaded and ready. With `lazily`, the first `generate` loads its
    weights.

    `auto` uses vLLM if it is installed, otherwise transformers. With several `workers`, or a `ray_address`, it is a
    pool of such engines on Ray.

    Raises:
        UserError: The checkpoints do not fit together, vLLM is requested but not installed, or a setting is not
            supported.
    """
    spec = spec or EngineSpec()
    engine: Engine
    if spec.workers > 1 or spec.ray_address:
        from rlvr_dir.decode.ray.pool import RayEngines

        engine = RayEngines(pair, spec)
    else:
        from rlvr_dir.decode.single import single_engine

        engine = single_engine(pair, spec)
    if not lazily:
        engine.start()
    return engine

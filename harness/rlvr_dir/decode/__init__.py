"""Engines behind one protocol: `open_engine(pair, spec).generate(requests)` yields rollouts as they finish.

Names are resolved on first use: what reads the traces of stored responses does not wait for torch.
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
    """Open the engine that `spec.backend` names, loaded and ready; `lazily`, its weights wait for the first `generate`.

    `auto` takes vLLM where it is installed, else transformers. Several `workers`, or a `ray_address`, make it a pool of
    such engines on Ray.

    Raises:
        UserError: the checkpoints do not fit together, vLLM is asked for and absent, or a setting cannot be served.
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

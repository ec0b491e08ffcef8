"""Choose a single engine. `rlvr_dir.decode` opens one or several."""

from importlib.util import find_spec

from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.engine import Engine
from rlvr_dir.errors import UserError


def single_engine(pair: Pair, spec: EngineSpec) -> Engine:
    """Return the engine that `spec.backend` names. Its weights are not loaded yet.

    Raises:
        UserError: The checkpoints do not fit together, vLLM is requested but not installed, or a setting is not
            supported.
    """
    installed = find_spec("vllm") is not None
    if spec.backend == "vllm" and not installed:
        raise UserError(
            "needs vLLM, which is not installed",
            argument="backend",
            value="vllm",
            hint="Install the extra [cpu] or [gpu], or use backend=transformers",
        )
    if spec.backend == "transformers" or not installed:
        from rlvr_dir.decode.transformers_pair import TransformersPair

        return TransformersPair(pair, spec)
    if spec.draft:
        raise UserError(
            "is not supported by backend='vllm'",
            argument="draft",
            value=spec.draft,
            accepted="0, or backend=transformers",
        )
    from rlvr_dir.decode.vllm_pair.engine import VllmPair

    return VllmPair(pair, spec)

"""The protocol that all engines speak, and the choice of a single one; `harness.decode` opens one or several."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any, Protocol, Self

from harness.decode.pair_engine import PairEngine
from harness.decode.progress import Progress
from harness.decode.types import Request, Rollout
from harness.errors import UserError
from harness.spec import EngineSpec, Pair


class Engine(Protocol):
    """An engine holds both models and decodes requests, each with its own decoding and sampling.

    As a context manager it is closed in the end.
    """

    pair: Pair

    @property
    def tokenizer(self) -> Any:
        """The RL model's tokenizer, which both models share."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """What ends a response: both models' end-of-text tokens."""
        ...

    def start(self) -> None:
        """Load the weights, once; the first `generate` does it at the latest.

        Raises:
            UserError: the models cannot be loaded, or are found not to compute what they should.
        """
        ...

    def generate(self, requests: Iterable[Request], *, progress: bool | Progress = False) -> Iterator[Rollout]:
        """Yield rollouts as they finish, in any order; `progress` is a bool, or a `Progress` to report to.

        Raises:
            UserError: a request cannot be served; nothing has been decoded then.
            BrokenLogits: a model's logits are no distribution; what has finished by then has been yielded.
        """
        ...

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        """Return the prompt text for a conversation, by the pair's chat template.

        Raises:
            UserError: the tokenizer has no chat template.
        """
        ...

    def info(self) -> dict[str, Any]:
        """Return what is run: backend, versions, dtype, pair, chat template digest, EOS ids; plain JSON values."""
        ...

    def close(self) -> None:
        """Release the models; `start` would load them again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def single_engine(pair: Pair, spec: EngineSpec) -> PairEngine:
    """Return the engine that `spec.backend` names, its weights not loaded yet.

    Raises:
        UserError: the checkpoints do not fit together, vLLM is asked for and absent, or a setting cannot be served.
    """
    installed = find_spec("vllm") is not None
    if spec.backend == "vllm" and not installed:
        raise UserError(
            "backend='vllm': vLLM is not installed; install the extra [cpu] or [gpu], or use backend=transformers"
        )
    if spec.backend == "transformers" or not installed:
        from harness.decode.transformers_pair import TransformersPair

        return TransformersPair(pair, spec)
    from harness.decode.vllm_pair.engine import VllmPair

    return VllmPair(pair, spec)

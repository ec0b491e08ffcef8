"""What both engines have in common: a checked pair, the settings resolved against it, prompts, and facts to record."""

from abc import ABC, abstractmethod
from typing import Any, Self

from harness.decode.checkpoints import Checkpoints, read_checkpoints
from harness.decode.plan import ALGORITHM, chat_prompt, template_digest
from harness.errors import UserError
from harness.spec import EngineSpec, Pair


class PairEngine(ABC):
    """The base of an `Engine`; a subclass adds `load`, `generate`, `info` and `close`.

    Made, it has read the checkpoints' configurations and tokenizer: prompts and `info` are there. The weights are
    loaded by `start`, at the latest by the first `generate`.
    """

    def __init__(self, pair: Pair, spec: EngineSpec) -> None:
        """Reads and checks the checkpoints; no weights yet.

        Raises:
            UserError: the checkpoints do not fit together, or `max_model_len` is beyond what RL was built for.
        """
        self.pair, self.spec = pair, spec
        self.started = False
        self.checkpoints: Checkpoints = read_checkpoints(pair)
        self.dtype = self.checkpoints.dtype if spec.dtype == "auto" else spec.dtype
        self.max_model_len = spec.max_model_len or self.checkpoints.max_model_len
        most = getattr(self.checkpoints.config, "max_position_embeddings", None)
        if most and self.max_model_len > most:
            raise UserError(
                f"max_model_len={self.max_model_len} is refused: rl={pair.rl!r} was built for {most} positions; "
                f"accepted: up to {most}"
            )

    def start(self) -> None:
        """Loads the weights, once.

        Raises:
            UserError: the models cannot be loaded, or are found not to compute what they should.
        """
        if self.started:
            return
        self.started = True  # the self-test within `load` generates already
        try:
            self.load()
        except BaseException:
            self.started = False
            raise

    @property
    def tokenizer(self) -> Any:
        """The RL model's tokenizer, which both models share."""
        return self.checkpoints.tokenizer

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        """The prompt text for a conversation, by the RL model's chat template."""
        return chat_prompt(self.tokenizer, messages, add_generation_prompt)

    def facts(self, **own: Any) -> dict[str, Any]:
        """The facts of `Engine.info` that both engines give, with the engine's `own` beside them."""
        import torch

        return {
            **own,
            "torch": torch.__version__,
            "algorithm": ALGORITHM,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "pair": self.pair.model_dump(),
            "chat_template": {"from": self.pair.rl, "sha256": template_digest(self.tokenizer)},
            "eos_token_ids": sorted(self.checkpoints.eos_token_ids),
        }

    @abstractmethod
    def load(self) -> None:
        """Loads the weights; see `start`."""

    @abstractmethod
    def close(self) -> None:
        """Releases the models; the engine cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

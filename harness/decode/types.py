"""What goes into an engine and what comes out: the protocol that both engines speak."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from harness.decode.trace import Trace
from harness.errors import UserError
from harness.spec import Decoding, Sampling


class EngineLost(UserError):
    """An engine's processes are gone while it decoded; what it had handed back stands, and another can do the rest."""


@dataclass(frozen=True, slots=True)
class Request:
    """One response to be decoded.

    `problem` and `sample` key the noise (with `sampling.seed`): the same key, decoding and prompt always give the
    same tokens, in any batch, order or process. `problem` must therefore be unique across tasks (`aime24/12`).
    `prompt` is text as it goes to the tokenizer, chat template already applied; `prompt_token_ids` overrides it.
    """

    prompt: str
    problem: str
    sample: int = 0
    decoding: Decoding = field(default_factory=Decoding)
    sampling: Sampling = field(default_factory=Sampling)
    prompt_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    trace: int | None = None  # ask for `Rollout.trace`, with so many of each model's likeliest tokens (0 to MAX_TOP)
    tag: Any = None  # handed back untouched on `Rollout.request`


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One decoded response with its per-token facts; arrays have one entry a generated token, EOS included.

    - `replaced`: the criterion held and the token was redrawn from the target policy;
    - `changed`: the redrawn token differs from the proposed one (a subset of `replaced`);
    - `delta_logp`: log pi_RL - log pi_Base of the *proposed* token in nats, untruncated policies at the sampling
      temperature, clamped to [-30, 30]: the number the `delta_logp` criterion looks at.
    """

    request: Request
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: Literal["stop", "length"]
    replaced: np.ndarray  # (tokens,) bool
    changed: np.ndarray  # (tokens,) bool
    delta_logp: np.ndarray  # (tokens,) float32
    trace: Trace | None = None

    @property
    def n_tokens(self) -> int:
        """Generated tokens, the end-of-text token included."""
        return len(self.token_ids)

    @property
    def n_replaced(self) -> int:
        """Positions where the criterion held."""
        return int(self.replaced.sum())

    @property
    def n_changed(self) -> int:
        """Positions where the token really became another one."""
        return int(self.changed.sum())


class Engine(Protocol):
    """An engine holds both models and decodes requests, each with its own decoding and sampling."""

    @property
    def tokenizer(self) -> Any:
        """The RL model's tokenizer, which both models share."""

    def generate(self, requests: Iterable[Request], *, progress: Any = False) -> Iterator[Rollout]:
        """Yields rollouts as they finish, in any order; `progress` is a bool, or a `Progress` to report to.

        Raises:
            UserError: a request cannot be served; nothing has been decoded then.
        """

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        """The prompt text for a conversation, by the pair's chat template."""

    def info(self) -> dict[str, Any]:
        """What was run: backend, versions, dtype, pair, chat template digest, EOS ids; plain JSON values."""

    def close(self) -> None:
        """Releases the models; the engine cannot be used afterwards."""

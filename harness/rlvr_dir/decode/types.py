"""What goes into an engine, what it makes of it, and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode.trace import Trace
from rlvr_dir.errors import UserError
from rlvr_dir.policy.rule import Rule


class EngineLost(UserError):
    """An engine's processes are gone while it decoded; what it had handed back stands, and another can do the rest."""


class BrokenLogits(UserError):
    """A model's logits at some position are no distribution: NaN or +inf is among them, or nothing but -inf."""


@dataclass(frozen=True, slots=True)
class Request:
    """One response to be decoded.

    `problem` and `sample` key the noise (with `sampling.seed`): the same key, decoding and prompt always give the
    same tokens, in any batch, order or process. `problem` must therefore be unique across tasks (`aime24/12`).
    `prompt` is text as it goes to the tokenizer, chat template already applied; `prompt_token_ids` overrides it.
    `begun` has the first tokens of the response, where these are written already: what follows is drawn as if they had
    been decoded, by the noise and the window of its place in the response.
    """

    prompt: str
    problem: str
    sample: int = 0
    decoding: Decoding = field(default_factory=Decoding)
    sampling: Sampling = field(default_factory=Sampling)
    prompt_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    trace: int | None = None  # ask for `Rollout.trace`, with so many of each model's most likely tokens (0 to MAX_TOP)
    tag: Any = None  # handed back untouched on `Rollout.request`
    begun: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One response on its way, from the request to its row of a step; `rlvr_dir.decode.plan` makes it.

    The first fields are what a step looks at. They alone cross to vLLM's processes, as `plain` values.
    """

    rule: Rule
    key: int  # of the noise
    start: int  # tokens of the prompt
    end: int | None  # a token that ends a response: the one written where there is no distribution to draw from
    request: Request = field(default_factory=lambda: Request("", ""))
    token_ids: tuple[int, ...] = ()  # what is read at first: the prompt, and what is begun
    max_new_tokens: int = 0
    begun: int = 0  # tokens of the response that are written already; a step looks at it, too
    output: Sequence[int] = ()  # of a row, where the model runner (V1) says by it how much was written

    def plain(self) -> dict[str, Any]:
        """Return what a step looks at, as plain values."""
        numbers = {"key": self.key, "start": self.start, "end": self.end, "begun": self.begun}
        return {"rule": self.rule.plain(), **numbers}

    @classmethod
    def of_plain(cls, fields: Mapping[str, Any], output: Sequence[int] = ()) -> "Plan":
        """Undo `plain`; raises KeyError, TypeError or ValueError where it is none."""
        return cls(**{**fields, "rule": Rule.of_plain(fields["rule"]), "output": output})


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One decoded response with its per-token facts; arrays have one entry a generated token, EOS included.

    What the request had `begun` is in `text`, and among neither the generated tokens nor those of the prompt.

    - `replaced`: the criterion held and the token was redrawn from the target policy;
    - `changed`: the redrawn token differs from the proposed one (a subset of `replaced`);
    - `delta_logp`: log pi_RL - log pi_Base of the *proposed* token in nats, untruncated policies at the sampling
      temperature (1 where that is 0), clamped to [-30, 30]: the number the `delta_logp` criterion looks at;
    - `proposed`: the proposed token, the one written where it was not changed;
    - `delta_logp_written`: as `delta_logp`, of the written token.
    """

    request: Request
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: Literal["stop", "length"]
    replaced: np.ndarray  # (tokens,) bool
    changed: np.ndarray  # (tokens,) bool
    delta_logp: np.ndarray  # (tokens,) float32
    proposed: np.ndarray  # (tokens,) int64
    delta_logp_written: np.ndarray  # (tokens,) float32
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

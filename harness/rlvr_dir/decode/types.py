"""Define an engine's input (requests), its plans, and its output (rollouts)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode.trace import Trace
from rlvr_dir.errors import UserError
from rlvr_dir.policy.rule import Rule


class EngineLost(UserError):
    """Report that an engine's processes were lost while it decoded. Finished rollouts are kept; another engine can
    continue."""


class BrokenLogits(UserError):
    """Report that a model's logits at a position do not form a distribution: one is NaN or +inf, or all are -inf."""


@dataclass(frozen=True, slots=True)
class Request:
    """Represent one response to decode.

    `problem` and `sample` key the noise (with `sampling.seed`). The same key, decoding and prompt always give the same
    tokens, in any batch, order or process. So `problem` must be unique across tasks (`aime24/12`). `prompt` is the text
    for the tokenizer, after the chat template; `prompt_token_ids` overrides it. `begun` has the first tokens of the
    response, if these are given. The rest is decoded as if they had been decoded, with the noise and the window of its
    positions in the response.
    """

    prompt: str
    problem: str
    sample: int = 0
    decoding: Decoding = field(default_factory=Decoding)
    sampling: Sampling = field(default_factory=Sampling)
    prompt_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    trace: int | None = None  # ask for `Rollout.trace`, with so many of each model's most likely tokens (0 to MAX_TOP)
    tag: Any = None  # returned unchanged in `Rollout.request`
    begun: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenText:
    """Tokens that somebody wrote after others; `name` is what an error calls them (`line 3`)."""

    name: str
    before: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Represent one response that is being decoded; made by `rlvr_dir.decode.plan`.

    The first fields are those that a step uses. Only they are sent to vLLM's processes, as `plain` values.
    """

    rule: Rule
    key: int  # of the noise
    start: int  # tokens of the prompt
    end: int | None  # a token that ends a response, written if there is no distribution to sample from
    request: Request = field(default_factory=lambda: Request("", ""))
    token_ids: tuple[int, ...] = ()  # what is read first: the prompt, and the given tokens
    max_new_tokens: int = 0
    begun: int = 0  # given tokens of the response; also used by a step
    output: Sequence[int] = ()  # of a row, if vLLM's model runner (V1) uses it to count the written tokens

    def plain(self) -> dict[str, Any]:
        """Return the fields that a step uses as plain values."""
        numbers = {"key": self.key, "start": self.start, "end": self.end, "begun": self.begun}
        return {"rule": self.rule.plain(), **numbers}

    @classmethod
    def of_plain(cls, fields: Mapping[str, Any], output: Sequence[int] = ()) -> "Plan":
        """Undo `plain`. Raises KeyError, TypeError or ValueError for other fields."""
        return cls(**{**fields, "rule": Rule.of_plain(fields["rule"]), "output": output})


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """Represent one decoded response with its per-token facts. Arrays have one entry per generated token, EOS included.

    The given tokens of `Request.begun` are part of `text`, but count neither as generated nor as prompt tokens.

    - `replaced`: the token was flagged, and resampled from the target policy;
    - `changed`: the written token differs from the proposed one (a subset of `replaced`);
    - `delta_logp`: log pi_RL - log pi_Base of the *proposed* token in nats, for untruncated policies at the sampling
      temperature (1 where that is 0), clipped to [-30, 30]: the value of the `delta_logp` criterion;
    - `proposed`: the proposed token, which is the written one if it was not changed;
    - `delta_logp_written`: as `delta_logp`, for the written token.
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
        """Return the number of generated tokens, including the end-of-text token."""
        return len(self.token_ids)

    @property
    def n_replaced(self) -> int:
        """Return the number of flagged tokens."""
        return int(self.replaced.sum())

    @property
    def n_changed(self) -> int:
        """Return the number of changed tokens."""
        return int(self.changed.sum())

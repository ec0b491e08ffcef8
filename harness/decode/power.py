"""Power sampling, the baseline of `mode=power`: one model's law over whole responses, to a power.

    pi(x) proportional to p(x)^a, over responses x that end or have as many tokens as may be written

After Karan and Du (arXiv 2510.14901): a block of tokens is drawn from the model at temperature 1 / a, whose law q is
not pi, and then a Markov chain moves, some times, before the next block. A move takes a place m of the response so far,
each alike, draws all from there on again, and is taken with the chance of Metropolis and Hastings,

    min(1, pi(x') q(x | x') / (pi(x) q(x' | x))),   q(x' | x) = q(x'_m, x'_m+1, ...) / |x|.

As p^a = q e^((1 - a) H) token by token, with the Renyi entropy H of order a at its position, that is the exponential of
(1 - a) times the difference of the sums of H from m on, times |x| / |x'|: the lengths differ where a response ends.
A chain that ends within a block moves there, and is then done, as the authors' is.

Every draw is a request to an engine, any of them, under a noise key of its own: that of (seed, problem, sample, block,
move), and the position. What is counted is every token that is drawn, kept or not; H comes with it. A prefix that is
read again costs nothing here, as prompts cost nothing.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from harness.decode.plan import Plan, rollout
from harness.decode.types import Request, Rollout
from harness.errors import UserError
from harness.policy.noise import ACCEPT, PLACE, move_key, uniform_of_move
from harness.policy.truncations import WHOLE
from harness.spec import Decoding, Pair, Sampling
from harness.spec.decoding import Power

Decode = Callable[[list[Plan]], Iterator[Rollout]]


def check_power(plans: Sequence[Plan], pair: Pair) -> None:
    """Refuse what plans of `mode=power` cannot have.

    Raises:
        UserError: stop strings, a trace, or a pair with a third model.
    """
    for plan in plans:
        for name in ("stop", "trace"):
            if (value := getattr(plan.request, name)) not in ((), None):
                raise UserError(f"{name}={value!r} is refused with mode=power; accepted: none")
        for role in list(pair.models)[2:]:
            raise UserError(f"mode=power is refused with {pair.named(role)}; accepted: a pair without one")


def power_rollouts(plans: Sequence[Plan], decode: Decode, tokenizer: Any) -> Iterator[Rollout]:
    """Yield the rollouts of plans of `mode=power`, all chains side by side, each as soon as it is done.

    No gate is asked, so nothing is replaced, and delta log p is not measured: 0.
    """
    running = dict(enumerate(map(Chain, plans)))
    while running:
        for part in list(decode([chain.wanted(i) for i, chain in running.items()])):
            chain = running[part.request.tag]
            if chain.take(part):
                del running[part.request.tag]
                none = np.zeros(len(chain.tokens))
                reason = "stop" if chain.ended else "length"
                made = rollout(chain.plan, tokenizer, chain.tokens, none, none, none, reason)
                yield replace(made, n_forwards=chain.forwards)


@dataclass(slots=True)
class Chain:
    """The Markov chain of one response: `wanted` says what is to be drawn next, `take` goes on with it."""

    plan: Plan
    tokens: list[int] = field(default_factory=list)
    told: list[float] = field(default_factory=list)  # the Renyi entropy where each token was drawn
    ended: bool = False  # by the model, not by a limit
    block: int = 0
    move: int = 0  # 0 writes the block
    forwards: int = 0

    @property
    def decoding(self) -> Power:
        """Return the settings."""
        decoding = self.plan.request.decoding
        assert isinstance(decoding, Power)
        return decoding

    @property
    def limit(self) -> int:
        """Return how many tokens there may be after this block."""
        return min((self.block + 1) * self.decoding.block, self.plan.max_new_tokens)

    @property
    def key(self) -> int:
        """Return the noise key of this move."""
        return move_key(self.plan.key, self.block, self.move)

    @property
    def place(self) -> int:
        """Return from which token on this move draws anew."""
        return int(uniform_of_move(self.key, PLACE) * len(self.tokens)) if self.move else len(self.tokens)

    def wanted(self, tag: int) -> Plan:
        """Return what this move draws, as a plan whose request has the `tag`."""
        decoding, request, place = self.decoding, self.plan.request, self.place
        prefix, room = (*self.plan.token_ids, *self.tokens[:place]), self.limit - place
        sampling = Sampling(temperature=1 / decoding.power, top_p=1.0, max_tokens=room, samples=1)
        mode = _alone(decoding.primary)
        asked = Request("", request.problem, request.sample, mode, sampling, prompt_token_ids=prefix, tag=tag)
        rule = replace(self.plan.rule, temperature=1 / decoding.power, truncation=WHOLE, tells="renyi")
        return Plan(rule, self.key, len(prefix), self.plan.end, asked, prefix, room)

    def take(self, part: Rollout) -> bool:
        """Go on with what was drawn, kept or not; tell whether the response is done."""
        place, told = self.place, part.delta_logp.astype(float).tolist()
        self.forwards += part.n_tokens
        if not self.move or uniform_of_move(self.key, ACCEPT) < math.exp(min(0.0, self._log_odds(place, told))):
            self.tokens[place:] = part.token_ids
            self.told[place:] = told
            self.ended = part.finish_reason == "stop"
        self.move += 1
        if self.move <= self.decoding.moves:
            return False
        if self.ended or len(self.tokens) >= self.plan.max_new_tokens:
            return True
        self.block, self.move = self.block + 1, 0
        return False

    def _log_odds(self, place: int, told: Sequence[float]) -> float:
        """Return the logarithm of Metropolis and Hastings' ratio, of drawing anew from `place` on."""
        gained = (1 - self.decoding.power) * (math.fsum(told) - math.fsum(self.told[place:]))
        return gained + math.log(len(self.tokens) / (place + len(told)))


@cache
def _alone(model: str) -> Decoding:
    return Decoding(mode=model)

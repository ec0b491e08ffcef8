"""Convert a request to what an engine needs (token ids, a rule, a noise key, a length), and the result to a rollout."""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.checkpoints.context import Context
from rlvr_dir.checkpoints.read import Checkpoints
from rlvr_dir.config import Decoding, Pair, Sampling, check_together
from rlvr_dir.decode.trace import MAX_TOP, PROPOSAL, Trace, columns
from rlvr_dir.decode.types import BrokenLogits, Plan, Request, Rollout
from rlvr_dir.errors import UserError
from rlvr_dir.policy.noise import request_key
from rlvr_dir.policy.own import NotLoaded
from rlvr_dir.policy.rule import Rule

ALGORITHM = 1  # increase it with any change that gives other tokens for the same request: records are keyed by it
DELTA_LIMIT = 30.0  # nats; e^30 is far beyond any ratio that matters for a decision


def rule_of(decoding: Decoding, sampling: Sampling, trace: int | None = None) -> Rule:
    """Return the rule for a decoding and its sampling.

    Temperature 0 takes the most likely token instead of sampling. Its criteria use temperature 1.
    """
    since, until = decoding.tokens(sampling.max_tokens)
    return Rule(
        gate=decoding.gate,
        primary=decoding.primary,
        gamma=decoding.gamma if decoding.gated else 0.0,
        decider=decoding.decider,
        top_p=sampling.top_p,
        greedy=sampling.greedy,
        temperature=sampling.criterion_temperature,
        since=since,
        until=inf if until is None else until,
        trace=trace,
    )


def plan_requests(requests: Iterable[Request], checkpoints: Checkpoints) -> list[Plan]:
    """Plan all requests. Each prompt is tokenised once.

    The maximum length of a response is `max_tokens`, or the context minus the prompt if that is less.

    Raises:
        UserError: A prompt is empty or leaves no room for a token, or a decoding does not fit its sampling.
    """
    requests = list(requests)
    for request in requests:
        if isinstance(gate := request.decoding.gate, NotLoaded):
            raise UserError(
                "is not loaded, because only criteria that you name yourself are",
                argument="criterion",
                value=gate.criterion,
                hint="Name it with `-d`",
            )
    encoded: dict[str, tuple[int, ...]] = {}
    plans = []
    for request in requests:
        ids = request.prompt_token_ids
        if ids is None:
            ids = encoded.get(request.prompt)
            if ids is None:
                ids = encoded[request.prompt] = encode_prompt(checkpoints.tokenizer, request.prompt)
        if not ids:
            raise UserError(
                "has an empty prompt", argument="problem", value=request.problem, accepted="at least one token"
            )
        limit = checkpoints.context.limit(request.decoding)
        room = limit - len(ids)
        most = min(request.sampling.max_tokens, room)
        if room < 1:
            raise UserError(
                f"has a prompt of {len(ids)} tokens, which leaves no room for a response",
                argument="problem",
                value=request.problem,
                accepted=f"fewer than max_model_len={limit}",
            )
        for name, token_ids in (("prompt_token_ids", ids), ("begun", request.begun)):
            if token_ids and (min(token_ids) < 0 or max(token_ids) >= checkpoints.vocab_size):
                raise UserError(
                    f"has an id in {name} that is outside the vocabulary",
                    argument="problem",
                    value=request.problem,
                    accepted=f"0 to {checkpoints.vocab_size - 1}",
                )
        if request.begun:
            _check_begun(request, checkpoints, most)
        if request.trace is not None and not 0 <= request.trace <= MAX_TOP:
            raise UserError(
                argument="trace", value=request.trace, accepted=f"0 to {MAX_TOP} most likely tokens, or None"
            )
        if PROPOSAL + columns(request.trace or 0) >= checkpoints.vocab_size:
            raise UserError(
                f"does not fit into a vocabulary of {checkpoints.vocab_size} tokens",
                argument="trace",
                value=request.trace,
                hint="List fewer tokens, or leave it out",
            )
        if (
            request.trace is not None
            and checkpoints.shared < checkpoints.vocab_size
            and not request.decoding.reads_base
        ):
            raise UserError(
                "cannot be traced, because RL may write tokens that base does not know and they have no divergence",
                argument="mode",
                value=request.decoding.mode,
                accepted="a pair with the same vocabulary",
            )
        sampling = request.sampling
        check_together(request.decoding, sampling)
        plans.append(
            Plan(
                rule=rule_of(request.decoding, sampling, request.trace),
                key=request_key(sampling.seed, request.problem, request.sample),
                start=len(ids),
                end=min(checkpoints.eos_token_ids),
                request=request,
                begun=len(request.begun),
                token_ids=(*ids, *request.begun),
                max_new_tokens=most - len(request.begun),
            )
        )
    return plans


def warn_of_cuts(plans: Sequence[Plan], context: Context) -> None:
    """Warn of responses that the context may end before `max_tokens`: how many and where.

    The warning is given once for each `max_tokens` and length, because a sweep calls its engine many times.
    """
    cut: dict[tuple[int, int], dict[tuple[int, ...], int]] = defaultdict(dict)
    lengths = set()
    for plan in plans:
        most = plan.request.sampling.max_tokens
        prompt, room = plan.token_ids[: plan.start], plan.begun + plan.max_new_tokens
        lengths.add(prompt)
        if room < most:
            cut[most, context.limit(plan.request.decoding)][prompt] = room
    for (most, limit), rooms in cut.items():
        if (most, limit) in context.warned:
            continue
        context.warned.add((most, limit))
        least, largest = min(rooms.values()), max(rooms.values())
        after = f"{least}" if least == largest else f"{least} to {largest}"
        warnings.warn(
            f"max_tokens={most} has no room after {len(rooms)} of {len(lengths)} prompts: responses are cut after "
            f"{after} tokens, {context.limit_reason(limit)}. To avoid this, set max_tokens to at most {least}, or "
            f"max_model_len={limit - least + most}",
            stacklevel=3,
        )


def _check_begun(request: Request, checkpoints: Checkpoints, most: int) -> None:
    """Check that a response can be continued from its given tokens.

    Raises:
        UserError: It has ended.
    """

    def refused(problem: str, allowed: str) -> UserError:
        whole = f"begins with {len(request.begun)} given tokens (begun), {problem}"
        return UserError(whole, argument="problem", value=request.problem, accepted=allowed)

    if len(request.begun) >= most:
        raise refused("which leaves no room for another one", f"fewer than {most} tokens")
    if checkpoints.eos_token_ids & set(request.begun):
        raise refused("one of which ends a response", "only tokens before the end of a response")
    if request.stop:
        raise refused(f"and stop={request.stop!r} could lie across their end", "no stop strings")


def broken_logits(plan: Plan, pair: Pair, dtype: str, after: int, roles: Iterable[str]) -> BrokenLogits:
    """Return the error for logits that do not form a distribution, after `after` tokens of a response.

    `roles` are those of the models with such logits, if they are known.
    """
    named_roles = tuple(roles)
    names = " and ".join(map(pair.argument, named_roles or pair.models))
    request = plan.request
    return BrokenLogits(
        f"{'' if named_roles else 'one of '}{names}: NaN or infinite logits after {after} tokens of "
        f"the response to problem={request.problem!r} (sample={request.sample}, {request.decoding.label()}), so no "
        "token can be drawn. Responses that were finished before are kept",
        accepted="a checkpoint with finite logits"
        + ("" if dtype == "float32" else f", or dtype=float32 if the range of {dtype} is too small for it"),
    )


def written(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Return the text of a response, without special tokens."""
    return tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def rollout(
    plan: Plan,
    tokenizer: Any,
    token_ids: Sequence[int],
    replaced: ArrayLike,
    changed: ArrayLike,
    delta_logp: ArrayLike,
    finish_reason: Literal["stop", "length"],
    proposed: ArrayLike,
    delta_logp_written: ArrayLike,
    trace: np.ndarray | None = None,
) -> Rollout:
    """Make the rollout of a finished plan; text without special tokens, cut before a stop string."""
    text = written(tokenizer, (*plan.request.begun, *token_ids))
    cuts = [at for at in (text.find(stop) for stop in plan.request.stop) if at >= 0]
    return Rollout(
        request=plan.request,
        prompt_token_ids=plan.token_ids[: plan.start],
        token_ids=tuple(token_ids),
        text=text[: min(cuts)] if cuts else text,
        finish_reason=finish_reason,
        replaced=np.asarray(replaced, dtype=bool),
        changed=np.asarray(changed, dtype=bool),
        delta_logp=_clipped(delta_logp),
        proposed=np.asarray(proposed, dtype=np.int64),
        delta_logp_written=_clipped(delta_logp_written),
        trace=None if trace is None else Trace(np.asarray(trace, dtype=np.float32)),
    )


def _clipped(delta_logp: ArrayLike) -> np.ndarray:
    return np.clip(np.asarray(delta_logp, dtype=np.float32), -DELTA_LIMIT, DELTA_LIMIT)

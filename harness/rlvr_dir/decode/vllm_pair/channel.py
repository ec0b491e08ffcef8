"""Encode the facts of a decision as finite logits of a forced row, so that vLLM returns them for each token.

The processor leaves one finite logit on the chosen token. vLLM samples it greedily and returns the logit unchanged as
the token's "log-probability" (`logprobs_mode="processed_logits"`). It therefore survives preemption, chunking, tensor
parallelism and process boundaries like the token itself.

    logit = 64 (1 + replaced + changed) + clamp(delta log p, -30, 30)

These are three bands that cannot overlap. All are below 256, where float32 resolves 1.5e-5, so the error in delta log p
is at most half of that. If a model's logits do not form a distribution, delta log p is NaN and the logit is 256. This
is a number too, so vLLM emits the token like any other. It is then a token that ends the response, so that the host
learns of it with that token and no step has to wait.

Further numbers of a token are finite logits on the other ids of its row: number j is on the j-th id that is not the
chosen one (`slots`). A vLLM request asks for them as in `asked_for`.

    number 0    if the token changed: 144 + id of the proposed token / 2^16
    number 1    if the token changed: 152 + clamp(delta log p of the chosen token, -30, 30) / 4
    from 2 on   for a traced token: its statistics (ranks and ids negated, the others at most 30)

The first two are below the band of a changed token, and at most 78 below its logit. vLLM applies top-p to all rows if a
plain request in the batch has one. It cannot cut these two numbers, because beside the chosen token they have a
probability above 0 in float32. Statistics of a trace have probability 0, and are cut.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rlvr_dir.decode.plan import DELTA_LIMIT
from rlvr_dir.decode.trace import PROPOSAL as PROPOSAL
from rlvr_dir.decode.trace import columns
from rlvr_dir.decode.types import Plan
from rlvr_dir.errors import UserError
from rlvr_dir.policy.trace import FACTS, TOP_FACTS

BAND = 64.0
Returned = Callable[[int], tuple[Sequence[int], Sequence[float]]]  # what vLLM returned at a position: ids and logits
NO_NUMBER = 4 * BAND  # stands for a delta log p that is NaN
NO_FACT = -(2.0**26)  # the same for a statistic, below all others
BESIDE = (144.0, 2.0**-16, 152.0, 0.25)  # offset and step for the proposed id, and for delta log p
_ERROR = 1e-3
_NO_BAND = "a token came back without the facts of its decision: its logit lies in no band of the channel"


def encode(replaced: torch.Tensor, changed: torch.Tensor, delta_logp: torch.Tensor) -> torch.Tensor:
    """Return the facts of n tokens as n logits: (n,) bool, (n,) bool, (n,) float -> (n,) float32.

    A token can be `changed` only if it is `replaced`.
    """
    band = 1.0 + replaced.float() + changed.float()
    number = BAND * band + delta_logp.float().clamp(-DELTA_LIMIT, DELTA_LIMIT)
    return number.where(~delta_logp.isnan(), NO_NUMBER)


def decode(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Undo `encode`: (n,) floats -> replaced (n,) bool, changed (n,) bool, delta log p (n,) float32.

    If delta log p is NaN, the token is neither replaced nor changed.

    Raises:
        ValueError: A number is in no band, so it was not written by `encode`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    band = np.rint(np.where(np.isfinite(logits), logits, 0.0) / BAND)
    delta = logits - BAND * band
    broken = logits == NO_NUMBER
    if not (broken | np.isin(band, (1, 2, 3)) & (np.abs(delta) <= DELTA_LIMIT + _ERROR)).all():
        raise ValueError(_NO_BAND)
    return (band >= 2) & ~broken, (band >= 3) & ~broken, np.where(broken, np.nan, delta).astype(np.float32)


def first_broken(logits: Iterable[float]) -> int | None:
    """Return the first position at which delta log p is NaN; None if there is none. It is fast for few tokens.

    Raises:
        ValueError: As for `decode`.
    """
    for at, logit in enumerate(logits):
        if logit == NO_NUMBER:
            return at
        band = round(logit / BAND) if math.isfinite(logit) else 0
        if not (1 <= band <= 3 and abs(logit - BAND * band) <= DELTA_LIMIT + _ERROR):
            raise ValueError(_NO_BAND)
    return None


def numbers_of(plan: Plan) -> int:
    """Return the largest number of further numbers that a token of `plan` may have."""
    if plan.request.trace is not None:
        return PROPOSAL + columns(plan.request.trace)
    return PROPOSAL if plan.rule.gate is not None else 0


def unpack(flat: Any, token_ids: Sequence[int]) -> tuple[np.ndarray, Returned]:
    """Read vLLM's flat log-probabilities of the last tokens of a response.

    Returns:
        The chosen tokens' logits, (tokens,) float64; and a function that returns what vLLM returned at each position.

    Raises:
        RuntimeError: They belong to other tokens.
    """
    spans = list(zip(flat.start_indices, flat.end_indices, strict=True))[-len(token_ids) :]
    if [flat.token_ids[start] for start, _ in spans] != list(token_ids):
        raise RuntimeError("vLLM returned the facts of other tokens than those it emitted")

    def returned(place: int) -> tuple[Sequence[int], Sequence[float]]:
        start, end = spans[place]
        return flat.token_ids[start:end], flat.logprobs[start:end]

    return np.array([flat.logprobs[start] for start, _ in spans], dtype=np.float64), returned


def asked_for(numbers: int, runner_v2: bool) -> dict[str, Any]:
    """Return the fields of vLLM's `SamplingParams` that make it return `numbers` further numbers for each token.

    Runner V2 gathers ids that are named beforehand. Runner V1 is asked for the largest logits, which include all that
    are finite, because named ids cost it more for each request.
    """
    if numbers and runner_v2:
        return {"logprob_token_ids": [*range(numbers + 1)]}  # one more, because one of them may be the chosen token
    return {"logprobs": numbers + 1 if numbers else 0}  # one more, because the chosen token is the largest


def encode_proposal(proposed: torch.Tensor, delta_logp: torch.Tensor) -> torch.Tensor:
    """Return the numbers for n proposed tokens and the written ones' delta log p: (n,) int64, (n,) -> (n, PROPOSAL)."""
    id_offset, id_step, delta_offset, delta_step = BESIDE
    written = delta_logp.float().nan_to_num(0.0, DELTA_LIMIT, -DELTA_LIMIT).clamp(-DELTA_LIMIT, DELTA_LIMIT)
    return torch.stack([id_offset + proposed.float() * id_step, delta_offset + written * delta_step], dim=1)


def decode_proposals(
    chosen: Sequence[int], changed: np.ndarray, delta_logp: np.ndarray, returned: Returned
) -> tuple[np.ndarray, np.ndarray]:
    """Return the proposed token of each position of a response, and delta log p of the written one.

    If the token did not change, they are the chosen token and its `delta_logp`.

    Args:
        chosen: (tokens,) the tokens that were forced.
        changed, delta_logp: (tokens,) as `decode` returns them.
        returned: For each token, the ids and logits that vLLM returned.

    Returns:
        (tokens,) int64 ids and (tokens,) float32.

    Raises:
        ValueError: A changed token was returned without its numbers.
    """
    id_offset, id_step, delta_offset, delta_step = BESIDE
    proposed, written = np.array(chosen, dtype=np.int64), delta_logp.astype(np.float32)
    for place in np.flatnonzero(changed):
        numbers = dict(_numbers(chosen[place], *returned(place)))
        if not all(math.isfinite(numbers.get(slot, math.inf)) for slot in range(PROPOSAL)):
            raise ValueError("a changed token came back without what was proposed in its place")
        proposed[place] = round((numbers[0] - id_offset) / id_step)
        written[place] = (numbers[1] - delta_offset) / delta_step
    return proposed, written


def _numbers(chosen: int, ids: Sequence[int], logits: Sequence[float]) -> Iterable[tuple[int, float]]:
    """Undo `slots` for one token: yield the index and the value of each number that vLLM returned.

    Infinite values are skipped, because vLLM pads the largest logits with arbitrary other ones.
    """
    return ((id_ - (id_ > chosen), logit) for id_, logit in zip(ids, logits, strict=True) if id_ != chosen)


def slots(chosen: torch.Tensor, width: int) -> torch.Tensor:
    """Return the ids for `width` numbers of each token: (n,) -> (n, width).

    They are 0, 1, ... without the chosen id.
    """
    ids = torch.arange(width, device=chosen.device).expand(len(chosen), width)
    return ids + (ids >= chosen[:, None]).long()


def signs(width: int) -> np.ndarray:
    """Return the factor for each statistic that keeps it below the bands: (width,) float32."""
    top = (width - len(FACTS)) // len(TOP_FACTS)
    counts = {"rank_base", "rank_rl", "proposed", "base_id", "rl_id"}
    return np.array([-1.0 if name in counts else 1.0 for name in (*FACTS, *TOP_FACTS * top)], dtype=np.float32)


def encode_trace(table: torch.Tensor) -> torch.Tensor:
    """Return the statistics of n tokens as logits for their `slots`: (n, width) -> same shape; NaN becomes NO_FACT."""
    numbers = table.float() * _signs_on(table.device, table.shape[1])
    return numbers.masked_fill_(numbers.isnan(), NO_FACT)


@lru_cache
def _signs_on(device: torch.device, width: int) -> torch.Tensor:
    return torch.from_numpy(signs(width)).to(device)  # cached, because a copy in every step would wait for the device


def decode_trace(chosen: Sequence[int], returned: Returned, width: int) -> np.ndarray:
    """Undo `encode_trace` for a whole response.

    Args:
        chosen: (tokens,) the tokens that were forced.
        returned: For each token, the ids and logits that vLLM returned.
        width: The number of statistics per token.

    Returns:
        (tokens, width) float32; NaN where it was NaN.

    Raises:
        UserError: The top-p of another request cut statistics off. vLLM applies it to all rows, and in float32 the
            statistics have probability 0 beside the forced token.
        ValueError: A statistic is missing, or a returned value is not a statistic.
    """
    table, cut = np.full((len(chosen), width), np.nan, dtype=np.float32), False
    for place, token in enumerate(chosen):
        for slot, value in _numbers(token, *returned(place)):
            cut = cut or value == -math.inf
            if math.isfinite(value) and slot >= PROPOSAL:
                if slot >= PROPOSAL + width:
                    raise ValueError(f"number {slot} came back with {value}, which is none of a token's statistics")
                table[place, slot - PROPOSAL] = value
    if np.isnan(table).any():
        if not cut:
            raise ValueError("a traced token came back without all of its statistics")
        raise UserError(
            "Traces cannot be decoded beside a plain vLLM request that has top_p, top_k or min_p, because vLLM then "
            "cuts the logits of every request in the batch",
            argument="trace",
            accepted="plain requests with top_p=1, or none",
        )
    return np.where(table == NO_FACT, np.nan, table * signs(width))


def scores(output: Any, start: int, width: int) -> np.ndarray:
    """Return the logits that the model left on the first `width` ids of a scored text's rows: (tokens, width) float32.

    Args:
        output: vLLM's `RequestOutput`. Runner V2 returns only the named ids. V1 returns every row of the prompt except
            the first, with the prompt's own token first and then the largest numbers. All others are -inf.
        start: The number of tokens before the text.
        width: The number of ids.
    """
    if (named := getattr(output, "prompt_token_id_logprobs", None)) is not None:
        return np.array(named, dtype=np.float32)
    flat = output.prompt_logprobs
    ids, values = (np.array(x).reshape(-1, width + 1)[start - 1 :, 1:] for x in (flat.token_ids, flat.logprobs))
    table = np.full(ids.shape, np.nan, dtype=np.float32)
    np.put_along_axis(table, ids, values.astype(np.float32), axis=1)
    return table
